"""What an export rejects, with which message, and what it leaves unchanged."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from user_networks import CHANNELS, HEIGHT, WIDTH, Around

import rbnn
from rbnn.errors import ExportError
from rbnn.exporting.lower import MODULES
from rbnn.exporting.traced_call import Call, Place
from rbnn.functional import ScaledSigns
from rbnn.methods import METHODS, Method, register_method
from rbnn.packed.session import Session


def images(count: int = 2) -> Tensor:
    return torch.randn(count, CHANNELS, HEIGHT, WIDTH)


class Does(nn.Module):
    """A module that calls a function."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def written_in_part(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, ::2] = 0
    return y


def written_through_a_view(x: Tensor) -> Tensor:
    y = x * 2
    y[:, :2].add_(1)
    return y + 1


def caught(x: Tensor) -> Tensor:
    try:
        return x + x.max().item()
    except Exception:
        return x + 1


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "a module": (
        lambda: nn.Sequential(nn.ReLU(), nn.Threshold(0.1, 3.0)),
        r"_threshold in 'middle.1' \(.*\) cannot be packed: its value must equal its threshold",
    ),
    "a function": (
        lambda: Does(lambda x: torch.fft.fft(x).real), r"fft_fft in 'middle' \(test_refusals.py:\d+\) cannot be packed"
    ),
    "a function with a way out": (
        lambda: Does(lambda x: x.argmax(1).float()), "argmax in 'middle' .*: export the network up to here, and take"
    ),
    "an operation without a handler": (
        lambda: Does(lambda x: x.abs().log()), "log in 'middle' .* no such operation: export the network up to here and"
    ),
    "a convolution of volumes": (
        lambda: Does(lambda x: F.conv3d(x[:, None], torch.ones(2, 1, 1, 3, 3))[:, 0]), "conv3d in 'middle' .*: use 2D"
    ),
    "a recurrent layer": (
        lambda: Does(lambda x: nn.GRU(12, 4)(x.flatten(2).permute(2, 0, 1))[0].transpose(0, 1)),
        "gru in 'middle' .* no such operation: use convolutions or attention in its place",
    ),
    "an empty selection": (lambda: Does(lambda x: x[:, []].sum(1)), r"getitem in 'middle' .*: it selects nothing"),
    "a part that is written with gaps": (
        lambda: Does(written_in_part), r"setitem .* assignment to a slice with a step"
    ),
    "a part that is written, read as a whole": (
        lambda: Does(written_through_a_view), r"test_refusals.py:\d+ writes into a part of a tensor that is read again"
    ),
    "a decision": (
        lambda: Does(lambda x: x if x.sum() > 0 else -x),
        r"test_refusals.py:\d+, in 'middle', depends on the values of the input \(bool\)",
    ),
    "a number": (lambda: Does(lambda x: x * float(x.mean())), r"depends on the values of the input \(float\)"),
    "a number, caught": (lambda: Does(caught), r"depends on the values of the input \(item\)"),
    "binary circular padding, centred": (
        lambda: rbnn.BinaryConv2d(12, 3, 3, padding=1, padding_mode="circular", method="rbnn"), "mode 'circular'"
    ),
    "a mixed batch": (lambda: Does(lambda x: x.reshape(-1, 12)), "images of a batch must stay separate"),
    "batches that change places": (lambda: Does(lambda x: x.transpose(0, 1)), "images of a batch must stay separate"),
    "the mean of a batch": (
        lambda: Does(lambda x: x - x.mean(0, keepdim=True)), r"mean in 'middle' \(.*\) cannot be packed: images of a"
    ),
    "the sum of everything": (lambda: Does(lambda x: x / x.sum()), "keep the batch dimension"),
    "a slice of a batch": (lambda: Does(lambda x: x[1:]), "images of a batch must stay together"),
    "a chosen list": (lambda: Does(lambda x: x[:, [3, 1], 2:]), r"only slices and integers"),
    "joined pictures": (lambda: Does(lambda x: torch.cat([x, x])), r"images of a batch must stay separate"),
    "a batch norm of the batch": (
        lambda: nn.BatchNorm2d(12, track_running_stats=False), "nn.BatchNorm2d in 'middle' .* running statistics"
    ),
    "dropout that is on": (lambda: Does(lambda x: F.dropout(x, 0.5)), "active in evaluation mode"),
    "indices": (
        lambda: Does(lambda x: F.max_pool2d(x, 2, return_indices=True)[1] + 1), "indices of maxima are not available"
    ),
    "places of maxima": (
        lambda: Does(lambda x: x + torch.max(x, 1, keepdim=True)[1]), "add in 'middle' .* indices of maxima are not"
    ),
    "a divisor": (lambda: nn.AvgPool2d(2, divisor_override=3), "divisor_override"),
    "a computed weight": (lambda: Does(lambda x: F.conv2d(x, x[:, :, :1, :1])), "weight depends on the input"),
    "a factor for each input of a linear layer": (
        lambda: rbnn.BinaryLinear(WIDTH, 4, method="xnor-net", options={"k_map": True}), "flatten first"
    ),
    "another argument": (
        lambda: Does(lambda x: torch.mul(x, 2.0, out=torch.empty(0))), r"mul in 'middle' .* not supported \(.*'out'\)"
    ),
    "a clamp by a tensor": (lambda: Does(lambda x: x.clamp(min=torch.zeros(1))), "limits of a clamp must be numbers"),
    "padded batch": (lambda: Does(lambda x: F.pad(x.flatten(1), (1, 1, 0, 1))), "height, width and channels"),
    "another mode": (
        lambda: Does(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", antialias=True)), "without antialias"
    ),
    "whole numbers": (lambda: Does(lambda x: x.to(torch.int64).float()), "a packed network has only floats"),
    "an answer that is no tensor": (lambda: Does(lambda x: (x + 1, x.shape[1])), "one of its outputs is int"),
    "an answer that is a constant": (lambda: Does(lambda x: (x + 1, torch.ones(2))), "its outputs is a tensor that"),
    "a constant per picture": (lambda: Does(lambda x: x + torch.randn(2, 1, 1, 1)), "fits only one batch"),
    "another norm": (lambda: Does(lambda x: F.normalize(x, p=1)), "only the Euclidean norm"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_packed_is_named(tmp_path: Path, name: str) -> None:
    build, words = REFUSED[name]
    path = tmp_path / "net.rbnn"
    path.write_bytes(b"what was there before")
    with pytest.raises(ExportError, match=words):
        rbnn.export(Around(build()), path, images())
    assert path.read_bytes() == b"what was there before"
    assert list(tmp_path.iterdir()) == [path]


class Pose(nn.Module):
    def __init__(self, decoder: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.maps, self.decoder = nn.Conv2d(3, 4, 3), Does(decoder)

    def forward(self, x: Tensor) -> Any:
        return self.decoder(self.maps(x))


@pytest.mark.parametrize("decoder", [
    lambda x: x[:, :, : int(x.max())], lambda x: x.flatten(1).topk(3)[0], lambda x: x.flatten(1).argmax(1)
])  # fmt: skip
def test_a_decoder_at_the_end_can_be_left_out(tmp_path: Path, decoder: Callable[[Tensor], Any]) -> None:
    model = Pose(decoder)
    with pytest.raises(ExportError, match=r"put nn.Identity\(\) in place of 'decoder' .*apply that module to the out"):
        rbnn.export(model, tmp_path / "net.rbnn", images())
    model.decoder = nn.Identity()
    rbnn.export(model, tmp_path / "net.rbnn", images())


def test_a_network_without_any_operation(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="nothing to pack"):
        rbnn.export(nn.Identity(), tmp_path / "net.rbnn", images())


@pytest.mark.parametrize(
    ("example", "words"),
    [
        (
            torch.zeros(3, 8, 8),
            r"does not accept the example input \(3, 8, 8\): add a batch dimension, \(1, 3, 8, 8\)$",
        ),
        (torch.zeros(4, 8, 8), r"does not accept the example input \(4, 8, 8\): Given groups"),
        (torch.zeros(8), "must be images"),
        (torch.zeros(0, 3, 8, 8), r"must be images .*, with N and all sizes at least 1, got \(0, 3, 8, 8\)"),
        ([1.0], "must be a torch tensor such as .*, got float"),
        (torch.full((1, 3, 8, 8), torch.nan), "NaN or infinite"),
        (torch.zeros(1, 4, 8, 8), r"Around does not accept the example input \(1, 4, 8, 8\): .*\[1, 4, 8, 8\]"),
    ],
)
def test_example_inputs(tmp_path: Path, example: Any, words: str) -> None:
    with pytest.raises(ExportError, match=words):
        rbnn.export(Around(nn.ReLU()), tmp_path / "net.rbnn", example)


@pytest.mark.parametrize(
    ("model", "example", "wanted"),
    [
        (nn.Conv2d(3, 8, 3), torch.zeros(3, 8, 8), "(N, C, H, W)"),
        (rbnn.BinaryConv2d(8, 8, 3), torch.zeros(8, 8, 8), "(N, C, H, W)"),
        (nn.Conv1d(3, 8, 3), torch.zeros(3, 8), "(N, C, L)"),
        (rbnn.BinaryConv1d(8, 8, 3), torch.zeros(8, 8), "(N, C, L)"),
    ],
)
def test_one_picture_without_a_batch(tmp_path: Path, model: nn.Module, example: Tensor, wanted: str) -> None:
    with pytest.raises(ExportError, match=re.escape(f"expected a batch {wanted}, got {tuple(example.shape)}")):
        rbnn.export(nn.Sequential(model, nn.ReLU()), tmp_path / "net.rbnn", example)


def test_one_grey_picture_without_a_batch(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU())
    words = r"Sequential does not accept the example input \(1, 8, 8\): add a batch dimension, \(1, 1, 8, 8\)$"
    with pytest.raises(ExportError, match=words):
        rbnn.export(model, tmp_path / "net.rbnn", torch.zeros(1, 8, 8))


class OnePicture(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.view(1, 3, 8, 8).relu()


def test_the_batch_of_two_is_shown_where_one_picture_would_do(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"OnePicture does not accept the example input \(2, 3, 8, 8\)"):
        rbnn.export(OnePicture(), tmp_path / "net.rbnn", torch.zeros(1, 3, 8, 8))


def test_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"the directory \S*no does not exist: create it before the export to"):
        rbnn.export(nn.Conv2d(3, 4, 3), tmp_path / "no" / "net.rbnn", images())
    with pytest.raises(ExportError, match=r"the directory \S*no does not exist"):
        rbnn.export_onnx("resnet20-bireal-digits", tmp_path / "no" / "net.onnx")


def test_a_torch_model_is_packed_before_onnx(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"got Conv2d: pack a torch model with rbnn\.export first"):
        rbnn.export_onnx(nn.Conv2d(3, 4, 3), tmp_path / "net.onnx")  # type: ignore[arg-type]


class InADict(nn.Module):
    def __init__(self, *names: str) -> None:
        super().__init__()
        self.conv, self.names = nn.Conv2d(3, 4, 3), names

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {name: self.conv(x) + place for place, name in enumerate(self.names)}


def test_one_map_in_a_dict_takes_names_of_classes(tmp_path: Path) -> None:
    path, classes = tmp_path / "net.rbnn", ("a", "b", "c", "d")
    rbnn.export(InADict("out"), path, images(), classes=classes)
    assert rbnn.Session(path).classes == classes
    with pytest.raises(ExportError, match=r"has 2 output tensors, got 4 class names: leave out classes$"):
        rbnn.export(InADict("out", "aux"), path, images(), classes=classes)
    with pytest.raises(ExportError, match=r"has 4 outputs, got 1 class name$"):
        rbnn.export(InADict("out"), path, images(), classes=["a"])


def test_swapped_arguments_are_named(tmp_path: Path) -> None:
    arguments: tuple[Any, ...] = (Around(nn.ReLU()), images(), tmp_path / "net.rbnn")
    with pytest.raises(ExportError, match="takes the model, then the path of the file, got Tensor as the path"):
        rbnn.export(*arguments)
    path_first: tuple[Any, ...] = (str(arguments[2]), arguments[0], images())
    with pytest.raises(ExportError, match="takes the model, then the path of the file, got str as the model"):
        rbnn.export(*path_first)


@pytest.mark.parametrize("name", ["", "file/net.rbnn", "/proc/net.rbnn"])
def test_a_path_that_cannot_be_written_is_named(name: str, tmp_path: Path) -> None:
    """A directory, a place below a file, and a directory that takes no new files."""
    (tmp_path / "file").touch()
    path = tmp_path / name
    said = "cannot export to .*name a file in a directory that you can write to$|does not exist: create it"
    with pytest.raises(ExportError, match=said):
        rbnn.export(Around(nn.ReLU()), path, images())


def test_numbers_that_are_not_finite(tmp_path: Path) -> None:
    model = Around(nn.Conv2d(12, 3, 1))
    with torch.no_grad():
        model.stem.weight[0, 0, 0, 0] = torch.inf
    with pytest.raises(ExportError, match=r"nn.Conv2d in 'stem' cannot be packed: its values are not all finite"):
        rbnn.export(model, tmp_path / "net.rbnn", images())


def test_hooks_stay_and_are_obeyed(tmp_path: Path) -> None:
    """A hook's change of a value is part of the network; the model keeps its own hooks and gets no others."""
    model = Around(nn.Conv2d(12, 9, 3)).eval()
    model.middle.register_forward_hook(lambda module, given, made: made.relu() * 2)
    model.stem.register_forward_pre_hook(lambda module, given: (given[0] + 1,))
    before = [(dict(m._forward_hooks), dict(m._forward_pre_hooks), "forward" in vars(m)) for m in model.modules()]
    rbnn.export(model, tmp_path / "net.rbnn", images())
    after = [(dict(m._forward_hooks), dict(m._forward_pre_hooks), "forward" in vars(m)) for m in model.modules()]
    assert after == before
    x = images()
    with torch.no_grad():
        wanted = model(x)
    torch.testing.assert_close(
        torch.from_numpy(Session(tmp_path / "net.rbnn")(x.numpy())), wanted, rtol=1e-4, atol=1e-5
    )


def test_the_model_is_left_as_it_was(tmp_path: Path) -> None:
    model = Around(rbnn.BinaryConv2d(12, 9, 3, method="rbnn"))
    model.train()
    model.stem.eval()
    model.middle.weight.grad = torch.ones_like(model.middle.weight)  # type: ignore[union-attr]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    before = torch.get_rng_state()
    rbnn.export(model, tmp_path / "net.rbnn", images())
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, state[name]) or value.isnan().all() for name, value in model.state_dict().items())
    assert torch.equal(model.middle.weight.grad, torch.ones_like(model.middle.weight))  # type: ignore[union-attr]
    assert all(parameter.requires_grad for parameter in model.parameters())
    torch.set_rng_state(before)


def test_a_double_model_is_exported_in_single_precision(tmp_path: Path) -> None:
    model = Around(nn.Conv2d(12, 3, 3)).double()
    rbnn.export(model, tmp_path / "net.rbnn", images().double())
    assert next(model.parameters()).dtype == torch.float64


def test_writing_over_a_value_changes_it_for_whoever_reads_it_later(tmp_path: Path) -> None:
    model = Around(Does(lambda x: F.relu(x, inplace=True) + x)).eval()
    rbnn.export(model, tmp_path / "net.rbnn", images())
    x = images()
    with torch.no_grad():
        wanted = model(x)
    torch.testing.assert_close(torch.from_numpy(Session(tmp_path / "net.rbnn")(x.numpy())), wanted)


def test_a_bug_in_a_handler_is_not_taken_for_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def relu(call: Call, x: Place, inplace: bool = False) -> str:
        return x.buffer + 1  # type: ignore[operator]

    monkeypatch.setitem(MODULES, nn.ReLU, relu)
    with pytest.raises(TypeError, match="can only concatenate str"):
        rbnn.export(Around(nn.ReLU()), tmp_path / "net.rbnn", images())


class _Forgetful(Method):
    """A user's method that lacks only what the export needs."""

    def weight(self, w: Tensor) -> ScaledSigns | Tensor:
        return ScaledSigns(self.signs(w), torch.tensor(0.5))

    def activation(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, 1.0, -1.0)


class _OtherThreshold(_Forgetful):
    def activation(self, x: Tensor) -> Tensor:
        return torch.where(x > 0.7, 1.0, -1.0)


class _OtherOutput(_Forgetful):
    def output(self, y: Tensor, x: Tensor) -> Tensor:
        return y * 1.01


class _ThreeValues(_Forgetful):
    def weight(self, w: Tensor) -> ScaledSigns | Tensor:
        return torch.where(w.abs() < 0.05, 0.0, 1.0) * self.signs(w)


@pytest.fixture
def own_method() -> Any:
    def make(kind: type[Method]) -> nn.Module:
        register_method("own")(type("Own", (kind,), {"__init__": lambda self, weight: Method.__init__(self)}))
        return Around(rbnn.BinaryConv2d(12, 9, 3, method="own"))

    yield make
    METHODS.pop("own", None)


def test_a_method_with_plain_signs_needs_no_binary_form(tmp_path: Path, own_method: Any) -> None:
    report = rbnn.export(own_method(_Forgetful), tmp_path / "net.rbnn", images())
    assert report.binary_layers == 1


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (_OtherThreshold, "nn.BinaryConv2d in 'middle' cannot be packed: binary_form of Own does not match the inputs"),
        (_OtherOutput, "layer 'middle': the packed output differs from torch's by 0.00"),
        (_ThreeValues, "are not signs with a scale: define its binary_form"),
    ],
)
def test_a_method_that_does_more_is_found_out(tmp_path: Path, own_method: Any, kind: type[Method], words: str) -> None:
    with pytest.raises(ExportError, match=words):
        rbnn.export(own_method(kind), tmp_path / "net.rbnn", images())
    assert not list(tmp_path.iterdir())
