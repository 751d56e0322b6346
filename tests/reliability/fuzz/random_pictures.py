"""Random operations that move, cut, join and resize images, with the sizes that follow from that of the image."""

from typing import Any

import numpy as np
from packed_networks import signs
from random_convolutions import convolved, window
from random_draft import Draft, Shape

from rbnn.packed.site import Follows, Number


def pool(draft: Draft) -> bool:
    bits = bool(draft.names("bits")) and draft.maybe()
    x = draft.one_of(draft.names("bits" if bits else "float"))
    shape = draft.shape(x)
    kind = "max_pool_bits" if bits else draft.one_of(["max_pool", "avg_pool"])
    attributes: dict[str, Any] = window(draft, shape, 5, pool=True)
    del attributes["dilation"]
    if kind == "max_pool" and draft.maybe(0.3):
        attributes["dilation"] = [1 + draft.below(3) for _ in range(2)]
        attributes["padding"] = [0, 0]  # else a window may see nothing of the image
    for role, kept in (("stride", 0.8), ("padding", 0.8)):
        if not draft.maybe(kept):
            del attributes[role]
    if draft.maybe(0.3):
        attributes["ceil"] = draft.maybe()
    if kind == "avg_pool" and draft.maybe():
        attributes["count_padding"] = draft.maybe()
    tensors = {"invert": signs(draft.rng, shape[2])} if bits and draft.maybe() else {}
    result = convolved(shape, {"stride": attributes["kernel"]} | attributes, shape[2])
    follows = {}
    if not bits and draft.maybe(0.3):
        follows = {role: _pair(draft, x, attributes[role]) for role in ("kernel", "stride") if role in attributes}
    return draft.add(kind, {"x": x}, {"bits" if bits else "float": result}, tensors, attributes, follows)


def _pair(draft: Draft, x: str, values: list[int]) -> list[Number]:
    return [draft.following(x, axis, value) for axis, value in zip("hw", values, strict=True)]


def adaptive(draft: Draft) -> bool:
    x, size = draft.one_of(draft.floats), [1 + draft.below(6), 1 + draft.below(6)]
    kind = draft.one_of(["adaptive_max_pool", "adaptive_avg_pool"])
    follows = {"size": _pair(draft, x, size)}
    return draft.add(kind, {"x": x}, {"float": (*size, draft.shape(x)[2])}, {}, {"size": size}, follows)


def resize(draft: Draft) -> bool:
    x, size = draft.one_of(draft.floats), [1 + draft.below(14), 1 + draft.below(14)]
    attributes: dict[str, Any] = {"size": size}
    attributes["mode"] = draft.one_of(["nearest", "nearest_exact", "bilinear", "bilinear", "bicubic"])
    if attributes["mode"].startswith("bi") and draft.maybe(0.4):
        attributes["align"] = draft.maybe(0.8)
    elif draft.maybe(0.3):
        attributes["scale"] = [draft.one_of([0.5, 1, 2, 3]), draft.one_of([0.5, 1, 2, 3])]
    follows = {"size": _pair(draft, x, size)}
    return draft.add("resize", {"x": x}, {"float": (*size, draft.shape(x)[2])}, {}, attributes, follows)


def permute(draft: Draft) -> bool:
    x = draft.one_of(draft.floats)
    if draft.maybe():
        return _permuted_by_axes(draft, x)
    values, sides = int(np.prod(draft.shape(x))), []
    for _ in range(1 + draft.below(7)):
        sides.append(draft.divisor(values))
        values //= sides[-1]
    sides.append(values)
    order = [int(axis) for axis in draft.rng.permutation(len(sides))]
    return draft.add("permute", {"x": x}, {"float": _any_shape(draft, x)}, {}, {"sides": sides, "order": order})


