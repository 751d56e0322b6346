"""The arguments of a network during export: one tensor, or several named arguments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor, nn

from rbnn.errors import ExportError

Example = Tensor | Sequence[Tensor] | Mapping[str, Tensor]
"""One tensor, several in the order of the arguments, or several by name."""


@dataclass(frozen=True)
class Examples:
    """Arguments of a forward pass: floats on the CPU, at least two images each."""

    tensors: list[Tensor]
    names: list[str]
    """The names of the arguments; empty if there is a single tensor without a name."""
    by_name: bool = False
    """Whether the arguments are passed as keywords."""
    given: "Examples | None" = None
    """The same as the caller passed them, perhaps a single image."""

    @classmethod
    def of(cls, model: nn.Module, example: Example) -> "Examples":
        """Raise an ExportError unless a packed network can take every tensor."""
        if isinstance(example, Mapping):
            given = cls([_floats(each) for each in example.values()], list(map(str, example)), True)
        elif isinstance(example, tuple | list):
            given = cls([_floats(each) for each in example], _arguments(model, len(example)))
        else:
            given = cls([_floats(example)], [])
        return given._repeated()._checked()

    @property
    def stored(self) -> list[str]:
        """The names that are stored in the file, if there are several arguments."""
        return self.names if len(self.tensors) > 1 else []

    @property
    def first(self) -> Tensor:
        return self.tensors[0]

    def with_first(self, tensor: Tensor) -> "Examples":
        return replace(self, tensors=[tensor, *self.tensors[1:]])

    def __call__(self, model: nn.Module) -> Any:
        """The output of the model."""
        if self.by_name:
            return model(**dict(zip(self.names, self.tensors, strict=True)))
        return model(*self.tensors)

    def in_a_batch(self) -> "Examples | None":
        """The caller's arguments as one image each, if they can be: for callers who forgot the batch dimension."""
        if self.given is None or any(each.dim() > 3 for each in self.given.tensors):
            return None
        return replace(self.given, tensors=[each.unsqueeze(0) for each in self.given.tensors])._repeated()

    def _repeated(self) -> "Examples":
        """At least two different images: with a single one, a network that mixes images would not be noticed."""
        two = [each if len(each) > 1 else torch.cat([each, each.flip(-1) * 0.75]) for each in self.tensors]
        return replace(self, tensors=two, given=self)

    def __str__(self) -> str:
        return " and ".join(str(tuple(each.shape)) for each in self.tensors)

    def _checked(self) -> "Examples":
        if len({len(each) for each in self.tensors}) != 1:
            raise ExportError(f"example_input must have equal batch sizes for all arguments, got {str(self) or 'none'}")
        return self


def _arguments(model: nn.Module, count: int) -> list[str]:
    """The names of the first arguments of ``forward``; ``input0``, ``input1`` if it takes any number of them."""
    known = signature(getattr(model, "_orig_mod", model).forward).parameters.values()
    names = [each.name for each in known if each.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
    return names[:count] if len(names) >= count else [f"input{index}" for index in range(count)]


def _floats(example: Any) -> Tensor:
    if not isinstance(example, Tensor) or example.dim() not in (2, 3, 4) or 0 in example.shape:
        if not isinstance(example, Tensor):
            raise ExportError(
                f"example_input must be a torch tensor such as torch.randn(1, 3, 32, 32), got {type(example).__name__}"
            )
        raise ExportError(
            "example_input must be images (N, C, H, W), signals (N, C, L) or vectors (N, C), with N and all sizes at "
            f"least 1, got {tuple(example.shape)}"
        )
    if not bool(torch.isfinite(example).all()):
        raise ExportError("example_input contains NaN or infinite values")
    return example.detach().to("cpu", torch.float32).contiguous()
