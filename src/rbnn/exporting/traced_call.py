"""One call of the traced model while it is added to the draft."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rbnn.errors import ExportError
from rbnn.exporting.draft import Array, Draft, TorchValue, picture_shape
from rbnn.packed.operations import Operation, Shape

MASKED = -1e9
"""Stands for −∞ in masks, because a packed network has only finite numbers.  The softmax of both is 0."""

Handler = Callable[..., Any]
"""Takes a call and its arguments.  Returns the buffer of the result, or a list of buffers if torch returns several
tensors."""


@dataclass(frozen=True)
class Place:
    """A value of the network: its buffer, and torch's value."""

    buffer: str
    value: Tensor


@dataclass(frozen=True)
class Call:
    """Where a handler writes its operations."""

    draft: Draft
    name: str
    what: str
    """The operation, for error messages: ``nn.GELU``, ``torch.roll``."""
    where: str
    """The module."""
    line: str
    """The line of the user's code that calls a function; empty for a module, which has a name."""
    result: Any
    """The result in torch: a tensor, or several."""
    again: Callable[[Tensor], Tensor]
    """The same call on another tensor."""

    def fail(self, why: str) -> ExportError:
        line = f" ({self.line})" if self.line else ""
        return ExportError(f"{self.what} in {self.where!r}{line} cannot be packed: {why}")

    def part_giving(self, value: Tensor) -> "Call":
        """The same call, but only this one of its results counts."""
        return replace(self, result=value)

    def shape_of(self, value: Tensor) -> Shape:
        shape = picture_shape(tuple(value.shape))
        if shape is None:
            raise self.fail(f"a value of the shape {tuple(value.shape)} has no batch dimension")
        return shape

    def write(
        self,
        kind: str,
        inputs: dict[str, str],
        tensors: dict[str, Array] | None = None,
        attributes: dict[str, Any] | None = None,
        *,
        value: Tensor | None = None,
        shape: Shape | None = None,
        part: str = "",
    ) -> str:
        """Write an operation whose result is ``value``, by default the result of the call; or, with a ``shape``, a
        value that torch does not have.  ``part`` distinguishes the operations of one call."""
        operation = Operation(kind, self.name + part, inputs, {}, tensors or {}, attributes or {})
        if shape is not None:
            return self.draft.add(operation, shape)
        value = self.result if value is None else value
        if bool((value == -torch.inf).any()):  # masked values, in whose place there is MASKED
            return self.draft.add(operation, self.shape_of(value))
        return self.draft.add(operation, self.shape_of(value), TorchValue(value))

    def array(self, tensor: Tensor) -> Array:
        """Constants of the model, in double."""
        if not bool(torch.isfinite(tensor).all()):
            raise self.fail("its values are not all finite")
        result: Array = tensor.detach().double().numpy()
        return result


def without_infinities(tensor: Tensor) -> Tensor:
    """A constant mask with MASKED in place of −∞."""
    return tensor.masked_fill(tensor == -torch.inf, MASKED) if tensor.is_floating_point() else tensor


def pair(value: int | tuple[int, ...] | list[int]) -> list[int]:
    """Torch's way to write one number for both sides."""
    numbers = [int(each) for each in value] if isinstance(value, tuple | list) else [int(value)]
    return numbers * 2 if len(numbers) == 1 else numbers
