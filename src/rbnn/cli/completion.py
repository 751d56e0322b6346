"""`rbnn completion`: print a script that completes commands, flags and names in a shell."""

import importlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin, get_type_hints

import tyro


@dataclass(frozen=True)
class Completion:
    """Print a script that makes a shell complete rbnn's commands, flags, recipes, methods and networks.

    bash, in ~/.bashrc:      eval "$(rbnn completion bash)"
    zsh, in ~/.zshrc:        eval "$(rbnn completion zsh)"
    fish, in config.fish:    source (rbnn completion fish | psub)

    Print it again after an update, or after installing the extra `train`.

    Example: rbnn completion bash > ~/.local/share/bash-completion/completions/rbnn
    """

    shell: tyro.conf.Positional[Literal["bash", "zsh", "fish"]]
    """The shell that reads the script."""


@dataclass
class Words:
    """What may follow a command."""

    summary: str
    flags: dict[str, list[str]] = field(default_factory=dict)
    """Each flag with the values that it takes, if there are only a few."""
    names: list[str] = field(default_factory=list)
    """Names that its first argument may be, besides a file."""


def run(options: Completion) -> None:
    """Collect and print."""
    known = collect()
    print(_fish(known) if options.shell == "fish" else _bash(known, zsh=options.shell == "zsh"), end="")


def collect() -> dict[str, Words]:
    """Every command.  A command that needs a missing package has no flags."""
    from rbnn.cli import commands, summary

    known = {name: Words(summary(path)) for name, path in commands().items()}
    for name, words in known.items():
        try:
            module: Any = importlib.import_module(f"rbnn.cli.{name}")
            words.names = sorted(_names(name))
        except ModuleNotFoundError:
            continue
        _add_fields(words, module.TrainConfig if name == "train" else getattr(module, name.capitalize()))
        if name == "train":
            words.flags |= _values()
    return known


def _add_fields(words: Words, options: type) -> None:
    """The fields of a command's dataclass, named as tyro names them."""
    words.flags["--help"] = []
    for name, hint in get_type_hints(options, include_extras=True).items():
        marks = getattr(hint, "__metadata__", ())
        kind = get_args(hint)[0] if marks else hint
        choices = [str(choice) for choice in get_args(kind)] if get_origin(kind) is Literal else []
        if tyro.conf.Positional in marks:
            words.names += choices
        elif tyro.conf.Suppress not in marks:
            flag = f"--{name.replace('_', '-')}"
            aliases = [alias for mark in marks for alias in getattr(mark, "aliases", None) or ()]
            words.flags |= dict.fromkeys([flag, *aliases], choices)
            if kind is bool:
                words.flags[f"--no-{name.replace('_', '-')}"] = []


def _values() -> dict[str, list[str]]:
    """Names for the fields of a training run whose type is just a string."""
    from rbnn import data
    from rbnn.methods import method_names
    from rbnn.models import model_names

    return {"--model": list(model_names()), "--method": list(method_names()), "--data": data.names()}


def _names(command: str) -> Iterable[str]:
    """Names that the first argument of a command may be."""
    from rbnn import data
    from rbnn.packed import pretrained

    if command in ("predict", "eval", "bench", "info"):
        return pretrained.names()
    if command in ("train", "recipes"):
        from rbnn.training.config import bundled_recipes

        return [path.stem for path in bundled_recipes().glob("*.toml")]
    if command == "methods":
        from rbnn.methods import method_names

        return method_names()
    if command == "reproduce":
        from rbnn.reproduce.tables import TABLES

        return TABLES
    return data.names() if command == "data" else ()


def _bash(known: dict[str, Words], zsh: bool) -> str:
    """For bash, and for zsh through its emulation of bash completion."""
    lines = ["# Completion of rbnn, made by `rbnn completion`."]
    if zsh:
        lines += ["autoload -U +X compinit && compinit", "autoload -U +X bashcompinit && bashcompinit"]
    lines += [
        "_rbnn() {",
        "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=",
        "    if [ $COMP_CWORD -eq 1 ]; then",
        f'        COMPREPLY=($(compgen -W "{" ".join([*known, "--help", "--version"])}" -- "$word"))',
        "        return",
        "    fi",
        '    case "${COMP_WORDS[1]} $before" in',
    ]
    for name, words in known.items():
        for flag, choices in words.flags.items():
            if choices:
                lines.append(f'    "{name} {flag}") words="{" ".join(choices)}";;')
    lines += ["    *)", '        case "${COMP_WORDS[1]}" in']
    for name, words in known.items():
        lines.append(f"        {name})")
        if words.names:
            lines.append(f'            [ $COMP_CWORD -eq 2 ] && words="{" ".join(words.names)}"')
        lines.append(f'            case "$word" in -*) words="{" ".join(words.flags)}";; esac;;')
    lines += [
        "        esac;;",
        "    esac",
        '    COMPREPLY=($(compgen -W "$words" -- "$word"))',
        "}",
        "complete -o default -F _rbnn rbnn  # -o default: files, where no word fits",
    ]
    return "\n".join(lines) + "\n"


def _fish(known: dict[str, Words]) -> str:
    lines = ["# Completion of rbnn, made by `rbnn completion`."]
    for name, words in known.items():
        lines.append(f"complete -c rbnn -n __fish_use_subcommand -f -a {name} -d {_quoted(words.summary)}")
    for name, words in known.items():
        here = f"complete -c rbnn -n '__fish_seen_subcommand_from {name}'"
        for flag, choices in words.flags.items():
            kind = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
            lines.append(f"{here} {kind}" + (f" -x -a {_quoted(' '.join(choices))}" if choices else ""))
        if words.names:
            lines.append(f"{here} -a {_quoted(' '.join(words.names))}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + re.sub(r"(['\\])", r"\\\1", text) + "'"
