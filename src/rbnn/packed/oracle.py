"""The oracle: every operation of a packed network in NumPy, written to be obviously right.

Arrays are (images, height, width, channels); signs are ±1 in float32, bytes are uint8.  Definitions: docs/format.md.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rbnn.errors import InputError
from rbnn.packed import formulas
from rbnn.packed.formulas import activation
from rbnn.packed.graph import Graph
from rbnn.packed.operations import LARGEST_NETWORK, Operation
from rbnn.text import quoted

Array = NDArray[Any]
Inputs = dict[str, Array]


def run(graph: Graph, images: Array | Sequence[Array]) -> Any:
    """The network's output for ``images`` (N, C, H, W): an array, or one for each input."""
    buffers = run_all(graph, images)
    return graph.answered(lambda name: buffers[name].transpose(0, 3, 1, 2))


def run_all(graph: Graph, images: Array | Sequence[Array]) -> dict[str, Array]:
    """Every buffer of the network, by name, for ``images`` (N, C, H, W).  Raises InputError if a value exceeds the
    range of floats, or if all values together need too much memory."""
    arrays = [images] if isinstance(images, np.ndarray) else images
    count = len(arrays[0])
    values = count * sum(prod(buffer.shape) for buffer in graph.buffers.values())
    if values > LARGEST_NETWORK:
        raise InputError(
            f"{count} images have {values:,} values, but at most {LARGEST_NETWORK:,} fit: pass fewer images"
        )
    buffers = {
        name: each.transpose(0, 2, 3, 1).astype(np.float32) for name, each in zip(graph.inputs, arrays, strict=True)
    }
    for operation in graph.operations:
        inputs = {role: buffers[name] for role, name in operation.inputs.items()}
        declared = {role: graph.buffers[name].shape for role, name in operation.outputs.items()}
        try:
            with np.errstate(over="raise", invalid="raise", divide="raise"):
                outputs = run_operation(operation, inputs, declared, count)
        except FloatingPointError:
            where = f"operation {quoted(operation.name)} ({operation.kind})"
            raise InputError(f"{where}: its values are larger than a float holds") from None
        for role, name in operation.outputs.items():
            buffers[name] = outputs[role]
    return buffers


def run_operation(
    operation: Operation, inputs: Inputs, declared: dict[str, tuple[int, int, int]], images: int
) -> dict[str, Array]:
    """The outputs of one operation, by role."""
    kind, tensors, attributes = operation.kind, operation.tensors, operation.attributes
    if kind in _CONVOLUTIONS:
        return finish(_CONVOLUTIONS[kind](inputs["x"], tensors, attributes), inputs, tensors, attributes)
    if kind in ("pack", "max_pool_bits"):
        return {"bits": _SIGNS[kind](inputs["x"], tensors, attributes)}
    if kind == "quantize":
        return {"bytes": quantize(inputs["x"], tensors)}
    if kind == "constant":
        return {"float": np.repeat(tensors["value"][None], images, 0)}
    if kind == "reshape":
        return {"float": reshape(inputs["x"], attributes["order"], declared["float"])}
    if kind == "permute":
        return {"float": permute(inputs["x"], attributes, declared["float"])}
    if kind in _PAIRS:
        return {"float": _PAIRS[kind](inputs["a"], inputs["b"])}
    if kind == "concat":
        axis = 1 + "hwc".index(attributes.get("axis", "c"))
        return {"float": np.concatenate([inputs[f"x{i}"] for i in range(len(inputs))], axis)}
    return {"float": _FLOATS[kind](inputs["x"], tensors, attributes).astype(np.float32)}


def sign(x: Array) -> Array:
    return np.where(x > 0, np.float32(1), np.float32(-1))


def unpack(bits: Array, channels: int) -> Array:
    """Bytes of bits, lowest first, along the last axis → ±1."""
    return np.unpackbits(bits, axis=-1, count=channels, bitorder="little").astype(np.float32) * 2 - 1


def _windows(
    x: Array, attributes: dict[str, Any], fill: float, default_stride: tuple[int, int] = (1, 1)
) -> list[Array]:
    """The image that each tap of the kernel sees, (N, H', W', C), row by row."""
    (kh, kw), (sh, sw) = attributes["kernel"], attributes.get("stride", default_stride)
    (ph, pw), (dh, dw) = attributes.get("padding", (0, 0)), attributes.get("dilation", (1, 1))
    ceil = attributes.get("ceil", False)
    rows, columns = _count(x.shape[1], kh, sh, ph, dh, ceil), _count(x.shape[2], kw, sw, pw, dw, ceil)
    high, wide = (rows - 1) * sh + dh * (kh - 1) + 1, (columns - 1) * sw + dw * (kw - 1) + 1
    padded = np.pad(x, ((0, 0), (ph, high), (pw, wide), (0, 0)), constant_values=fill)
    return [
        padded[:, ky * dh :, kx * dw :][:, : (rows - 1) * sh + 1 : sh, : (columns - 1) * sw + 1 : sw]
        for ky in range(kh)
        for kx in range(kw)
    ]


