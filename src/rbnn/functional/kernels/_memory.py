"""The memory of tensors, for the kernels."""

from typing import Any

import torch
from torch import Tensor

from rbnn.functional.kernels._operators import Function


def _single(t: Tensor) -> bool:
    return t.device.type == "cpu" and t.dtype == torch.float32


def fusable(*tensors: Tensor) -> bool:
    """Whether all are dense float32 tensors on the CPU in the same memory order, with a dimension besides the batch."""
    first = tensors[0]
    return all(
        _single(t)
        and t.dim() > 1
        and t.shape == first.shape
        and t.stride() == first.stride()
        and (t.is_contiguous() or (t.dim() == 4 and t.is_contiguous(memory_format=torch.channels_last)))
        for t in tensors
    )


def channels_last(t: Tensor) -> bool:
    """Whether it is float32 images on the CPU, with the channels last in memory."""
    return _single(t) and t.dim() == 4 and t.is_contiguous(memory_format=torch.channels_last)


def run(kernel: Function, *args: Any) -> None:
    """Call a function of ``rbnn._core`` on the memory of the tensors."""
    kernel(*map(memory, args), torch.get_num_threads())


def memory(arg: Any) -> Any:
    """A capsule, which is ten times as fast as a NumPy array.  After ``.numpy()``, torch could no longer resize the
    memory of a parameter, as FSDP does between its uses."""
    return torch.to_dlpack(arg) if isinstance(arg, Tensor) else arg  # type: ignore[attr-defined]


def pictures(x: Tensor) -> Tensor:
    """``x`` with the channels last in memory, copied if it has another order."""
    return x.contiguous(memory_format=torch.channels_last)


def dense(t: Tensor | None) -> Tensor | None:
    return None if t is None else t.contiguous()


def like(grad: Tensor, x: Tensor) -> Tensor:
    """``grad`` in the memory order of ``x``."""
    return grad if grad.stride() == x.stride() else torch.empty_like(x).copy_(grad)
