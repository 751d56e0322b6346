"""Binary transposed convolutions as bits: phases computed by hand, and the packed file against torch."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import rbnn
from rbnn.exporting import packed
from rbnn.exporting.phases import side_of
from rbnn.importing.packed import Mismatch, restore_
from rbnn.methods import method_names
from rbnn.packed import file as packfile
from rbnn.packed import oracle
from rbnn.packed.session import Session
from rbnn.translating.onnx_check import run, standard
from rbnn.translating.onnx_file import write

VARIANTS: dict[str, dict[str, Any]] = {
    **{name: {} for name in method_names() if name != "float"},
    "rbnn, not centred": {"standardise": False},
    "xnor-net with K": {"k_map": True},
    "xnor++, dense": {"case": 2},
    "dorefa, two bits": {"activation_bits": 2},
    "abc-net, two bases": {"weight_bases": 2, "activation_bases": 2},
}
WINDOWS: dict[str, tuple[Any, ...]] = {  # kernel, stride, padding, output_padding, dilation
    "2 by 2": (2, 2, 0, 0, 1), "4 by 2": (4, 2, 1, 0, 1), "3 by 2": (3, 2, 1, 1, 1), "3 by 1": (3, 1, 1, 0, 1),
    "uneven": ((3, 4), (2, 3), (1, 0), (0, 2), 1), "dilated": ((3, 2), (2, 3), (2, 1), 1, (2, 3)),
    "gaps": (1, 2, 0, 1, 1), "gaps by dilation": (3, 2, 0, 0, 2),
}  # fmt: skip


class Upwards(nn.Module):
    """A stem and a binary transposed convolution whose input has values on both sides of the methods' thresholds."""

    def __init__(self, method: str, options: dict[str, Any], window: tuple[Any, ...], *channels: int) -> None:
        super().__init__()
        kernel, stride, padding, more, dilation = window
        self.stem, self.norm = nn.Conv2d(3, channels[0], 3, padding=1), nn.BatchNorm2d(channels[0])
        self.up = rbnn.BinaryConvTranspose2d(
            *channels, kernel, stride, padding, more, dilation=dilation, method=method, options=options
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.norm(self.stem(x)))  # type: ignore[no-any-return]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_file_answers_like_torch(variant: str, window: str, tmp_path: Path) -> None:
    torch.manual_seed(4)
    model = Upwards(variant.split()[0].strip(","), VARIANTS[variant], WINDOWS[window], 11, 5).eval()
    x = torch.randn(2, 3, 5, 6)
    model(x)  # XNOR-Net++ records the size
    report = rbnn.export(model, tmp_path / "net.rbnn", x)
    graph = packfile.read(report.path)
    assert not any(operation.kind == "float_conv" for operation in graph.operations[3:]) or "K" in variant
    with torch.no_grad():
        wanted = model(x).numpy()
    for got in (Session(graph)(x.numpy()), oracle.run(graph, x.numpy())):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


sides = st.tuples(*[st.integers(1, 9)] * 2)
steps = st.tuples(*[st.integers(1, 4)] * 2)


@settings(max_examples=60)
@given(
    size=sides, kernel=st.tuples(*[st.integers(1, 5)] * 2), stride=steps, dilation=steps, padding=sides, more=steps,
    inputs=st.sampled_from([1, 8, 70]), outputs=st.integers(1, 9), seed=st.integers(0, 99),
)  # fmt: skip
def test_sums_of_signs_are_equal(
    size: Any, kernel: Any, stride: Any, dilation: Any, padding: Any, more: Any, inputs: int, outputs: int, seed: int
) -> None:
    more = [each % max(step, gap) for each, step, gap in zip(more, stride, dilation, strict=True)]
    torch.manual_seed(seed)
    how = kernel, stride, padding, tuple(more)
    layer = rbnn.BinaryConvTranspose2d(inputs, outputs, *how, bias=False, dilation=dilation, method="bnn").eval()
    wanted_size = [
        (side - 1) * step - 2 * edge + gap * (taps - 1) + extra + 1
        for side, taps, step, edge, extra, gap in zip(size, *how, dilation, strict=True)
    ]
    assume(min(wanted_size) > 0)
    x = torch.randn(2, inputs, *size).round()  # with zeros
    graph = packed(layer, x).graph
    assert {operation.kind for operation in graph.operations} <= {"pack", "binary_conv", "concat", "permute", "slice"}
    with torch.no_grad():
        wanted = layer(x).numpy()
    assert np.array_equal(Session(graph)(x.numpy()), wanted)


