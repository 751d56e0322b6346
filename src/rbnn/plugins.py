"""Methods and networks from outside the package: files that the user names (``--import FILE.py``), and installed
packages with an entry point.  Nothing else is imported.  A recipe, a checkpoint or a packed file may name a file, but
that file is never run because of it."""

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
"""Entry points of this group name modules.  They are imported when rbnn is asked for a name that it does not know."""

PACKAGE = "package "
"""Prefix of a source that is not a file."""

_files: dict[Path, str] = {}
"""Imported files, and the paths that the user gave."""
_sources: dict[tuple[str, str], str] = {}
"""The file or package of each method and network that is not part of rbnn, by kind and name."""
_importing: list[str] = []
"""The files and packages whose code is running."""


def import_file(path: Path) -> None:
    """Run a user's Python file once and keep what it registers.  Like a script, it may import the files next to it."""
    real = path.resolve()
    if real in _files:
        return
    if not real.is_file():
        raise ConfigError(f"cannot import {path}: the file does not exist")
    name = real.stem
    if "." in name:
        better = f"{name.replace('.', '_')}.py"
        raise ConfigError(f"cannot import {path}: the name of a module has no dots; rename the file to {better}")
    spec = importlib.util.spec_from_file_location(name, real)
    if spec is None or spec.loader is None:
        raise ConfigError(f"cannot import {path}: expected a Python file named NAME.py")
    taken = sys.modules.get(name) or importlib.util.find_spec(name)
    if taken is not None and _origin(taken) != real:
        raise ConfigError(f"cannot import {path}: a module named {name} already exists; rename the file")
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
    """Import the plugins of installed packages.  A plugin that fails causes a warning, and the others still load."""
    for entry in entry_points(group=GROUP):
        package = entry.dist.name if entry.dist else entry.value
        try:
            with _registered_by(PACKAGE + package):
                entry.load()
        except Exception as error:
            warnings.warn(
                f"the rbnn plugin {entry.value} of package {package} could not be imported: "
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
    """Remember where the method or network ``name`` comes from.  A ``known`` name cannot be taken over by another file
    or package, but the same one may define it again, as a notebook does."""
    source = _source(made)
    if known and _sources.get((kind, name)) != source:
        whose = _sources.get((kind, name), "rbnn itself")
        raise ConfigError(f"{kind} {name!r} is already defined by {whose}: choose another name in {source}")
    if source is not None:
        _sources[kind, name] = source


def _source(made: Any) -> str | None:
    if made.__module__.partition(".")[0] == "rbnn":  # even if a user's file is the first to import rbnn's own module
        return None
    if _importing:
        return _importing[-1]
    return getattr(sys.modules.get(made.__module__), "__file__", None) or str(made.__module__)


def source_of(kind: str, name: str) -> str | None:
    """The file or package that a method or network comes from; None if it is part of rbnn."""
    return _sources.get((kind, name))


def flags() -> list[str]:
    """The command-line flags that import the same files."""
    return [word for path in _files.values() for word in ("--import", path)]
