"""A torch model as a list of calls, with their results for some images.

The forward pass runs as usual, on real tensors: it may look at shapes, take keyword arguments, and return tuples and
dictionaries.  It must not make decisions that depend on the values of the images, because a packed network makes none.
"""

import copy
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from rbnn.errors import ExportError
from rbnn.exporting.dispatch import MODULES, called
from rbnn.exporting.examples import Examples
from rbnn.models import Join, OptionA, RPReLU
from rbnn.nn import BinaryConv1d, BinaryConv2d, BinaryConvTranspose2d, BinaryLinear

WHOLE = BinaryConv1d, BinaryConv2d, BinaryConvTranspose2d, BinaryLinear, Join, OptionA, RPReLU
"""Modules of rbnn that are one call, like those of ``torch.nn`` that have a handler."""

ASKED = {
    "shape", "size", "dim", "ndim", "ndimension", "numel", "nelement", "dtype", "device", "layout", "stride", "len",
    "is_contiguous", "is_floating_point", "is_complex", "is_cuda", "is_cpu", "is_sparse", "is_quantized", "is_meta",
    "is_nested", "is_mps", "is_mkldnn", "is_leaf", "requires_grad", "grad_fn", "grad", "names", "element_size",
    "itemsize", "nbytes", "storage_offset", "get_device", "type", "is_same_size", "repr", "format", "data_ptr", "hash",
    "register_hook", "is_inference", "is_conj", "is_neg", "retain_grad",
}  # fmt: skip
"""Names of what does not depend on the values of a tensor."""

SHAPED = {
    "expand_as", "view_as", "reshape_as", "type_as", "to", "zeros_like", "ones_like", "full_like", "empty_like",
    "new_zeros", "new_ones", "new_full", "new_tensor", "new_empty",
}  # fmt: skip
"""Functions that use only the shape or type of a tensor.  The result is a constant if the first argument is one, or if
there is none."""

TORCH = str(Path(torch.__file__).parent)


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor that depends on the input, as it was when it was computed, because a later call may overwrite it."""

    tensor: Tensor


@dataclass(frozen=True, eq=False)
class Step:
    """A call in a forward pass with arguments that depend on the input."""

    target: Any
    """A module or a function."""
    where: str
    """The module itself, or the module in whose forward the function was called; empty for the model."""
    line: str
    """The line of the user's code."""
    args: tuple[Any, ...]
    """As in the call, with a Value in place of each tensor that depends on the input; the next two fields likewise."""
    kwargs: dict[str, Any]
    result: Any

    @property
    def inputs(self) -> list[Value]:
        return values_in((self.args, self.kwargs))


@dataclass(frozen=True)
class Traced:
    """The calls of one forward pass in evaluation mode, and their results."""

    model: nn.Module
    """A copy of the user's model: float32, on the CPU, in evaluation mode."""
    images: list[Value]
    """The inputs."""
    names: list[str]
    """The names of the inputs, if there are several."""
    steps: list[Step]
    answer: Any
    """What the model returns, with Values in place of tensors."""
    unprepared: Any
    """The same before anything was changed, with tensors."""

    @property
    def answers(self) -> list[Tensor]:
        """Every tensor of the output."""
        return [value.tensor for value in values_in(self.answer)]


def replaced(structure: Any, kind: type, by: Callable[[Any], Any]) -> Any:
    """The same tuples, lists, dictionaries and slices, with each object of ``kind`` in them replaced by ``by`` of
    it."""
    again = partial(replaced, kind=kind, by=by)
    if isinstance(structure, kind):
        return by(structure)
    if isinstance(structure, tuple | list):
        parts = [again(each) for each in structure]
        plain = list if isinstance(structure, list) else tuple  # also for a named tuple
        return plain(parts)
    if isinstance(structure, dict):
        return {key: again(each) for key, each in structure.items()}
    if isinstance(structure, slice):
        return slice(again(structure.start), again(structure.stop), again(structure.step))
    return structure


def values_in(structure: Any, kind: type = Value) -> list[Any]:
    """Every Value, in order."""
    found: list[Any] = []
    replaced(structure, kind, found.append)
    return found


