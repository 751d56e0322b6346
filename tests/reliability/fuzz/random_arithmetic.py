"""Random operations on all values of an image or on those of two: sums, norms, products."""

from typing import Any

from random_draft import Draft, Shape

OVER = ("h", "w", "c", "hw", "hc", "wc", "hwc")


def _reduced(shape: Shape, over: str) -> Shape:
    height, width, channels = (1 if axis in over else side for axis, side in zip("hwc", shape, strict=True))
    return height, width, channels


def mean(draft: Draft) -> bool:
    x, over = draft.one_of(draft.floats), draft.one_of(["hw", "c", *OVER])
    return draft.add("mean", {"x": x}, {"float": _reduced(draft.shape(x), over)}, {}, {"over": over})


def reduce(draft: Draft) -> bool:
    x, over, how = draft.one_of(draft.floats), draft.one_of(OVER), draft.one_of(["sum", "max", "min"])
    return draft.add("reduce", {"x": x}, {"float": _reduced(draft.shape(x), over)}, {}, {"over": over, "how": how})


def normalise(draft: Draft) -> bool:
    x, kind = draft.one_of(draft.floats), draft.one_of(["softmax", "standardize", "local_norm"])
    shape = draft.shape(x)
    attributes: dict[str, Any] = {"over": draft.one_of(OVER)}
    if kind == "softmax" and draft.maybe():
        attributes["log"] = draft.maybe()
    if kind == "standardize":
        attributes["eps"] = draft.one_of([1e-5, 0.5])
        if attributes["over"] == "hwc" or draft.maybe():
            attributes |= {"over": "hwc", "groups": draft.divisor(shape[2], shape[2])}
    if kind == "local_norm":
        attributes = {"window": 1 + draft.below(6), "alpha": draft.one_of([0.5, 1]), "beta": draft.one_of([0.5, 1, 2])}
        attributes["k"] = draft.one_of([1, 2])
    return draft.add(kind, {"x": x}, {"float": shape}, {}, attributes)


def matmul(draft: Draft) -> bool:
    """Multiply two buffers, or a buffer and its own permutation if no other fits."""
    a = draft.one_of(draft.floats)
    height, width, channels = draft.shape(a)
    fits = [b for b in draft.floats if draft.shape(b)[0] == width and draft.shape(b)[2] == channels]
    if not fits:
        attributes = {"sides": [height, width, channels], "order": [1, 0, 2]}
        if not draft.add("permute", {"x": a}, {"float": (width, height, channels)}, {}, attributes):
            return False
        fits = [draft.floats[-1]]
    b = draft.one_of(fits)
    return draft.add("matmul", {"a": a, "b": b}, {"float": (height, draft.shape(b)[1], channels)})


def pair(draft: Draft) -> bool:
    a = draft.one_of(draft.floats)
    fits = [
        b
        for b in draft.floats
        if all(p == q or 1 in (p, q) for p, q in zip(draft.shape(a), draft.shape(b), strict=True))
    ]
    b = draft.one_of(fits)
    left, right = (a, b) if draft.maybe() else (b, a)
    p, q = draft.shape(a), draft.shape(b)
    kind = draft.one_of(["add", "multiply", "divide", "maximum", "minimum"])
    return draft.add(kind, {"a": left, "b": right}, {"float": (max(p[0], q[0]), max(p[1], q[1]), max(p[2], q[2]))})


def constant(draft: Draft) -> bool:
    shape = draft.shape(draft.one_of(draft.floats))
    return draft.add("constant", {}, {"float": shape}, {"value": draft.numbers(*shape)})
