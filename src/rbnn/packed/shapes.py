"""The output shape of each operation of a packed network; PackError if its inputs or attributes do not fit."""

from math import prod

from rbnn.packed.limits import LARGEST_CHANNELS, LARGEST_FLOAT_TAPS, LARGEST_INT8_TAPS, LARGEST_SIDE
from rbnn.packed.site import Shape, Site
from rbnn.text import quoted


def bytes_for(bits: int) -> int:
    return (bits + 7) // 8


def conv_shape(site: Site) -> Shape:
    shape, attributes = site.shape("x"), site.operation.attributes
    binary, groups = site.operation.kind == "binary_conv", site.get("groups", 1)
    weight = site.operation.tensors["weight"]
    if weight.ndim != 4 or not 0 < weight.shape[0] <= LARGEST_CHANNELS:
        raise site.fail(f"tensor weight has the shape {weight.shape}, expected four sides")
    channels = weight.shape[0]
    if shape[2] % groups or channels % groups:
        raise site.fail(f"{groups} groups do not divide {shape[2]} and {channels} channels")
    each = shape[2] // groups
    site.tensor_shape("weight", channels, *attributes["kernel"], bytes_for(each) if binary else each)
    if binary:
        site.tail_bits("weight", each)
    if site.operation.kind == "int8_conv":
        site.tensor_shape("zero", shape[2])
        if weight[0].size > LARGEST_INT8_TAPS:
            raise site.fail(f"{weight[0].size} taps, at most {LARGEST_INT8_TAPS} can be added up in whole numbers")
    if groups > 1 and "threshold" in site.operation.tensors and 8 * weight[0].size > LARGEST_FLOAT_TAPS:
        raise site.fail(f"a threshold with groups takes at most {LARGEST_FLOAT_TAPS} taps, got {8 * weight[0].size}")
    for role in ("scale", "shift", "slope", "level", "threshold"):
        site.tensor_shape(role, channels)
    if "slope" in site.operation.tensors and "activation" not in attributes:
        raise site.fail("prelu, and nothing else, has a tensor slope")
    if "level" in site.operation.tensors and "bits" not in site.operation.outputs:
        raise site.fail("a level without bits to write")
    if "threshold" in site.operation.tensors and (
        set(site.operation.tensors) != {"weight", "threshold"}
        or set(site.operation.outputs) != {"bits"}
        or "residual" in site.operation.inputs
        or "activation" in attributes
    ):
        raise site.fail("a threshold replaces the whole finish and writes only bits")
    result = (*site.window(shape), channels)
    if "residual" in site.operation.inputs and site.shape("residual") != result:
        raise site.fail(f"residual has the shape {site.shape('residual')}, expected {result}")
    return result


def same_shape(site: Site) -> Shape:
    shape = site.shape("x")
    for role in ("scale", "shift", "slope", "level"):
        site.tensor_shape(role, shape[2])
    return shape


def pool_shape(site: Site) -> Shape:
    shape = site.shape("x")
    if "invert" in site.operation.tensors:
        site.tensor_shape("invert", bytes_for(shape[2]))
        site.tail_bits("invert", shape[2])
    return (*site.window(shape, pool=True), shape[2])


def adaptive_shape(site: Site) -> Shape:
    height, width = site.operation.attributes["size"]
    return height, width, site.shape("x")[2]


def reduced_shape(site: Site) -> Shape:
    over, (height, width, channels) = site.operation.attributes["over"], site.shape("x")
    return 1 if "h" in over else height, 1 if "w" in over else width, 1 if "c" in over else channels


def broadcast_shape(site: Site) -> Shape:
    a, b = site.shape("a"), site.shape("b")
    if any(x != y and 1 not in (x, y) for x, y in zip(a, b, strict=True)):
        raise site.fail(f"shapes {a} and {b} do not fit together")
    return max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2])


def concat_shape(site: Site) -> Shape:
    shapes, axis = [site.shape(role) for role in site.operation.inputs], "hwc".index(site.get("axis", "c"))
    if len({(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}) != 1:
        raise site.fail(f"images of different sizes: {quoted(shapes)}")
    sides = list(shapes[0])
    sides[axis] = sum(shape[axis] for shape in shapes)
    return sides[0], sides[1], sides[2]


def reshape_shape(site: Site) -> Shape:
    before, after = site.shape("x"), site.shape("float", "outputs")
    if prod(before) != prod(after):
        raise site.fail(f"{before} cannot become {after}")
    return after


def slice_shape(site: Site) -> Shape:
    attributes = site.operation.attributes
    sides = []
    for side, start, stop, step in zip(
        site.shape("x"), attributes["start"], attributes["stop"], attributes["step"], strict=True
    ):
        if not start < stop <= side:
            raise site.fail(f"slice {start}:{stop} is empty or leaves 0:{side}")
        sides.append((stop - start + step - 1) // step)
    return sides[0], sides[1], sides[2]


def select_shape(site: Site) -> Shape:
    sides, axis = list(site.shape("x")), "hwc".index(site.get("axis", "c"))
    places = site.operation.attributes["places"]
    if max(places) >= sides[axis]:
        raise site.fail(f"there is no place {max(places)} on a side of {sides[axis]}")
    sides[axis] = len(places)
    return sides[0], sides[1], sides[2]


def pad_shape(site: Site) -> Shape:
    before, after = site.operation.attributes["before"], site.operation.attributes["after"]
    height, width, channels = site.shape("x")
    mode = site.get("mode", "constant")
    if mode != "constant":
        if before[2] or after[2] or "value" in site.operation.attributes:
            raise site.fail(f"{mode} pads only height and width, and takes no value")
        most = {"reflect": -1, "circular": 0, "replicate": LARGEST_SIDE}[mode]
        for side, *both in zip((height, width), before, after, strict=False):
            if max(both) > side + most:
                raise site.fail(f"{mode} cannot pad a side of {side} by {max(both)}")
    return before[0] + height + after[0], before[1] + width + after[1], before[2] + channels + after[2]


def constant_shape(site: Site) -> Shape:
    shape = site.shape("float", "outputs")
    site.tensor_shape("value", *shape)
    return shape


def permute_shape(site: Site) -> Shape:
    sides, order = site.operation.attributes["sides"], site.operation.attributes["order"]
    if len(sides) != len(order) or prod(sides) != prod(site.shape("x")):
        raise site.fail(f"sides {quoted(sides)} in the order {quoted(order)} are not those of {site.shape('x')}")
    return reshape_shape(site)


def resize_shape(site: Site) -> Shape:
    bent = site.operation.attributes["mode"] in ("bilinear", "bicubic")
    if site.get("align", False) and (not bent or "scale" in site.operation.attributes):
        raise site.fail("corners can be aligned only in the modes bilinear and bicubic, without a scale")
    return adaptive_shape(site)


def standardize_shape(site: Site) -> Shape:
    shape, groups = site.shape("x"), site.get("groups", 1)
    if groups > 1 and site.operation.attributes["over"] != "hwc":
        raise site.fail("groups of channels are taken over hwc")
    if shape[2] % groups:
        raise site.fail(f"{groups} groups do not divide {shape[2]} channels")
    return shape


def matmul_shape(site: Site) -> Shape:
    a, b = site.shape("a"), site.shape("b")
    if a[1] != b[0] or a[2] != b[2]:
        raise site.fail(f"matrices {a} and {b} do not fit together")
    return a[0], b[1], a[2]
