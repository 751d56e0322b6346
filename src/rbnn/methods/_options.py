"""Checks of option values; types are checked by the registry."""

from collections.abc import Iterable

from rbnn.errors import ConfigError
from rbnn.functional import ESTIMATORS


def one_of(method: str, option: str, value: object, known: Iterable[object]) -> None:
    """Raises unless ``value`` is one of ``known``."""
    known = list(known)
    if value not in known:
        raise ConfigError(
            f"option {option!r} of method {method!r} must be one of {', '.join(map(str, known))}, got {value!r}"
        )


def estimators(method: str, **names: str) -> None:
    """Raises unless each option names an estimator."""
    for option, name in names.items():
        one_of(method, option, name, ESTIMATORS)


def between(method: str, option: str, value: float, low: float, high: float) -> None:
    """Raises unless ``low ≤ value ≤ high``."""
    if not low <= value <= high:
        raise ConfigError(f"option {option!r} of method {method!r} must be between {low:g} and {high:g}, got {value:g}")
