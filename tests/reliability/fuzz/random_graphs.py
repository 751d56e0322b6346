"""Random valid networks: any operations on any existing buffers, with sizes that are awkward for kernels."""

from dataclasses import replace
from math import prod

import numpy as np
from random_arithmetic import constant, matmul, mean, normalise, pair, reduce
from random_convolutions import activation, affine, convolution, pack, quantize, transposed
from random_draft import MOST_OPERATIONS, Draft
from random_pictures import adaptive, concat, cut, pad, permute, pool, reshape, resize, select

from rbnn.errors import PackError
from rbnn.packed.graph import Answer, Graph, Input, answer_buffers
from rbnn.packed.site import Follows, Number
from rbnn.packed.sizes import Free

MAKERS = [
    convolution, convolution, convolution, pack, pack, quantize, affine, activation, pool, adaptive, mean, pair, concat,
    reshape, cut, pad, constant, reduce, normalise, permute, resize, matmul, pair, transposed,
    select,
]  # fmt: skip
STEPS = [(1, 1), (1, 1), (1, 1), (2, 1), (0, 1), (3, 0), (2, 2)]


def random_graph(rng: np.random.Generator, inputs: int = 1) -> Graph:
    """A valid graph with one size of images."""
    graph = _random(rng, inputs)
    operations = [replace(operation, follows={}) for operation in graph.operations]
    graph = replace(graph, operations=operations, free=None)
    graph.check()
    return graph


def random_free_graph(rng: np.random.Generator) -> Graph:
    """A valid graph whose images have free sizes.  What its operations make of another size follows in some way; that
    may be impossible."""
    graph = _random(rng, 1)
    graph.check()
    return graph


def at_another_size(graph: Graph, rng: np.random.Generator) -> Graph | None:
    """The graph at another size that it takes; None if a few tries find no such size."""
    assert graph.free is not None
    height, width, _ = graph.buffers[graph.input.buffer].shape
    for _ in range(4):
        high, wide = (int(rng.integers(-3, 9)) * step for step in graph.free.steps)
        try:
            return graph.at(max(height + high, 1), max(width + wide, 1)) if high or wide else None
        except PackError:
            continue
    return None


def _random(rng: np.random.Generator, inputs: int) -> Graph:
    draft = Draft(rng, inputs)
    if inputs == 1 and draft.maybe(0.1) and quantize(draft):  # a session then takes images of bytes
        draft.hidden = {"image"}
        convolution(draft)
    for _ in range(int(rng.integers(1, MOST_OPERATIONS - 1))):
        if draft.floats:
            draft.one_of(MAKERS)(draft)
        else:
            convolution(draft)
    if not draft.answers:  # only signs and bytes so far
        draft.hidden = set()
        mean(draft)
    output = _answer(draft)
    shapes, follows = _shapes(draft, output)
    names = {f"argument {number}": name for number, name in enumerate(draft.inputs)} if inputs > 1 else {}
    channels = draft.shape("image")[2]
    count = draft.one_of([0, 0, 1, channels])
    classes = draft.shape(output)[2] if isinstance(output, str) and draft.maybe(0.2) else 0
    contract = Input(
        "image", tuple(rng.normal(size=count).tolist()), tuple(rng.uniform(0.1, 2, count).tolist()),
        tuple(f"class {number}" for number in range(classes)), names,
    )  # fmt: skip
    free = Free(draft.one_of(STEPS), follows)
    return Graph(contract, output, draft.buffers, draft.operations, shapes, free)


def _answer(draft: Draft) -> Answer:
    """The last float buffer, or several that are nested somehow."""
    last, others = draft.answers[-1], draft.answers
    if draft.maybe(0.7):
        return last
    some: list[Answer] = [draft.one_of(others) for _ in range(1 + draft.below(3))]
    return draft.one_of([  # type: ignore[no-any-return]
        [last, *some], {"last": last, "others": some}, [{"last": last}, [some, last]], {"last": last},
    ])  # fmt: skip


def _shapes(draft: Draft, output: Answer) -> tuple[dict[str, tuple[int, ...]], dict[str, list[Number]]]:
    """Shapes of some outputs, and how they follow from the size."""
    shapes: dict[str, tuple[int, ...]] = {}
    follows: dict[str, list[Number]] = {}
    for name in dict.fromkeys(answer_buffers(output)):
        if draft.maybe(0.3):
            axes = draft.one_of([["c", "h", "w"], ["hw", "c"], ["hwc"], ["h", "wc"], ["hc", "w"]])
            given: list[Number] = [Follows(name, each) for each in axes]
            given.insert(draft.below(len(given) + 1), 1)
            sides = [each if isinstance(each, int) else each.value(draft.shape(name)) for each in given]
            shapes[name], follows[name] = tuple(sides), given
            assert prod(sides) == prod(draft.shape(name))
    return shapes, follows