def trace(model: nn.Module, images: Tensor | Examples, prepare: Callable[[Traced], None] | None = None) -> Traced:
    """Run ``images`` through a copy of ``model`` and record every call.  The model itself is not changed; ``prepare``
    may change the weights of the copy first."""
    examples = Examples([images], []) if isinstance(images, Tensor) else images
    try:
        original = getattr(model, "_orig_mod", model)
        stand_in = copy.deepcopy(original, _results_kept_in(original)).to("cpu", torch.float32).eval()
    except Exception as error:  # anything attached to a model may refuse to be copied
        raise ExportError(f"{type(model).__name__} cannot be copied for the export ({_reason(error)})") from None
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            unprepared = examples(stand_in)
        except Exception as error:
            raise ExportError(
                f"{type(model).__name__} does not accept the example input {_not_accepted(stand_in, examples, error)}"
            ) from None
        traced = _record(stand_in, examples, unprepared)
        if prepare is not None:
            prepare(traced)
            traced = _record(stand_in, examples, unprepared)
    return traced


def _not_accepted(model: nn.Module, examples: Examples, error: Exception) -> str:
    """The shapes that the caller passed, and why they do not fit."""
    batch = examples.in_a_batch()
    if batch is not None and _error_of(model, batch) is None:
        return f"{examples.given}: add a batch dimension, {batch.given}"
    if examples.given is not None and (own := _error_of(model, examples.given)) is not None:
        examples, error = examples.given, own
    return f"{examples}: {_reason(error)}{_where(error, model)}"


def _error_of(model: nn.Module, examples: Examples) -> Exception | None:
    try:
        examples(model)
    except Exception as error:
        return error
    return None


def _results_kept_in(model: nn.Module) -> dict[int, Any]:
    """For ``deepcopy``, which refuses them: results of a forward pass that modules keep, as weight norms do, without
    their gradients."""
    found: dict[int, Any] = {}
    for module in model.modules():
        for tensor in values_in(list(vars(module).values()), Tensor):
            if not tensor.is_leaf:
                found[id(tensor)] = tensor.detach().clone()
    return found


def last_child(model: nn.Module) -> str:
    """The name of the last of several modules, which may be a decoder of the model's outputs; empty if there is
    none."""
    names = [name for name, _ in model.named_children()]
    return names[-1] if len(names) > 1 else ""


def _record(model: nn.Module, examples: Examples, unprepared: Any) -> Traced:
    recorder = _Recorder(last_child(model))
    images = [recorder.made(each) for each in examples.tensors]
    try:
        with _modules_tell(model, recorder), recorder:
            answer = examples(model)
    except Exception as error:
        if recorder.refusal is None:
            raise ExportError(f"the forward of {type(model).__name__} cannot be traced ({_reason(error)})") from None
    if recorder.refusal is not None:
        raise recorder.refusal
    return Traced(model, images, examples.stored, recorder.steps, recorder.given(answer), unprepared)


