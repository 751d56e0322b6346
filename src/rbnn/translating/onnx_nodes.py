"""The primitives of a translation as ONNX nodes, in standard operators (opset 18) and in QONNX."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from rbnn.packed.formulas import CUBIC
from rbnn.packed.graph import unused
from rbnn.translating.builder import Array, Filters, Window
from rbnn.translating.onnx_activations import activation

IMAGE = "image"
QONNX = "qonnx.custom_op.general"
"""The domain of `BipolarQuant`."""
LONGEST_IN_ORDER = 128
"""The number of products that ONNX Runtime adds one after the other; it splits longer sums into parts."""
END = 1 << 31
"""The end of a slice that includes the last value."""
PAIRWISE = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "maximum": "Max", "minimum": "Min",
    "matmul": "MatMul",
}  # fmt: skip
LOWEST = float(np.finfo(np.float32).min)


class Nodes:
    """A builder whose values are the names of ONNX values.  ``answers`` are the final names of outputs."""

    def __init__(self, answers: Iterable[str], engine_order: bool = False) -> None:
        self.engine_order = engine_order
        self.layer = ""
        self.nodes: list[Any] = []
        self.tensors: dict[tuple[str, tuple[int, ...], bytes], Any] = {}
        """Each array once, even if it has several users."""
        self.names = set(answers)
        self.renamed: dict[str, str] = {}
        """Value → the output that it is."""
        self.signs: dict[tuple[str, tuple[int, ...]], str] = {}
        """Unpacked weights."""
        self.vectors: dict[str, str] = {}
        """(N, O, 1, 1) → the value that it was made from, (N, O)."""
        self.pictures: dict[str, str] = {}
        """The same image for each image of the batch → that image."""
        self.batches = {IMAGE}
        """All other values."""
        self.padded: set[str] = set()
        """The results of padding."""

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        value = self.new(f"v{len(self.nodes)}")
        name = self.new(f"{self.layer}/{kind}")
        self.nodes.append(helper.make_node(kind, list(inputs), [value], name, **attributes))
        self.batches |= {value} if self.batches & set(inputs) else set()
        return value

    def new(self, name: str) -> str:
        """The name, with a number appended if it is taken."""
        name = unused(name, self.names)
        self.names.add(name)
        return name

    def constant(self, array: Array, role: str = "constant") -> str:
        array = np.ascontiguousarray(array)
        key = str(array.dtype), array.shape, array.tobytes()
        if key not in self.tensors:
            self.tensors[key] = numpy_helper.from_array(array, self.new(f"{self.layer}.{role}"))
        return str(self.tensors[key].name)

    def whole(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64), "numbers")

    def number(self, value: float) -> str:
        return self.constant(np.array(value, np.float32), "number")

    def flat(self, x: str) -> str:
        return self.vectors.get(x) or self.node("Flatten", x, axis=1)

    def end(self, answers: dict[str, str]) -> None:
        """Name the values that are outputs, and drop what they do not need."""
        made = {name for node in self.nodes for name in node.output}
        self.layer = "answers"
        for name, value in answers.items():
            free = value in made and value not in self.renamed
            self.renamed[value if free else self.node("Identity", value)] = name
        needed, kept = set(self.renamed), []
        for node in reversed(self.nodes):
            if needed & set(node.output):
                needed |= set(node.input)
                kept.append(node)
                for names in (node.input, node.output):
                    names[:] = map(self.called, names)
        self.nodes = kept[::-1]
        self.tensors = {key: tensor for key, tensor in self.tensors.items() if tensor.name in needed}

    def called(self, value: str) -> str:
        """The final name of a value."""
        return self.renamed.get(value, value)

    def picture(self, array: Array) -> str:
        """Identical rows are stored once, and so are identical columns."""
        places = []
        for axis in (2, 3):
            lines = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)
            _, first, which = np.unique(lines, axis=0, return_index=True, return_inverse=True)
            array = np.take(array, first, axis)
            places.append((axis, which.reshape(-1)))
        whole = self.constant(array, "border")
        for axis, which in places:
            whole = self.node("Gather", whole, self.constant(which.astype(np.int32), "places"), axis=axis)
        return whole

    def repeat(self, picture: Array) -> str:
        batch = self.node("Shape", IMAGE, start=0, end=1)
        alone = self.constant(picture)
        repeated = self.node("Expand", alone, self.node("Concat", batch, self.whole(1, 1, 1), axis=0))
        self.pictures[repeated] = alone
        self.batches.remove(repeated)
        return repeated

    def filters(self, filters: Filters) -> str:
        """int8 weights are stored as they are."""
        if filters.values.dtype != np.int8:
            return self.constant(filters.numbers, "weight")
        numbers = self.node("Cast", self.constant(filters.values, "weight"), to=TensorProto.FLOAT)
        if filters.scale is None:
            return numbers
        return self.node("Mul", numbers, self.constant(filters.scale.reshape(-1, 1, 1, 1), "scale"))

    def conv(self, x: str, filters: Filters, bias: Array | None, window: Window, groups: int) -> str:
        if self.engine_order and groups == 1 and filters.values[0].size <= LONGEST_IN_ORDER:
            return self.conv_in_order(x, filters, bias, window)
        more = [] if bias is None else [self.constant(bias, "bias")]
        return self.node("Conv", x, self.filters(filters), *more, group=groups, **_window(window, dilated=True))

    def conv_in_order(self, x: str, filters: Filters, bias: Array | None, window: Window) -> str:
        """Tap after tap, with the channels of each tap one after the other, then scale and bias.  This gives the sums
        of our engine to the last bit, if both have fused multiply-adds.  In a convolution, ONNX Runtime takes channel
        after channel."""
        if any(window.padding):
            x = self.pad(x, (0, *window.padding), (0, *window.padding), 0.0)
        height, width = window.kernel
        seen = [self.tap(x, window, row, column) for row in range(height) for column in range(width)]
        columns = self.concat(seen, 1) if len(seen) > 1 else seen[0]
        weight = filters.values.transpose(0, 2, 3, 1).reshape(len(filters.values), -1, 1, 1)
        y = self.node("Conv", columns, self.filters(Filters(weight)), kernel_shape=[1, 1])
        for kind, numbers in (("Mul", filters.scale), ("Add", bias)):
            if numbers is not None:
                y = self.node(kind, self.constant(numbers.reshape(1, -1, 1, 1)), y)
        return y

    def tap(self, x: str, window: Window, row: int, column: int) -> str:
        """The input of one tap of a kernel."""
        if window.kernel == window.stride == (1, 1):
            return x
        places = list(zip((row, column), window.kernel, window.dilation, strict=True))
        start = [place * dilation for place, _, dilation in places]
        stop = [-(kernel - 1 - place) * dilation or END for place, kernel, dilation in places]
        return self.node("Slice", x, *(self.whole(*each) for each in (start, stop, (2, 3), window.stride)))

    def linear(self, x: str, filters: Filters, bias: Array | None) -> str:
        more = [] if bias is None else [self.constant(bias, "bias")]
        if filters.values.dtype == np.int8:
            weight = self.node("Flatten", self.filters(filters), axis=1)
        else:
            weight = self.constant(filters.numbers[:, :, 0, 0], "weight")
        answer = self.node("Gemm", self.flat(x), weight, *more, transB=1)
        picture = self.node("Unsqueeze", answer, self.whole(2, 3))
        self.vectors[picture] = answer
        return picture

    def pairwise(self, how: str, a: str, b: str) -> str:
        """A single image is broadcast to the batch and need not be repeated."""
        if b in self.pictures and a in self.batches:
            b = self.pictures[b]
        elif a in self.pictures and b in self.batches:
            a = self.pictures[a]
        return self.node(PAIRWISE[how], a, b)

    def activation(self, x: str, name: str, numbers: Sequence[float], slope: Array | None) -> str:
        return activation(self, x, name, numbers, slope)

    def softmax(self, x: str, axis: int, log: bool) -> str:
        return self.node("LogSoftmax" if log else "Softmax", x, axis=axis)

    def standardize(self, x: str, axes: tuple[int, ...], eps: float) -> str:
        """For nearly equal values, float32 leaves a part of the mean, which a second pass removes.
        (`LayerNormalization` of ONNX Runtime subtracts the square of the mean from the mean of the squares.)"""
        over = self.whole(*axes)
        for _ in range(2):
            x = self.node("Sub", x, self.node("ReduceMean", x, over, keepdims=1))
        variance = self.node("ReduceMean", self.node("Mul", x, x), over, keepdims=1)
        return self.node("Div", x, self.node("Sqrt", self.node("Add", variance, self.number(eps))))

    def local_norm(self, x: str, window: int, alpha: float, beta: float, k: float) -> str:
        return self.node("LRN", x, size=window, alpha=alpha, beta=beta, bias=k)

    def max_pool(self, x: str, window: Window) -> str:
        if any(end >= kernel for end, kernel in zip(window.end, window.kernel, strict=True)):
            # For a dilated pool, this is more than ONNX Runtime allows.
            x = self.pad(x, (0, *window.padding), (0, *window.end), LOWEST)
            window = replace(window, padding=(0, 0), end=(0, 0))
        return self.node("MaxPool", self.unmerged(x), **_window(window, dilated=True))

    def unmerged(self, x: str) -> str:
        """For a pool: ONNX Runtime merges it with a padding before it.  Zeros then no longer count in a maximum, and it
        refuses a padding as large as the kernel."""
        return self.node("Max", x, self.number(LOWEST)) if x in self.padded else x

    def avg_pool(self, x: str, window: Window, count_padding: bool) -> str:
        """What a window sees beyond the padding never counts."""
        beyond = window.end[0] - window.padding[0], window.end[1] - window.padding[1]
        if count_padding and any(beyond):
            margins = 0, *window.padding
            x, count_padding = self.pad(x, margins, margins, 0.0), False
            window = replace(window, padding=(0, 0), end=beyond)
        return self.node(
            "AveragePool", self.unmerged(x), count_include_pad=int(count_padding), **_window(window, dilated=False)
        )

    def reduce(self, x: str, how: str, axes: tuple[int, ...]) -> str:
        if axes == (2, 3) and how in ("mean", "max"):
            return self.node("GlobalAveragePool" if how == "mean" else "GlobalMaxPool", x)
        if axes == (1, 2, 3) and how == "mean":  # it is the threshold of signs, so it must be exact to the last digit
            double = self.node("Cast", x, to=TensorProto.DOUBLE)
            mean = self.node("ReduceMean", double, self.whole(*axes), keepdims=1)
            return self.node("Cast", mean, to=TensorProto.FLOAT)
        return self.node(f"Reduce{how.capitalize()}", x, self.whole(*axes), keepdims=1)

    def concat(self, values: Sequence[str], axis: int) -> str:
        return self.node("Concat", *values, axis=axis)

    def reshape(self, x: str, shape: tuple[int, ...]) -> str:
        return self.node("Reshape", x, self.whole(0, *shape))  # 0 keeps the batch size

    def transpose(self, x: str, axes: tuple[int, ...]) -> str:
        return self.node("Transpose", x, perm=list(axes))

    def slice(self, x: str, start: Sequence[int], stop: Sequence[int], step: Sequence[int]) -> str:
        axes = self.whole(1, 2, 3)
        return self.node("Slice", x, self.whole(*start), self.whole(*stop), axes, self.whole(*step))

    def gather(self, x: str, places: Array, axis: int) -> str:
        return self.node("Gather", x, self.constant(places.astype(np.int32), "places"), axis=axis)

    def resize(self, x: str, size: tuple[int, int], mode: str, align: bool, scale: tuple[float, float] | None) -> str:
        ways: dict[str, dict[str, Any]] = {
            "nearest": {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
            "bilinear": {"mode": "linear"},
            "bicubic": {"mode": "cubic", "cubic_coeff_a": CUBIC},
        }
        how = ways[mode]
        if align:
            how["coordinate_transformation_mode"] = "align_corners"
        if scale is not None:
            return self.node("Resize", x, "", self.constant(np.array(scale, np.float32), "scale"), axes=[2, 3], **how)
        return self.node("Resize", x, "", "", self.whole(*size), axes=[2, 3], **how)

    def pad(self, x: str, before: Sequence[int], after: Sequence[int], value: float) -> str:
        y = self.node("Pad", x, self.whole(0, *before, 0, *after), self.number(value))
        self.padded.add(y)
        return y

    def border(self, x: str, before: Sequence[int], after: Sequence[int], mode: str) -> str:
        how = {"reflect": "reflect", "replicate": "edge"}[mode]
        return self.node("Pad", x, self.whole(0, *before, 0, *after), mode=how)

    def round_to_bytes(self, x: str) -> str:
        return self.node("Clip", self.node("Round", x), self.number(0), self.number(255))

    def binarize(self, x: str, level: Array) -> str:
        """Numbers −1 and 1: ONNX has no bits.  `Sign` would give 0 at 0."""
        above = self.node("Greater", x, self.constant(_level(level), "level"))
        return self.node("Where", above, self.number(1), self.number(-1))

    def binary_conv(self, x: str, weight: Array, window: Window, pad: int, groups: int) -> str:
        if pad:
            margins = 0, *window.padding
            x, window = self.pad(x, margins, margins, pad), replace(window, padding=(0, 0), end=(0, 0))
        how: dict[str, Any] = _window(window, dilated=True) | ({"group": groups} if groups > 1 else {})
        return self.node("Conv", x, self.sign_weights(weight), **how)

    def sign_weights(self, weight: Array) -> str:
        """Eight signs per byte, the first in the lowest bit, in the order of the weights."""
        bits = np.packbits(weight.reshape(-1) > 0, bitorder="little").reshape(-1, 1)
        stored = self.constant(bits, "bits")
        key = stored, weight.shape
        if key not in self.signs:
            places = self.constant(np.arange(8, dtype=np.uint8), "places")
            shifted = self.node("BitShift", stored, places, direction="RIGHT")
            single = self.node("BitwiseAnd", shifted, self.constant(np.ones(1, np.uint8), "one"))
            signs = self.node(
                "Where", self.node("Cast", single, to=TensorProto.BOOL), self.number(1), self.number(-1)
            )  # fmt: skip
            if weight.size % 8:
                signs = self.node("Reshape", signs, self.whole(-1))
                signs = self.node("Slice", signs, self.whole(0), self.whole(weight.size))
            self.signs[key] = self.node("Reshape", signs, self.whole(*weight.shape))
        return self.signs[key]


class Bipolar(Nodes):
    """The primitives in QONNX: `BipolarQuant` is 1 if x ≥ 0, otherwise −1."""

    def bipolar(self, x: str) -> str:
        return self.node("BipolarQuant", x, self.number(1), domain=QONNX)

    def binarize(self, x: str, level: Array) -> str:
        """−1 if level − x ≥ 0, otherwise 1.  (The difference of two floats is 0 only if they are equal.)"""
        level = _level(level)
        turned = self.node("Sub", self.constant(level, "level"), x) if level.any() else self.node("Neg", x)
        return self.node("Neg", self.bipolar(turned))

    def sign_weights(self, weight: Array) -> str:
        stored = self.constant(np.where(weight > 0, np.float32(1), np.float32(-1)), "weight")
        key = stored, weight.shape
        if key not in self.signs:
            self.signs[key] = self.bipolar(stored)
        return self.signs[key]


def _level(level: Array) -> Array:
    """A single number if that is enough."""
    return level.reshape(-1)[:1] if (level == level.reshape(-1)[0]).all() else level


def _window(window: Window, *, dilated: bool) -> dict[str, list[int]]:
    given = {
        "kernel_shape": list(window.kernel),
        "strides": list(window.stride),
        "pads": [*window.padding, *window.end],
    }
    return given | {"dilations": list(window.dilation)} if dilated else given
