"""What a network is called with while it is exported: one tensor, or several arguments that have names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor, nn

from rbnn.errors import ExportError

Example = Tensor | Sequence[Tensor] | Mapping[str, Tensor]
"""The tensor that a network takes; of several those that it takes in this order, or by their names."""


@dataclass(frozen=True)
class Examples:
    """Arguments of a forward pass: floats on the CPU, at least two pictures each."""

    tensors: list[Tensor]
    names: list[str]
    """Of each; empty where there is one alone that came without."""
    by_name: bool = False
    """Whether the call has keywords."""

    @classmethod
    def of(cls, model: nn.Module, example: Example) -> "Examples":
        """ExportError unless every tensor is one that a packed network can take."""
        if isinstance(example, Mapping):
            return cls([_pictures(each) for each in example.values()], list(map(str, example)), True)._checked()
        if isinstance(example, tuple | list):
            return cls([_pictures(each) for each in example], _arguments(model, len(example)))._checked()
        return cls([_pictures(example)], [])

    @property
    def stored(self) -> list[str]:
        """The names that go into the file: those of several."""
        return self.names if len(self.tensors) > 1 else []

    @property
    def first(self) -> Tensor:
        return self.tensors[0]

    def with_first(self, tensor: Tensor) -> "Examples":
        return replace(self, tensors=[tensor, *self.tensors[1:]])

    def __call__(self, model: nn.Module) -> Any:
        """The model's answer."""
        if self.by_name:
            return model(**dict(zip(self.names, self.tensors, strict=True)))
        return model(*self.tensors)

    def __str__(self) -> str:
        return " and ".join(str(tuple(each.shape)) for each in self.tensors)

    def _checked(self) -> "Examples":
        if len({len(each) for each in self.tensors}) != 1:
            raise ExportError(f"example_input must have equal batch sizes for all arguments, got {str(self) or 'none'}")
        return self


def _arguments(model: nn.Module, count: int) -> list[str]:
    """The names of the first arguments of a forward; ``input0``, ``input1`` where it takes any number."""
    known = signature(getattr(model, "_orig_mod", model).forward).parameters.values()
    names = [each.name for each in known if each.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
    return names[:count] if len(names) >= count else [f"input{index}" for index in range(count)]


def _pictures(example: Any) -> Tensor:
    """At least two different pictures: with one alone, a network that mixes pictures would not be noticed."""
    if not isinstance(example, Tensor) or example.dim() not in (2, 3, 4) or 0 in example.shape:
        shape = tuple(example.shape) if isinstance(example, Tensor) else type(example).__name__
        raise ExportError(
            f"example_input must be pictures (N, C, H, W), signals (N, C, L) or vectors (N, C), got {shape}"
        )
    if not bool(torch.isfinite(example).all()):
        raise ExportError("example_input contains NaN or infinite values")
    images = example.detach().to("cpu", torch.float32)
    return images.contiguous() if len(images) > 1 else torch.cat([images, images.flip(-1) * 0.75])
