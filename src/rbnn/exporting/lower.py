"""From torch's calls to operations: each call to its handler, and the model's answer to buffers."""

from inspect import signature
from typing import Any

from torch import Tensor, nn

from rbnn.errors import ExportError
from rbnn.exporting.binary import Known, binary_layer
from rbnn.exporting.dispatch import FUNCTIONS, MODULES, TAKE_SIDES_OF_ONE, called
from rbnn.exporting.draft import Draft, picture_shape
from rbnn.exporting.reductions import INDICES
from rbnn.exporting.shapes import made_whole
from rbnn.exporting.trace import Step, Traced, Value, replaced, values_in
from rbnn.exporting.traced_call import Call, Place
from rbnn.nn import BinaryLayer
from rbnn.packed.graph import Answer, answer_buffers, unused
from rbnn.packed.operations import Buffer

INSTEAD = {
    "argmax": "export the network up to here, and take the argmax of its outputs",
    "topk": "export the network up to here, and choose among its outputs",
    "sort": "export the network up to here, and sort its outputs",
    "grid_sample": "move the warping out of the network",
    "unfold": "write it as a convolution",
    "setitem": "write the parts with torch.cat",
    "einsum": "write it with matmul and permute",
    "max_pool2d_with_indices": "leave out return_indices, and upsample by nn.Upsample or nn.ConvTranspose2d",
    "multi_head_attention_forward": "write it with nn.Linear, matmul and softmax",
}
"""The nearest way out of what has no handler."""


def lower(traced: Traced) -> Draft:
    """The network as operations, one or several for each call, nothing fused."""
    names_of_inputs = traced.names or ["image"]
    buffers, places = {}, {}
    for name, image in zip(names_of_inputs, traced.images, strict=True):
        shape = picture_shape(tuple(image.tensor.shape))
        assert shape is not None, "the example was checked"
        buffers[name], places[image] = Buffer("float", shape), name
    draft = Draft(names_of_inputs[0], buffers, names=traced.names)
    known: Known = {}
    names: set[str] = set()
    for step in traced.steps:
        call = _call(draft, step, names)
        made = _lowered(call, step, places, known)
        values = values_in(step.result)
        if any(len(value.tensor) != len(traced.images[0].tensor) for value in values):
            raise call.fail("pictures of a batch must stay separate: keep the first dimension")
        places |= dict(zip(values, [made] if isinstance(made, str) else made, strict=True))
    draft.answer = _answer(traced, places, draft)
    return draft


def _lowered(call: Call, step: Step, places: dict[Value, str], known: Known) -> Any:
    for value in values_in(step.result):
        if picture_shape(tuple(value.tensor.shape)) is None:
            raise call.fail(f"it returns the shape {tuple(value.tensor.shape)}: keep the batch dimension")
    handler = MODULES.get(type(step.target)) or FUNCTIONS.get(called(step.target))

    def put(value: Value) -> Place:
        if places[value] == INDICES:
            raise call.fail("the indices of maxima are not available")
        place = Place(places[value], value.tensor)
        return place if handler in TAKE_SIDES_OF_ONE else made_whole(call, place)

    args: Any = replaced(step.args, Value, put)
    kwargs: Any = replaced(step.kwargs, Value, put)
    if isinstance(step.target, BinaryLayer):
        return binary_layer(call, args[0], step.target, known)
    if handler is None:
        why = INSTEAD.get(called(step.target))
        raise call.fail(f"the packed format has no such operation{f'; {why}' if why else ''}")
    if isinstance(step.target, nn.Module):
        names = [name for name in signature(handler).parameters if hasattr(step.target, name)]
        kwargs = kwargs | {name: getattr(step.target, name) for name in names}
    try:
        bound = signature(handler).bind(call, *args, **kwargs)
    except TypeError as error:  # an argument that the handler does not know
        raise call.fail(f"it is called in a way that is not supported ({error})") from None
    return handler(*bound.args, **bound.kwargs)


def _call(draft: Draft, step: Step, names: set[str]) -> Call:
    """``names``: of the functions so far; each call has its own, a module its path."""
    result = replaced(step.result, Value, lambda value: value.tensor)
    where = step.where or "the model"

    def again(tensor: Tensor) -> Tensor:
        args, kwargs = replaced((step.args, step.kwargs), Value, lambda _: tensor)
        made: Tensor = step.target(*args, **kwargs)
        return made

    if isinstance(step.target, nn.Module):
        return Call(draft, step.where or "model", f"nn.{called(step.target)}", where, "", result, again)
    name = unused(f"{step.where}.{called(step.target)}" if step.where else called(step.target), names)
    names.add(name)
    return Call(draft, name, called(step.target), where, step.line, result, again)


def _answer(traced: Traced, places: dict[Value, str], draft: Draft) -> Answer:
    """The model's answer with buffers in place of tensors."""

    def leaf(structure: Any) -> Answer:
        if isinstance(structure, Value) and places[structure] != INDICES:
            call = Call(draft, "answer", "the answer", "the model", "", structure.tensor, lambda x: x)
            return made_whole(call, Place(places[structure], structure.tensor)).buffer
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