@given(inputs=st.integers(1, 7), kernel=st.integers(1, 6), stride=st.integers(1, 5), padding=st.integers(0, 6),
       dilation=st.integers(1, 4), more=st.integers(0, 3))  # fmt: skip
def test_phases_put_side_by_side_are_the_transposed_convolution(
    inputs: int, kernel: int, stride: int, padding: int, dilation: int, more: int
) -> None:
    outputs = (inputs - 1) * stride - 2 * padding + dilation * (kernel - 1) + more + 1
    assume(outputs > 0 and more < max(stride, dilation))
    x, w = np.random.default_rng(0).normal(size=inputs), np.random.default_rng(1).normal(size=kernel)
    wanted = np.zeros(outputs)
    for i, t in np.ndindex(inputs, kernel):
        if 0 <= i * stride + t * dilation - padding < outputs:
            wanted[i * stride + t * dilation - padding] += x[i] * w[t]
    side = side_of(inputs, outputs, kernel, stride, padding, dilation)
    got = np.zeros((side.rows, stride))
    for remainder, phase in enumerate(side.phases):
        wide = np.pad(x, phase.window.padding)
        for q in range(side.rows if phase.taps else 0):
            first = phase.window.start + q
            assert first < phase.window.results
            reads = [first + at * phase.window.dilation for at in range(phase.window.taps)]
            got[q, remainder] = sum(wide[at] * w[tap] for at, tap in zip(reads, phase.taps, strict=True))
    np.testing.assert_allclose(got.reshape(-1)[side.cut : side.cut + outputs], wanted, atol=1e-12)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.down, self.deep = nn.Conv2d(16, 16, 3, 2, 1), nn.BatchNorm2d(16)
        self.up, self.head = nn.ConvTranspose2d(16, 16, 2, 2), nn.Conv2d(32, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        skip = self.norm(self.stem(x))
        up = self.up(self.deep(self.down(skip)))
        return self.head(torch.cat([skip, up], 1))  # type: ignore[no-any-return]


def trained(method: str) -> nn.Module:
    torch.manual_seed(2)
    model = UNet()
    assert rbnn.binarize_(model, method, relu="keep").changed == ["down", "up"]
    assert type(model.up) is rbnn.BinaryConvTranspose2d
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    schedule = rbnn.BinarySchedule(model, optimizer, epochs=1)
    schedule.step(0)
    for _ in range(2):
        loss = model(torch.randn(4, 3, 8, 8)).square().mean() + rbnn.penalty(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


@pytest.mark.parametrize("method", ["rbnn", "bi-real"])
def test_a_network_of_any_size(method: str, tmp_path: Path) -> None:
    model = trained(method)
    rbnn.export(model, tmp_path / "net.rbnn", torch.randn(2, 3, 8, 12), free_size=True)
    for size in ((8, 12), (14, 6)):
        x = torch.randn(2, 3, *size)
        with torch.no_grad():
            wanted = model(x).numpy()
        got = Session(tmp_path / "net.rbnn")(x.numpy())
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("qonnx", [False, True], ids=["onnx", "qonnx"])
@pytest.mark.parametrize("window", ["4 by 2", "3 by 2", "gaps"])
@pytest.mark.parametrize("method", ["rbnn", "dorefa"])
def test_onnx(method: str, window: str, qonnx: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Upwards(method, {}, WINDOWS[window], 11, 5).eval(), torch.randn(2, 3, 5, 6)
    graph = packed(model, x).graph
    write(graph, tmp_path / "net.onnx", x.numpy(), qonnx=qonnx)
    got = run(standard(onnx.load(tmp_path / "net.onnx")), {"image": x.numpy()})["answer"]
    np.testing.assert_allclose(got, oracle.run(graph, x.numpy()), rtol=1e-4, atol=1e-4)


def test_training_from_a_packed_file_is_refused(tmp_path: Path) -> None:
    model = trained("rbnn")
    rbnn.export(model, tmp_path / "net.rbnn", torch.randn(2, 3, 8, 8))
    with pytest.raises(Mismatch, match=r"layer 'up' is a transposed convolution.*use its checkpoint"):
        restore_(model, packfile.read(tmp_path / "net.rbnn"))
