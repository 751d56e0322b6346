"""Methods by name."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor

from rbnn import plugins
from rbnn.errors import ConfigError, UnknownName
from rbnn.methods._method import Method
from rbnn.methods._origin import Origin

METHODS: dict[str, type[Method]] = {}
Class = TypeVar("Class", bound=type[Method])


def register_method(name: str) -> Callable[[Class], Class]:
    """Register a Method as ``name``."""

    def register(cls: Class) -> Class:
        plugins.claim("method", name, cls, known=name in METHODS)
        METHODS[name] = cls
        return cls

    return register


def method_names() -> list[str]:
    """All methods, including those of installed packages, and ``float``, which means no binarization."""
    plugins.import_installed()
    return [*METHODS, "float"]


def method_options(name: str) -> dict[str, Any]:
    """The options of a method and their defaults."""
    check_method(name)
    if name == "float":
        return {}
    parameters = inspect.signature(METHODS[name]).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def check_method(name: str, options: dict[str, Any] | None = None) -> None:
    """Raises unless ``name`` is a method and every key of ``options`` is one of its options with the right type."""
    if name not in METHODS and name not in method_names():
        raise UnknownName("method", name, method_names())
    if not options:
        return
    known = method_options(name)
    if not known:
        raise ConfigError(f"method {name!r} has no options, got {', '.join(options)}; leave them out")
    for key, value in options.items():
        if key not in known:
            raise UnknownName("option", key, known, f"of method {name!r}")
        expected = type(known[key])
        if not isinstance(value, (int, float) if expected is float else expected) or (
            isinstance(value, bool) != (expected is bool)
        ):
            raise ConfigError(
                f"option {key!r} of method {name!r} must be of type {expected.__name__} (default {known[key]!r}), "
                f"got {value!r}"
            )


def differences(name: str, options: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Where ``options`` differ from the defaults, which are those of the method's paper: (value, default)."""
    known = method_options(name)
    return {key: (value, known[key]) for key, value in options.items() if value != known[key]}


def against_paper(name: str, options: dict[str, Any]) -> str:
    """Whether a method is used as in its paper, in words.  A user's own method is compared with its defaults."""
    if name == "float":
        return "float twin, nothing is binarized"
    found, ours = differences(name, options), METHODS[name].__module__.partition(".")[0] == "rbnn"
    source = "paper" if ours else "default"
    usual = "as in its paper" if source == "paper" else "with its defaults"
    if not found:
        return f"{name} {usual}"
    said = ", ".join(f"{key} = {_shown(here)} ({source}: {_shown(there)})" for key, (here, there) in found.items())
    return f"{name}, not {usual}: {said}"


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def create_method(name: str, weight: Tensor, **options: Any) -> Method:
    """A method for a layer whose initial weight is ``weight``."""
    check_method(name, options)
    if name == "float":
        raise ConfigError(
            "method 'float' binarizes nothing: use torch.nn's own layers, or create_model(method='float')"
        )
    made = METHODS[name](weight, **options)  # type: ignore[call-arg]
    made.origin = Origin(name, method_options(name) | options)
    return made
