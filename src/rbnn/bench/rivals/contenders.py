"""The same network on our engine and on others, ready to race.

A contender is a function without arguments that runs one batch.  The other engines run the float twin, in float32 and
in int8.  OpenVINO also runs the bits, with its binary convolution.
"""

import importlib.util
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rbnn.bench.float_twin import float_twin, without_bytes
from rbnn.bench.race import race
from rbnn.packed.graph import Graph
from rbnn.packed.session import Session
from rbnn.text import LONGEST_QUOTE, shorten

Images = NDArray[np.float32]
Call = Callable[[], Any]

ENGINES: dict[str, tuple[str, ...]] = {
    "torch": ("torch",),
    "onnxruntime": ("onnxruntime", "onnx"),
    "openvino": ("openvino", "onnx", "onnxruntime"),
}
"""Engines to compare with → the packages that they need (ONNX Runtime's tools also make OpenVINO's int8 network)."""
CALIBRATION_PICTURES = 4


@dataclass(frozen=True)
class Contender:
    """An engine with the network in it."""

    engine: str
    numbers: str
    """float32, int8 or 1-bit."""
    call: Call
    pictures: str = "float32"
    """Its input: float32, normalised beforehand, or uint8."""
    refused: str | None = None
    """Why the engine cannot run the network; None if it can."""

    @property
    def name(self) -> str:
        return f"{self.engine} {self.numbers}"


def missing(engine: str) -> str | None:
    """What to do if an engine is not installed; None if it is."""
    lacking = [package for package in ENGINES[engine] if importlib.util.find_spec(package) is None]
    extra = "train" if lacking == ["torch"] else "bench"
    return f"{engine} is left out: pip install 'rbnn[{extra}]' (lacks {', '.join(lacking)})" if lacking else None


def our_engine(session: Session, pictures: NDArray[Any]) -> Contender:
    return Contender("rbnn", "1-bit", lambda: session(pictures), str(pictures.dtype))


def rivals(graph: Graph, images: Images, threads: int, engines: list[str]) -> Iterator[Contender]:
    """The contenders of these engines, which must be installed."""
    twin = float_twin(graph)
    if "torch" in engines:
        yield _rival("torch", "float32", lambda: _torch(twin, images, threads))
    if not {"onnxruntime", "openvino"} & set(engines):
        return
    from rbnn.translating.onnx_model import to_onnx

    whole = to_onnx(twin, len(images), engine_order=False).model.SerializeToString()
    small = quantized(whole, _noise(images.shape))
    if "onnxruntime" in engines:
        yield _rival("onnxruntime", "float32", lambda: _onnxruntime(whole, images, threads))
        # ONNX Runtime 1.31 reorders a Resize between int8 layers incorrectly and then refuses it.
        without = ["NhwcTransformer"] if any(each.kind == "resize" for each in twin.operations) else []
        yield _rival("onnxruntime", "int8", lambda: _onnxruntime(small, images, threads, without))
    if "openvino" in engines:
        from rbnn.bench.rivals.openvino_model import to_openvino

        floats, bits = to_openvino(twin, len(images)), to_openvino(without_bytes(graph), len(images))
        yield _rival("openvino", "float32", lambda: _openvino(floats, images, threads))
        yield _rival("openvino", "int8", lambda: _openvino(small, images, threads))
        yield _rival("openvino", "1-bit", lambda: _openvino(bits, images, threads))


def _rival(engine: str, numbers: str, load: Callable[[], Call]) -> Contender:
    """An engine that fails to load the network is refused.  The race goes on without it."""
    try:
        return Contender(engine, numbers, load())
    except Exception as reason:
        said = shorten(" ".join(str(reason).split()), LONGEST_QUOTE)
        sentence = f"{engine} {numbers} is left out, because {engine} cannot load this network: {said}"

    def call() -> Any:
        raise RuntimeError(sentence)

    return Contender(engine, numbers, call, refused=sentence)


def _torch(twin: Graph, images: Images, threads: int) -> Call:
    """In the memory format that is faster for this network."""
    import torch

    from rbnn.bench.rivals.torch_module import to_torch

    torch.set_num_threads(threads)
    calls: dict[str, Call] = {}
    for memory in (torch.contiguous_format, torch.channels_last):
        module = to_torch(twin, len(images)).to(memory_format=memory)  # type: ignore[call-overload]
        batch = torch.from_numpy(images).to(memory_format=memory)
        calls[str(memory)] = torch.inference_mode()(lambda module=module, batch=batch: module(batch).numpy())
    times = race(calls, 0.1)
    return calls[min(times, key=lambda memory: times[memory].best)]


def _onnxruntime(model: bytes, images: Images, threads: int, without: Sequence[str] = ()) -> Call:
    """``without`` names optimisations to switch off."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(model, options, providers, disabled_optimizers=list(without))
    return lambda: session.run(None, {"image": images})[0]


def _openvino(model: Any, images: Images, threads: int) -> Call:
    from rbnn.bench.rivals.openvino_model import core

    if isinstance(model, bytes):
        model = core().read_model(model, b"")
    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    request = core().compile_model(model, "CPU", settings).create_infer_request()
    return lambda: request.infer({0: images})[0]


def _noise(shape: tuple[int, ...]) -> Iterator[Images]:
    """Calibration images for a race: speed does not depend on the ranges that they give."""
    rng = np.random.default_rng(0)
    return (rng.normal(size=shape).astype(np.float32) for _ in range(CALIBRATION_PICTURES))


def quantized(model: bytes, calibration: Iterator[Images]) -> bytes:
    """A float ONNX model after static quantisation: int8 weights per channel, uint8 activations, and ranges from the
    batches of ``calibration``.  Weights use 7 of their bits: with 8, the sums of a CPU without VNNI overflow."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Batches(CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> dict[str, Images] | None:
            batch = next(calibration, None)
            return None if batch is None else {"image": batch}

    with tempfile.TemporaryDirectory() as directory, _quiet():
        whole, prepared, small = (Path(directory) / f"{name}.onnx" for name in ("whole", "prepared", "small"))
        whole.write_bytes(model)
        quant_pre_process(whole, prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared,
            small,
            Batches(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            reduce_range=True,
        )
        return small.read_bytes()


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the advice that the quantiser logs."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
