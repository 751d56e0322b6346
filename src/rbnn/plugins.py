"""Methods and networks from outside the package: files that the user names (``--import FILE.py``), and installed
packages that announce themselves by an entry point.  Nothing else is imported: a recipe, a checkpoint or a packed file
that names a file is believed about the name alone."""

import importlib.util
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from rbnn.errors import ConfigError

GROUP = "rbnn.plugins"
"""Entry points of this group name modules, which are imported when a name is asked for that rbnn does not know."""

PACKAGE = "package "
"""What the source begins with where it is no file."""

_files: dict[Path, str] = {}
"""Files that were imported, and what the user called them."""
_sources: dict[tuple[str, str], str] = {}
"""Of each method and network that is not rbnn's own, by kind and name: the file or package it comes from."""
_importing: list[str] = []
"""Whose code runs just now."""


def import_file(path: Path) -> None:
    """Run a Python file of the user's, once; what it registers is known from then on.  It may import its neighbours, as
    a script may."""
    real = path.resolve()
    if real in _files:
        return
    if not real.is_file():
        raise ConfigError(f"cannot import {path}: there is no such file")
    name = real.stem
    spec = importlib.util.spec_from_file_location(name, real)
    if spec is None or spec.loader is None:
        raise ConfigError(f"cannot import {path}: expected a Python file, called NAME.py")
    taken = sys.modules.get(name) or importlib.util.find_spec(name)
    if taken is not None and _origin(taken) != real:
        raise ConfigError(f"cannot import {path}: a module {name} exists already, so rename the file")
    _files[real] = str(path)
    if name in sys.modules:  # another file has imported it
        return
    if str(real.parent) not in sys.path:
        sys.path.append(str(real.parent))
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with _registered_by(str(path)):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name], _files[real]
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            raise
        raise ConfigError(f"cannot import {path}: {type(error).__name__}: {error}") from error


def _origin(module: Any) -> Path | None:
    origin = getattr(module, "__file__", None) or getattr(module, "origin", None)
    return Path(origin).resolve() if origin else None


@cache
def import_installed() -> None:
    """Import what installed packages announce; one that fails is warned of, and the others are there."""
    for entry in entry_points(group=GROUP):
        package = entry.dist.name if entry.dist else entry.value
        try:
            with _registered_by(PACKAGE + package):
                entry.load()
        except Exception as error:
            warnings.warn(
                f"package {package} announces {entry.value} to rbnn, which cannot be imported: "
                f"{type(error).__name__}: {error}",
                stacklevel=2,
            )


@contextmanager
def _registered_by(source: str) -> Iterator[None]:
    _importing.append(source)
    try:
        yield
    finally:
        _importing.pop()


def claim(kind: str, name: str, made: Any, known: bool) -> None:
    """Remember where the method or network ``name`` comes from.  One that is ``known`` is not taken over by another
    file or package; the same may make it anew, as a notebook does."""
    source = _source(made)
    if known and _sources.get((kind, name)) != source:
        whose = _sources.get((kind, name), "rbnn itself")
        raise ConfigError(f"{kind} {name!r} comes from {whose} already: choose another name in {source}")
    if source is not None:
        _sources[kind, name] = source


def _source(made: Any) -> str | None:
    if made.__module__.partition(".")[0] == "rbnn":  # also where a file is the first to import rbnn's own
        return None
    if _importing:
        return _importing[-1]
    return getattr(sys.modules.get(made.__module__), "__file__", None) or str(made.__module__)


def source_of(kind: str, name: str) -> str | None:
    """The file or package that a method or network comes from; None for rbnn's own."""
    return _sources.get((kind, name))


def flags() -> list[str]:
    """The words of a command line that import the same files."""
    return [word for path in _files.values() for word in ("--import", path)]