def _count(side: int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool) -> int:
    """Positions of a kernel along one side."""
    rest = side + 2 * padding - dilation * (kernel - 1) - 1
    count = rest // stride + 1
    # As in torch, with rounding up the last window starts inside the image or its left padding.
    return count + (ceil and rest % stride > 0 and count * stride < side + padding)


def float_conv(x: Array, tensors: Inputs, attributes: dict[str, Any]) -> Array:
    weight, groups = tensors["weight"].astype(np.float64), attributes.get("groups", 1)
    parts = []
    for picture, filters in zip(np.split(x, groups, 3), np.split(weight, groups, 0), strict=True):
        taps = filters.reshape(len(filters), -1, filters.shape[3])
        windows = _windows(picture.astype(np.float64), attributes, 0.0)
        parts.append(sum(seen @ taps[:, tap].T for tap, seen in enumerate(windows)))
    return np.concatenate(parts, -1).astype(np.float32)


def binary_conv(x: Array, tensors: Inputs, attributes: dict[str, Any]) -> Array:
    """Integers: padded taps are 0 (or −1), so the plain sum of products is the definition."""
    groups = attributes.get("groups", 1)
    weight = unpack(tensors["weight"], x.shape[3] // groups).astype(np.int64)
    parts = []
    for picture, filters in zip(np.split(x, groups, 3), np.split(weight, groups, 0), strict=True):
        taps = filters.reshape(len(filters), -1, filters.shape[3])
        windows = _windows(picture.astype(np.int64), attributes, attributes.get("pad", 0))
        parts.append(sum(seen @ taps[:, tap].T for tap, seen in enumerate(windows)))
    return np.concatenate(parts, -1)


def int8_conv(x: Array, tensors: Inputs, attributes: dict[str, Any]) -> Array:
    """Σ w·u − Σ w·zero over the taps inside the image: the first sum in integers, the second in double."""
    taps = tensors["weight"].astype(np.int64).reshape(len(tensors["weight"]), -1, x.shape[3])
    zero = np.broadcast_to(tensors.get("zero", np.float32(0)).astype(np.float64), x.shape)
    whole = sum(seen @ taps[:, tap].T for tap, seen in enumerate(_windows(x.astype(np.int64), attributes, 0)))
    offset = sum(seen @ taps[:, tap].T for tap, seen in enumerate(_windows(zero, attributes, 0.0)))
    return np.asarray(whole, np.float32) - np.asarray(offset, np.float32)


def quantize(x: Array, tensors: Inputs) -> Array:
    """x·scale + shift, with each step rounded to float32, then to the nearest integer (ties to even)."""
    rounded: Array = np.rint(x * tensors["scale"] + tensors["shift"])
    return rounded.clip(0, 255).astype(np.uint8)


def finish(total: Array, inputs: Inputs, tensors: Inputs, attributes: dict[str, Any]) -> dict[str, Array]:
    """acc·scale + shift, + residual, activation, sign, with each step rounded to float32."""
    if "threshold" in tensors:
        return {"bits": sign(total - tensors["threshold"].astype(np.int64))}
    v = total.astype(np.float32)
    if "scale" in tensors:
        v = v * tensors["scale"]
    if "shift" in tensors:
        v = v + tensors["shift"]
    if "residual" in inputs:
        v = v + inputs["residual"]
    if "activation" in attributes:
        v = activation(v, tensors, attributes)
    level = tensors.get("level", np.float32(0))
    return {"float": v, "bits": np.where(v > level, np.float32(1), np.float32(-1))}


def pack(x: Array, tensors: Inputs, attributes: dict[str, Any]) -> Array:
    v = x * tensors["scale"] if "scale" in tensors else x
    v = v + tensors["shift"] if "shift" in tensors else v
    level: Any = tensors.get("level", attributes.get("level", 0.0))
    if isinstance(level, str):
        level = x.mean((1, 2, 3), keepdims=True, dtype=np.float64)
    return np.where(v > np.asarray(level, np.float32), np.float32(1), np.float32(-1))


def affine(x: Array, tensors: Inputs, attributes: dict[str, Any]) -> Array:
    return np.asarray(x * tensors["scale"] + tensors["shift"])


def max_pool(x: Array, tensors: Inputs, attributes: dict[str, Any]) -> Array:
    return np.asarray(np.max(_windows(x, attributes, -np.inf, attributes["kernel"]), 0))


def avg_pool(x: Array, tensors: Inputs, attributes: dict[str, Any]) -> Array:
    """``count_padding`` counts padding as pixels of 0.  What a window sees beyond the padding never counts."""
    ph, pw = attributes.get("padding", (0, 0))
    counts = np.pad(
        np.ones_like(x, np.float64), ((0, 0), (ph, ph), (pw, pw), (0, 0)),
        constant_values=float(attributes.get("count_padding", True)),
    )  # fmt: skip
    values = np.sum(_windows(x.astype(np.float64), attributes, 0.0, attributes["kernel"]), 0)
    unpadded = attributes | {"padding": (0, 0), "ceil": False}
    (kh, kw), (sh, sw) = attributes["kernel"], attributes.get("stride", attributes["kernel"])
    # The image is already padded.  Make room for windows that extend beyond it, then keep only the existing windows.
    grown = np.pad(counts, ((0, 0), (0, kh + sh), (0, kw + sw), (0, 0)))
    count = np.sum(_windows(grown, unpadded, 0.0, attributes["kernel"]), 0)
    return np.asarray(values / count[:, : values.shape[1], : values.shape[2]])


def max_pool_bits(x: Array, tensors: Inputs, attributes: dict[str, Any]) -> Array:
    """The maximum of signs; the minimum for inverted channels."""
    turn = -unpack(tensors["invert"], x.shape[3]) if "invert" in tensors else np.float32(1)
    return np.asarray(max_pool(x * turn, {}, attributes) * turn)


def adaptive_pool(x: Array, attributes: dict[str, Any], reduce: Callable[..., Any]) -> Array:
    (height, width), (rows, columns) = x.shape[1:3], attributes["size"]
    out = np.empty((len(x), rows, columns, x.shape[3]), np.float32)
    for i in range(rows):
        for j in range(columns):
            top, bottom = i * height // rows, -(-(i + 1) * height // rows)
            left, right = j * width // columns, -(-(j + 1) * width // columns)
            out[:, i, j] = reduce(x[:, top:bottom, left:right].astype(np.float64), axis=(1, 2))
    return out


def reshape(x: Array, order: str, shape: tuple[int, int, int]) -> Array:
    if order == "hwc":
        return x.reshape(len(x), *shape)
    height, width, channels = shape
    return x.transpose(0, 3, 1, 2).reshape(len(x), channels, height, width).transpose(0, 2, 3, 1)


def permute(x: Array, attributes: dict[str, Any], shape: tuple[int, int, int]) -> Array:
    """The values in memory order, taken as an array with other dimensions, whose axes are permuted."""
    apart = x.reshape(len(x), *attributes["sides"])
    return apart.transpose(0, *(1 + each for each in attributes["order"])).reshape(len(x), *shape)


def cut(x: Array, tensors: Inputs, attributes: dict[str, Any]) -> Array:
    ends = zip(attributes["start"], attributes["stop"], attributes["step"], strict=True)
    return x[:, *[slice(*each) for each in ends]]


def select(x: Array, tensors: Inputs, attributes: dict[str, Any]) -> Array:
    return np.asarray(np.take(x, attributes["places"], 1 + "hwc".index(attributes.get("axis", "c"))))


_CONVOLUTIONS = {"float_conv": float_conv, "int8_conv": int8_conv, "binary_conv": binary_conv}
_SIGNS = {"pack": pack, "max_pool_bits": max_pool_bits}
_PAIRS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "multiply": np.multiply, "divide": np.divide, "maximum": np.maximum, "minimum": np.minimum,
    "matmul": formulas.matmul,
}  # fmt: skip
_FLOATS: dict[str, Callable[[Array, Inputs, dict[str, Any]], Array]] = {
    "affine": affine,
    "activation": activation,
    "max_pool": max_pool,
    "avg_pool": avg_pool,
    "adaptive_max_pool": lambda x, tensors, attributes: adaptive_pool(x, attributes, np.max),
    "adaptive_avg_pool": lambda x, tensors, attributes: adaptive_pool(x, attributes, np.mean),
    "mean": formulas.mean,
    "reduce": formulas.reduce,
    "softmax": formulas.softmax,
    "standardize": formulas.standardize,
    "local_norm": formulas.local_norm,
    "resize": formulas.resize,
    "slice": cut,
    "select": select,
    "pad": formulas.pad,
}