class _Recorder(TorchFunctionMode):
    """Receives every call of a torch function.  Modules that are one call report themselves."""

    def __init__(self, last: str) -> None:
        super().__init__()
        self.last = last
        self.steps: list[Step] = []
        self.refusal: ExportError | None = None
        self.within: list[str] = [""]
        self.whole = False
        """Whether a module that is one call is running."""
        self._values: dict[int, Value] = {}
        self._overwritten: dict[int, tuple[str, int]] = {}
        """By identity: the line that wrote into the memory of a tensor through another tensor, and that tensor."""
        self._alive: list[Tensor] = []  # keeps the tensors alive, so that no other tensor gets the same identity

    def made(self, tensor: Tensor) -> Value:
        """``tensor`` depends on the input; its present value counts."""
        self._alive.append(tensor)
        self._values[id(tensor)] = value = Value(tensor.detach().clone())
        return value

    def given(self, structure: Any) -> Any:
        def value(tensor: Tensor) -> Value | Tensor:
            if id(tensor) in self._overwritten:
                raise self._refuse_overwritten(self._overwritten[id(tensor)][0])
            return self._values.get(id(tensor), tensor)

        return replaced(structure, Tensor, value)

    def _forget_other_views(self, tensor: Tensor, line: str) -> None:
        """``tensor`` was written in place, so other tensors that share its memory have changed."""
        memory = tensor.untyped_storage().data_ptr()
        for other in self._alive:
            if other is tensor or id(other) not in self._values or other.untyped_storage().data_ptr() != memory:
                continue
            if not torch.equal(other, self._values[id(other)].tensor):
                self._overwritten[id(other)] = line, id(tensor)
        self._overwritten.pop(id(tensor), None)

    def record(self, target: Any, where: str, args: Any, kwargs: Any, call: Callable[..., Any]) -> Any:
        writes = called(target) == "setitem"
        if writes and self._overwritten.get(id(args[0]), ("", 0))[1] == id(args[2]):
            del self._overwritten[id(args[0])]  # y[:, 2:] += 1 writes a part in place and then assigns it to itself
        given = self.given((args, kwargs))
        if writes and not isinstance(given[0][0], Value):  # its value before it is overwritten
            with self.unheard():
                given = ((given[0][0].clone(), *given[0][1:]), given[1])
        known = {id(tensor) for tensor in values_in((args, kwargs), Tensor) if id(tensor) in self._values}
        result = call(*args, **kwargs)
        if not values_in(given) or self._makes_a_constant(target, given[0]):
            return result
        if writes:
            result = args[0]
        tensors = values_in(result, Tensor)
        if not tensors:
            if called(target) not in ASKED:
                raise self._refuse(target, where)
            return result
        with self.unheard():
            taken = replaced(result, Tensor, self.made)
            self.steps.append(Step(target, where, _line(), given[0], given[1], taken))
            for tensor in tensors:
                if writes or id(tensor) in known:
                    self._forget_other_views(tensor, _line())
        return None if writes else result

    @contextmanager
    def unheard(self) -> Iterator[None]:
        """Record nothing inside the block."""
        before, self.whole = self.whole, True
        try:
            yield
        finally:
            self.whole = before

    def _makes_a_constant(self, target: Any, args: Any) -> bool:
        name = called(target)
        return name in SHAPED and (not isinstance(args[0], Value) or name.startswith("new_") or name.endswith("_like"))

    def _refuse_overwritten(self, line: str) -> ExportError:
        self.refusal = ExportError(
            f"{line} writes into a part of a tensor that is read again later as a whole, or the other way round: "
            "write the parts with torch.cat, or clone() what is written into"
        )
        return self.refusal

    def _refuse(self, target: Any, where: str) -> ExportError:
        way_out = "move this code out of the model and apply it to its outputs"
        if where and where == self.last:
            way_out = f"put nn.Identity() in place of {where!r} and apply that module to the outputs"
        self.refusal = ExportError(
            f"{_line()}, in {where or 'the model'!r}, depends on the values of the input ({called(target)}), but a "
            f"packed network cannot branch on values; {way_out}"
        )
        return self.refusal

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.whole:
            return func(*args, **(kwargs or {}))
        return self.record(func, self.within[-1], args, kwargs or {}, func)


@contextmanager
def _modules_tell(model: nn.Module, recorder: _Recorder) -> Iterator[None]:
    """Inside the block, modules of ``model`` tell the recorder when they are called."""
    changed, listeners = [], []
    try:
        for name, module in model.named_modules():
            if "forward" in vars(module) or isinstance(module, torch.jit.ScriptModule):
                continue
            is_one_call = type(module) in MODULES or isinstance(module, WHOLE)
            tell = _one_call if is_one_call else _entered
            module.forward = partial(tell, recorder, name, module, module.forward)
            changed.append(module)
            if isinstance(module, WHOLE):  # a module with a hook is called even if a kernel could replace it
                listeners.append(module.register_forward_hook(lambda *_: None))
        yield
    finally:
        for listener in listeners:
            listener.remove()
        for module in changed:
            del module.forward


def _one_call(
    recorder: _Recorder, name: str, module: nn.Module, forward: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    if recorder.whole:
        return forward(*args, **kwargs)

    def alone(*args: Any, **kwargs: Any) -> Any:
        with recorder.unheard():
            return forward(*args, **kwargs)

    return recorder.record(module, name, args, kwargs, alone)


def _entered(
    recorder: _Recorder, name: str, module: nn.Module, forward: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    recorder.within.append(name)
    try:
        return forward(*args, **kwargs)
    finally:
        recorder.within.pop()


def _line() -> str:
    """The line of the user's code: the innermost frame that is neither torch's nor ours."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith(TORCH) or frame.f_code.co_filename == __file__
    ):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _where(error: Exception, model: nn.Module) -> str:
    """The innermost module that an exception passed through."""
    names = {id(module): name for name, module in model.named_modules()}
    inside, trail = "", error.__traceback__
    while trail is not None:
        module = trail.tb_frame.f_locals.get("self")
        if names.get(id(module)):
            inside = f" (in {names[id(module)]!r}, {type(module).__name__})"
        trail = trail.tb_next
    return inside


def _reason(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200] or type(error).__name__
