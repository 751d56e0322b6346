"""From torch's calls to operations: each call goes to its handler, and the model's outputs become buffers."""

from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from typing import Any

from torch import Tensor, nn

from rbnn.errors import ExportError
from rbnn.exporting.batches import APART, PLAIN, Batched, Layout, leaves_the_batch, lowered
from rbnn.exporting.binary import Known, binary_layer
from rbnn.exporting.dispatch import FUNCTIONS, MODULES, TAKE_SIDES_OF_ONE, called
from rbnn.exporting.draft import Draft, picture_shape
from rbnn.exporting.pools import Maxima
from rbnn.exporting.reductions import INDICES
from rbnn.exporting.shapes import made_whole
from rbnn.exporting.trace import Step, Traced, Value, last_child, replaced, values_in
from rbnn.exporting.traced_call import Call, Handler, Place
from rbnn.exporting.unpooling import max_unpool
from rbnn.nn import BinaryLayer, BinaryLinear
from rbnn.packed.graph import Answer, answer_buffers, unused
from rbnn.packed.operations import Buffer

Places = dict[Value, str | Maxima]
"""The place of each value: its buffer, or how to find the places of maxima."""

INSTEAD = {
    "argmax": "export the network up to here, and take the argmax of its outputs",
    "topk": "export the network up to here, and choose among its outputs",
    "sort": "export the network up to here, and sort its outputs",
    "grid_sample": "move the warping out of the network",
    "conv3d": "use 2D convolutions on the channels",
    "lstm": "use convolutions or attention in its place",
    "gru": "use convolutions or attention in its place",
}
"""The nearest alternative to an operation without a handler."""

OTHERWISE = "export the network up to here and compute the rest from its outputs, or use another operation"
"""The alternative to all others."""


def _way_out(step: Step, last: str) -> str:
    """``last`` is the model's last module.  Without it, the network ends there."""
    if step.where == last != "":
        return f"put nn.Identity() in place of {last!r} for the export and apply that module to the outputs"
    return INSTEAD.get(called(step.target), OTHERWISE)


def lower(traced: Traced) -> Draft:
    """The network as operations, one or several for each call, without fusion."""
    names_of_inputs = traced.names or ["image"]
    buffers: dict[str, Buffer] = {}
    places: Places = {}
    for name, image in zip(names_of_inputs, traced.images, strict=True):
        shape = picture_shape(tuple(image.tensor.shape))
        assert shape is not None, "the example was checked"
        buffers[name], places[image] = Buffer("float", shape), name
    draft = Draft(names_of_inputs[0], buffers, names=traced.names, signals=traced.images[0].tensor.dim() == 3)
    layouts: dict[Value, Layout] = {}
    known: Known = {}
    names: set[str] = set()
    last = last_child(traced.model)
    for step in traced.steps:
        call = _call(draft, step, names)
        made = _lowered(call, step, places, layouts, known, last)
        values = values_in(step.result)
        places |= dict(zip(values, [made] if isinstance(made, str) else made, strict=True))
        if any(len(value.tensor) != len(traced.images[0].tensor) for value in values if value not in layouts):
            raise call.fail(APART)
    draft.answer = _answer(traced, places, layouts, draft)
    return draft


def _lowered(call: Call, step: Step, places: Places, layouts: dict[Value, Layout], known: Known, last: str) -> Any:
    """The buffers of the results of a step; ``layouts`` gets the layouts of results that do not begin with the
    batch."""
    for value in values_in(step.result):
        if picture_shape(tuple(value.tensor.shape)) is None:
            raise call.fail(f"it returns the shape {tuple(value.tensor.shape)}: keep the batch dimension")
    handler = MODULES.get(type(step.target)) or FUNCTIONS.get(called(step.target))

    def put(value: Value) -> Place | Maxima:
        found = places[value]
        if isinstance(found, Maxima) and handler is max_unpool:
            return found
        if isinstance(found, Maxima) or found == INDICES:
            raise call.fail("the indices of maxima are not available")
        if value in layouts:
            return Place(found, layouts[value].first(value.tensor))
        place = Place(found, value.tensor)
        return place if handler in TAKE_SIDES_OF_ONE else made_whole(call, place)

    if any(value in layouts for value in step.inputs) or (
        handler is not None and leaves_the_batch(call, handler, *_in_order(step.args, step.kwargs))
    ):
        return _lowered_apart(call, step, put, layouts, known)
    args, kwargs = _in_order(replaced(step.args, Value, put), replaced(step.kwargs, Value, put))
    if isinstance(step.target, BinaryLayer):
        return binary_layer(call, args[0], step.target, known)
    if handler is None:
        raise call.fail(f"the packed format has no such operation: {_way_out(step, last)}")
    kwargs = kwargs | _of_module(step, handler)
    try:
        bound = signature(handler).bind(call, *args, **kwargs)
    except TypeError as error:  # an argument that the handler does not know
        raise call.fail(f"it is called in a way that is not supported ({error})") from None
    return handler(*bound.args, **bound.kwargs)