def _permuted_by_axes(draft: Draft, x: str) -> bool:
    """Each side in two parts, which change places: channel shuffles, pixel shuffles and transpositions."""
    parts = [draft.divisor(side, 4) for side in draft.shape(x)]
    sides: list[int] = []
    given: list[Number] = []
    terms: list[tuple[str, int, int]] = []  # axis, times and over of each part
    for axis, side, part in zip("hwc", draft.shape(x), parts, strict=True):
        sides += [side // part, part]
        given += [Follows(x, axis, over=part), part]
        terms += [(axis, 1, part), ("", part, 1)]
    order = [int(axis) for axis in draft.rng.permutation(len(sides))]
    first, second = sorted(draft.below(7) for _ in range(2))
    shape, shapes = [], []
    for group in (order[:first], order[first:second], order[second:]):
        axes = "".join(sorted((terms[place][0] for place in group), key="hwc".find))
        times, over = (int(np.prod([terms[place][which] for place in group])) for which in (1, 2))
        shape.append(int(np.prod([sides[place] for place in group])))
        shapes.append(Follows(x, axes, times, over) if axes else shape[-1])
    return draft.add(
        "permute", {"x": x}, {"float": (shape[0], shape[1], shape[2])}, {}, {"sides": sides, "order": order},
        {"sides": given, "shape": shapes},
    )  # fmt: skip


def _any_shape(draft: Draft, x: str) -> Shape:
    """A buffer shape with the same number of values."""
    values = int(np.prod(draft.shape(x)))
    height = draft.divisor(values)
    width = draft.divisor(values // height)
    return height, width, values // height // width


def reshape(draft: Draft) -> bool:
    """To any shape, or to one whose sides are products of those of the image."""
    x = draft.one_of(draft.floats)
    attributes = {"order": draft.one_of(["chw", "hwc"])}
    if draft.maybe(0.3):
        return draft.add("reshape", {"x": x}, {"float": _any_shape(draft, x)}, {}, attributes)
    groups = ["", "", ""]
    for axis in "hwc":
        groups[draft.below(3)] += axis
    given = [Follows(x, axes) if axes else 1 for axes in groups]
    height, width, channels = (each if isinstance(each, int) else each.value(draft.shape(x)) for each in given)
    return draft.add("reshape", {"x": x}, {"float": (height, width, channels)}, {}, attributes, {"shape": given})


def concat(draft: Draft) -> bool:
    first = draft.one_of(draft.floats)
    axis = draft.one_of(["c", "c", "h", "w"])
    at = "hwc".index(axis)

    def others(name: str) -> list[int]:
        return [side for place, side in enumerate(draft.shape(name)) if place != at]

    fits = [name for name in draft.floats if others(name) == others(first)]
    chosen = [first, *(draft.one_of(fits) for _ in range(draft.below(3)))]
    sides = list(draft.shape(first))
    sides[at] = sum(draft.shape(name)[at] for name in chosen)
    inputs = {f"x{i}": name for i, name in enumerate(chosen)}
    attributes = {} if axis == "c" and not draft.maybe() else {"axis": axis}
    return draft.add("concat", inputs, {"float": (sides[0], sides[1], sides[2])}, {}, attributes)


def cut(draft: Draft) -> bool:
    """A part that begins and ends somewhere, counted from either end."""
    x = draft.one_of(draft.floats)
    start, stop, step, shape = [], [], [], []
    for side in draft.shape(x):
        first = draft.below(side)
        last = first + 1 + draft.below(side - first)
        start.append(first)
        stop.append(last)
        step.append(1 + draft.below(3))
        shape.append(-(-(last - first) // step[-1]))
    follows: dict[str, list[Number]] = {"stop": [*_pair(draft, x, stop[:2]), stop[2]]}
    if draft.maybe(0.3):
        follows["start"] = [*_pair(draft, x, start[:2]), start[2]]
    attributes = {"start": start, "stop": stop, "step": step}
    return draft.add("slice", {"x": x}, {"float": (shape[0], shape[1], shape[2])}, {}, attributes, follows)


def select(draft: Draft) -> bool:
    """Up to nine places on a side, in any order; some of them repeat."""
    x, axis = draft.one_of(draft.floats), draft.one_of(["c", "c", "h", "w"])
    sides, at = list(draft.shape(x)), "hwc".index(axis)
    places = [draft.below(sides[at]) for _ in range(1 + draft.below(9))]
    sides[at] = len(places)
    attributes = {"places": places} | ({} if axis == "c" and draft.maybe() else {"axis": axis})
    return draft.add("select", {"x": x}, {"float": (sides[0], sides[1], sides[2])}, {}, attributes)


def pad(draft: Draft) -> bool:
    x = draft.one_of(draft.floats)
    before, after = ([draft.one_of([0, 0, 1, 2]) for _ in range(3)] for _ in range(2))
    if draft.maybe(0.4):
        return _mirrored(draft, x, before, after)
    attributes: dict[str, Any] = {"before": before, "after": after}
    if draft.maybe():
        attributes["value"] = draft.one_of([0, 0.5, -1])
    return draft.add("pad", {"x": x}, {"float": _padded(draft.shape(x), before, after)}, {}, attributes)


def _padded(shape: Shape, before: list[int], after: list[int]) -> Shape:
    height, width, channels = (b + side + a for b, side, a in zip(before, shape, after, strict=True))
    return height, width, channels


def _mirrored(draft: Draft, x: str, before: list[int], after: list[int]) -> bool:
    mode = draft.one_of(["reflect", "replicate", "circular", "constant"])
    shape = draft.shape(x)
    most = [side - (mode == "reflect") for side in shape[:2]] if mode in ("reflect", "circular") else [9, 9]
    before, after = ([*map(min, each, most), 0] for each in (before, after))
    attributes = {"before": before, "after": after, "mode": mode}
    return draft.add("pad", {"x": x}, {"float": _padded(shape, before, after)}, {}, attributes)
