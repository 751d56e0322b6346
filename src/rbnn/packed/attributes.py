"""The rules for the attributes of operations."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rbnn.packed.limits import LARGEST_BUFFER, LARGEST_CHANNELS, LARGEST_SCALE, MOST_SIDES, SMALLEST_EPS
from rbnn.packed.site import Site
from rbnn.text import quoted

ACTIVATIONS = {
    "hardtanh": 2, "relu": 0, "relu6": 0, "leaky_relu": 1, "prelu": 0, "sigmoid": 0, "hardswish": 0, "abs": 0,
    "elu": 1, "selu": 0, "gelu": 0, "gelu_tanh": 0, "silu": 0, "softplus": 2, "tanh": 0, "hardsigmoid": 0, "mish": 0,
    "exp": 0, "power": 1,
}  # fmt: skip
"""The number of parameters of each activation."""


@dataclass(frozen=True)
class Attribute:
    check: Callable[[Site, str, Any], None]
    optional: bool = False


def is_whole(value: Any, low: int, high: int) -> bool:
    """Whether it is an integer from ``low`` to ``high``."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def is_number(value: Any) -> bool:
    """Whether it is a number that float32 can represent."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 3e38


def whole_numbers(count: int, low: int, high: int) -> Callable[[Site, str, Any], None]:
    def check(site: Site, role: str, value: Any) -> None:
        listed = isinstance(value, list | tuple) and len(value) == count
        if not listed or not all(is_whole(v, low, high) for v in value):
            raise site.fail(f"{role} must be {count} whole numbers from {low} to {high}, got {quoted(value)}")

    return check


def one_of(*values: Any) -> Callable[[Site, str, Any], None]:
    def check(site: Site, role: str, value: Any) -> None:
        if not any(type(value) is type(v) and value == v for v in values):
            raise site.fail(f"{role} must be one of {', '.join(map(repr, values))}, got {quoted(value)}")

    return check


def check_activation(site: Site, role: str, value: Any) -> None:
    named = isinstance(value, list | tuple) and value and isinstance(value[0], str)
    numbers = ACTIVATIONS.get(value[0]) if named else None
    if numbers is None or len(value) != 1 + numbers or not all(map(is_number, value[1:])):
        raise site.fail(f"{role} must be a known activation with its numbers, got {quoted(value)}")
    if value[0] == "hardtanh" and value[1] > value[2]:
        raise site.fail(f"{role}: low {value[1]} is above high {value[2]}")
    if value[0] == "softplus" and not (1e-6 <= value[1] <= 1e6 and abs(value[2]) <= 700):
        raise site.fail(
            f"{role}: softplus takes beta from 1e-6 to 1e6 and a threshold within ±700, got {quoted(value)}"
        )
    if (value[0] == "prelu") != ("slope" in site.operation.tensors):
        raise site.fail("prelu, and nothing else, has a tensor slope")


def check_level(site: Site, role: str, value: Any) -> None:
    if value != "mean" and not is_number(value):
        raise site.fail(f"{role} must be a number or 'mean', got {quoted(value)}")
    others = {"scale", "shift", "level"} & set(site.operation.tensors)
    if others and (value == "mean" or "level" in others):
        raise site.fail(f"{role} {quoted(value)} cannot go with a tensor {others.pop()}")


def check_number(site: Site, role: str, value: Any) -> None:
    if not is_number(value):
        raise site.fail(f"{role} must be a finite number, got {quoted(value)}")


def check_groups(site: Site, role: str, value: Any) -> None:
    if not is_whole(value, 1, LARGEST_CHANNELS):
        raise site.fail(f"{role} must be a positive whole number, got {quoted(value)}")


def check_eps(site: Site, role: str, value: Any) -> None:
    if not is_number(value) or value < SMALLEST_EPS:
        raise site.fail(f"{role} must be a finite number, at least {SMALLEST_EPS:g}, got {quoted(value)}")


def check_scale(site: Site, role: str, value: Any) -> None:
    pair = isinstance(value, list | tuple) and len(value) == 2
    if not pair or not all(is_number(each) and 1 / LARGEST_SCALE <= each <= LARGEST_SCALE for each in value):
        raise site.fail(
            f"{role} must be two numbers from {1 / LARGEST_SCALE:g} to {LARGEST_SCALE:g}, got {quoted(value)}"
        )


def check_sides(site: Site, role: str, value: Any) -> None:
    listed = isinstance(value, list | tuple) and 1 <= len(value) <= MOST_SIDES
    if not listed or not all(is_whole(each, 1, LARGEST_BUFFER) for each in value):
        raise site.fail(
            f"{role} must be 1 to {MOST_SIDES} whole numbers from 1 to {LARGEST_BUFFER}, got {quoted(value)}"
        )


def check_places(site: Site, role: str, value: Any) -> None:
    listed = isinstance(value, list | tuple) and 1 <= len(value) <= LARGEST_CHANNELS
    if not listed or not all(is_whole(each, 0, LARGEST_CHANNELS - 1) for each in value):
        raise site.fail(
            f"{role} must be 1 to {LARGEST_CHANNELS} whole numbers from 0 to {LARGEST_CHANNELS - 1}, got "
            f"{quoted(value)}"
        )


def check_order(site: Site, role: str, value: Any) -> None:
    listed = isinstance(value, list | tuple) and all(is_whole(each, 0, MOST_SIDES - 1) for each in value)
    if not listed or sorted(value) != list(range(len(value))):
        raise site.fail(f"{role} must be the numbers from 0 in some order, got {quoted(value)}")