def _lowered_apart(
    call: Call, step: Step, put: Callable[[Value], Place | Maxima], layouts: dict[Value, Layout], known: Known
) -> list[str]:
    """The same for calls with a value that does not begin with the batch."""
    handler = MODULES.get(type(step.target)) or FUNCTIONS.get(called(step.target))
    x = step.inputs[0]
    on_pieces = isinstance(step.target, BinaryLayer) and layouts[x].dim == 0
    if on_pieces or (isinstance(step.target, BinaryLinear) and layouts[x].dim < x.tensor.dim() - 1):
        layout, place = layouts[x], put(x)
        if layout.dim and step.target.method.binary_form(step.target.filters).centred:
            raise call.fail(
                "its method takes signs relative to the mean of each image, so the batch must come first: move the "
                "batch to the front before this layer, keep it float, or binarize with a method that does not centre, "
                "such as 'bi-real'"
            )
        layouts |= dict.fromkeys(values_in(step.result), layout)
        assert isinstance(place, Place)
        shares = 0 if layout.dim else len(layout.shares)
        first = replace(call, result=layout.first(call.result))
        return [binary_layer(first, place, step.target, known, shares)]
    if handler is None:
        raise call.fail(f"the packed format has no such operation: {_way_out(step, '')}")
    batched = {value: Batched(put(value), layouts.get(value, PLAIN), value.tensor.dim()) for value in step.inputs}  # type: ignore[arg-type]
    args, kwargs = _in_order(*replaced((step.args, step.kwargs), Value, batched.__getitem__))
    made = lowered(call, handler, args, kwargs | _of_module(step, handler), list(batched.values()))
    layouts |= {
        value: layout
        for value, (_, layout) in zip(values_in(step.result), made, strict=True)
        if layout != PLAIN
    }  # fmt: skip
    return [buffer for buffer, _ in made]


def _of_module(step: Step, handler: Handler) -> dict[str, Any]:
    """The attributes of a module that are arguments of its handler."""
    if not isinstance(step.target, nn.Module):
        return {}
    names = [name for name in signature(handler).parameters if hasattr(step.target, name)]
    return {name: getattr(step.target, name) for name in names}


def _in_order(args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Torch's names for the first two arguments become positional, and ``out=None`` is dropped."""
    kwargs = {name: value for name, value in kwargs.items() if name != "out" or value is not None}
    for name in ("self", "input"):
        if name in kwargs:
            args = (kwargs.pop(name), *args)
    if "other" in kwargs and len(args) == 1:
        args = (*args, kwargs.pop("other"))
    return args, kwargs


def _call(draft: Draft, step: Step, names: set[str]) -> Call:
    """``names`` are those of the functions so far.  Each call gets its own name, and a module its path."""
    result = replaced(step.result, Value, lambda value: value.tensor)
    where = step.where or "the model"

    def again(tensor: Tensor) -> Tensor:
        if called(step.target) in ("reshape_as", "view_as"):  # their second tensor only has a shape
            return tensor.reshape(result.shape)
        args, kwargs = replaced((step.args, step.kwargs), Value, lambda _: tensor)
        made: Tensor = step.target(*args, **kwargs)
        return made

    if isinstance(step.target, nn.Module):
        return Call(draft, step.where or "model", f"nn.{called(step.target)}", where, "", result, again)
    name = unused(f"{step.where}.{called(step.target)}" if step.where else called(step.target), names)
    names.add(name)
    return Call(draft, name, called(step.target), where, step.line, result, again)


def _answer(traced: Traced, places: Places, layouts: dict[Value, Layout], draft: Draft) -> Answer:
    """The model's output, with buffers in place of tensors."""

    def leaf(structure: Any) -> Answer:
        found = places[structure] if isinstance(structure, Value) else None
        if isinstance(structure, Value) and structure in layouts:
            raise ExportError(f"an output of the network has the shape {tuple(structure.tensor.shape)}: {APART}")
        if isinstance(found, str) and found != INDICES:
            call = Call(draft, "answer", "the answer", "the model", "", structure.tensor, lambda x: x)
            buffer, shape = made_whole(call, Place(found, structure.tensor)).buffer, structure.tensor.shape
            if draft.answer_shapes.setdefault(buffer, tuple(shape[1:])) != tuple(shape[1:]):  # one output in two shapes
                buffer = call.write("reshape", {"x": buffer}, attributes={"order": "hwc"})
                draft.answer_shapes[buffer] = tuple(shape[1:])
            return buffer
        if isinstance(structure, tuple | list) and structure:
            return [leaf(each) for each in structure]
        if isinstance(structure, dict) and structure and all(isinstance(name, str) for name in structure):
            return {name: leaf(each) for name, each in structure.items()}
        tensor = isinstance(structure, Value | Tensor)
        raise ExportError(
            "the network must return tensors that depend on its input, alone or in tuples, lists and dictionaries; "
            f"one of its outputs is {'a tensor that does not' if tensor else type(structure).__name__}"
        )

    answer = leaf(traced.answer)
    if {draft.input, *draft.names} & set(answer_buffers(answer)):
        raise ExportError("the network returns its input, so there is nothing to pack")
    return answer
