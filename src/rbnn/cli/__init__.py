"""The command line: ``rbnn COMMAND …``.  One file per command; a command is imported only when it runs.

Results go to stdout; progress and errors go to stderr.  Exit codes: 0 success, 1 a bug in rbnn, 2 bad input (reported
in one sentence), 130 interrupted.  Tracebacks are printed only with ``--debug``.
"""

import ast
import importlib
import io
import logging
import os
import sys
import threading
import traceback
import warnings
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from rbnn.cli._streams import open_missing, say
from rbnn.errors import ConfigError, RbnnError, UnknownName
from rbnn.text import quoted, visible

EXTRAS = {
    "torch": "train", "sklearn": "train", "matplotlib": "train", "jinja2": "train", "onnx": "onnx",
    "onnxruntime": "onnx",
}  # fmt: skip
"""Packages that may be missing, and the extra that installs each."""

OPTIONS = "--help", "--version", "--import", "--debug"
"""Options that need no command, or that every command takes."""


def commands() -> dict[str, Path]:
    """Every command and its file."""
    return {p.stem: p for p in sorted(Path(__file__).parent.glob("*.py")) if not p.stem.startswith("_")}


def summary(path: Path) -> str:
    """What a command does: the first line of its docstring after the colon, without the full stop.  The file is not
    imported."""
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return doc.partition("\n")[0].partition(": ")[2].removesuffix(".")


def _usage() -> str:
    from rbnn.cli._wrapping import table, wrapped

    return "\n".join(
        [
            "usage: rbnn COMMAND … [--import FILE.py …] [--debug]   or: rbnn --version",
            "",
            wrapped("Rotated Binary Neural Networks: train 1-bit networks, see why they work, run them as real bits."),
            "",
            *table({name: summary(path) for name, path in commands().items()}),
            "",
            wrapped("`rbnn COMMAND --help` explains a command. Example: rbnn train digits"),
            "",
            wrapped("--import runs a Python file first. The command then knows the methods and networks that it adds."),
        ]
    )


def _first_steps() -> str:
    """What `rbnn` without arguments prints: the way from a first image to a packed network."""
    from rbnn import __version__
    from rbnn.cli._wrapping import table, wrapped

    steps = {
        "rbnn doctor": "see what this machine can run",
        "rbnn predict resnet20-bireal-cifar10 cat.jpg": "classify an image",
        "rbnn train digits --out runs/first": "train in half a minute",
        "rbnn report runs/first": "look inside: report.html",
        "rbnn export runs/first -o first.rbnn": "pack it: signs become bits",
        "rbnn bench first.rbnn": "compare it with other engines",
    }
    return "\n".join(
        [
            wrapped(f"rbnn {__version__}: train 1-bit neural networks, see why they work, run them as real bits."),
            "",
            "First steps:",
            *table(steps),
            "",
            wrapped("`rbnn --help` lists all commands. `rbnn COMMAND --help` explains one, with an example."),
        ]
    )


def main(argv: list[str] | None = None) -> int:
    """Run one command and return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    open_missing()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(
            stream, io.TextIOWrapper
        ):  # a character that the terminal cannot show becomes "?" instead of ending the command
            stream.reconfigure(errors="replace")
    _silence_pillow()
    of_threads, threading.excepthook = threading.excepthook, _silence_full_disks
    try:
        code = _dispatch(words)
        sys.stdout.flush()
        return code
    except RbnnError as error:
        return _complain(error, debug, 2)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(error.name or "")
        if extra is None:
            return _complain(error, debug, 1)
        return _complain(RbnnError(f"`rbnn {words[0]}` needs {error.name}: pip install 'rbnn[{extra}]'"), debug, 2)
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    except BrokenPipeError:
        # The reader of our output is gone (`| head`).  That is not an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if debug:
            traceback.print_exception(error)
        where = f"cannot access {error.filename}" if error.filename else "input or output failed"
        return _complain(RbnnError(f"{where}: {error.strerror or error}"), False, 2)
    except Exception as error:
        return _complain(error, debug, 1)
    finally:
        threading.excepthook = of_threads


def _silence_pillow() -> None:
    """Pillow's warnings and log messages about an image would bury our one sentence."""
    warnings.filterwarnings("ignore", module=r"PIL\.")
    logging.getLogger("PIL").setLevel(logging.CRITICAL)


def _silence_full_disks(thrown: threading.ExceptHookArgs) -> None:
    """TensorBoard writes in a thread of its own.  The main thread learns of its write errors and reports them."""
    if not isinstance(thrown.exc_value, OSError):
        threading.__excepthook__(thrown)


def _imports(words: list[str]) -> tuple[list[Path], list[str]]:
    """The files named by ``--import``, and the remaining words."""
    files, others = list[Path](), list[str]()
    rest = iter(words)
    for word in rest:
        flag, equals, path = word.partition("=")
        if flag != "--import":
            others.append(word)
        elif path or (not equals and (path := next(rest, ""))):
            files.append(Path(path))
        else:
            raise ConfigError("--import takes a Python file: --import FILE.py")
    return files, others


def _dispatch(words: list[str]) -> int:
    files, words = _imports(words)
    if not words:
        print(_first_steps())
        return 0
    if words[0] == "help":  # `rbnn help train` is `rbnn train --help`
        words = [*words[1:], "--help"]
    if words[0] in ("-h", "--help"):
        print(_usage())
        return 0
    if words[0] == "--version":
        from rbnn import __version__

        print(f"rbnn {__version__}")
        return 0
    if files:
        from rbnn.plugins import import_file

        for path in files:
            import_file(path)
    try:
        _run(words[0], words[1:])
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # this is how rich reports it
            return 0
        return end.code if isinstance(end.code, int) else 2  # from the parser, after --help or an error of its own
    return 0


def _run(name: str, words: list[str]) -> None:
    if name.startswith("-"):
        meant = "--version" if name.lower() in ("-v", "-version") else (get_close_matches(name, OPTIONS, 1) or [""])[0]
        hint = f"did you mean {meant}? " if meant else ""
        raise ConfigError(f"unknown option {quoted(name)}: {hint}`rbnn --help` lists commands and options")
    if name not in commands():
        raise UnknownName("command", name, commands())
    module: Any = importlib.import_module(f"rbnn.cli.{name}")
    if hasattr(module, "parse"):
        options = module.parse(words)
    else:
        from rbnn.cli._flags import parse_flags

        options = parse_flags(getattr(module, name.capitalize()), words, prog=f"rbnn {name}")
    module.run(options)


def _complain(error: Exception, debug: bool, code: int) -> int:
    if debug:
        traceback.print_exception(error)
    elif code == 1:
        say(f"rbnn: this is a bug in rbnn: {type(error).__name__}: {visible(str(error))} (--debug shows the traceback)")
    else:
        say(f"rbnn: {visible(str(error))}")
    return code
