"""A state dict records the method and options of its layers."""

import json
from typing import Any

import pytest
import torch
from test_every_method import every_variant
from torch import Tensor, nn

import rbnn
from rbnn.errors import ConfigError
from rbnn.methods import METHODS, create_method, method_options
from rbnn.methods.bnn import BNN
from rbnn.nn import BinaryConv2d, BinaryLinear

W = torch.randn(8, 8, 3, 3, generator=torch.Generator().manual_seed(0))

OTHER: dict[type, Any] = {bool: lambda v: not v, int: lambda v: v + 1, float: lambda v: v + 0.1}
SAME_TENSORS = [
    (name, option)
    for name in METHODS
    for option, default in method_options(name).items()
    if type(default) in OTHER
    and (name, option) not in {("abc-net", "activation_bases"), ("xnor++", "case"), ("rbnn", "scaled")}
]


def state_of(model: nn.Module) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in model.state_dict().items()}


@pytest.mark.parametrize(("name", "option"), SAME_TENSORS)
def test_other_options_are_refused(name: str, option: str) -> None:
    """Also options that change no tensor's shape, which nothing else would detect."""
    default = method_options(name)[option]
    value = {"until": 0.5, "rotate_until": 0.5, "beta_start": 0.5, "activation_bits": 2, "gradient_bits": 8}.get(
        option, OTHER[type(default)](default)
    )
    saved = state_of(BinaryConv2d(8, 8, 3, method=name))
    taken = BinaryConv2d(8, 8, 3, method=name, options={option: value})
    with pytest.raises(
        RuntimeError, match=rf"saved with {option} = {default!r}, .* {option} = {value!r}: .* strict=False"
    ):
        taken.load_state_dict(saved)
    found = taken.load_state_dict(saved, strict=False)
    assert [key.partition(" ")[0] for key in found.unexpected_keys] == ["method._extra_state"]
    assert torch.equal(taken.weight, saved["weight"])


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2))


def test_another_relu_is_refused() -> None:
    kept, replaced, again = small(), small(), small()
    rbnn.binarize_(kept, relu="keep")
    rbnn.binarize_(replaced, relu="hardtanh")
    rbnn.binarize_(again, relu="hardtanh")
    with pytest.raises(RuntimeError, match=r"2.method._extra_state \(saved with relu = 'hardtanh', .* relu = 'keep'"):
        kept.load_state_dict(replaced.state_dict())
    with pytest.raises(RuntimeError, match=r"2.method._extra_state \(saved with relu = 'keep', .* relu = 'hardtanh'"):
        replaced.load_state_dict(kept.state_dict())
    again.load_state_dict(replaced.state_dict())
    again[2].restart_method()  # type: ignore[operator]
    again.load_state_dict(replaced.state_dict())


def test_relus_that_are_not_there_make_no_difference() -> None:
    one, other = (nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2)) for _ in range(2))
    rbnn.binarize_(one, relu="keep")
    rbnn.binarize_(other, relu="hardtanh")
    one.load_state_dict(other.state_dict())


@every_variant
def test_states_from_before_options_were_recorded_still_load(name: str, options: dict[str, Any]) -> None:
    layer = BinaryLinear(9, 8, method=name, options=options)
    for progress in (float("nan"), 0.25):
        old = state_of(layer) | {"method._extra_state": torch.tensor([progress], dtype=torch.float64)}
        layer.load_state_dict(old)
        assert layer.method.progress == (None if progress != progress else progress)


def test_what_only_one_of_the_two_knows_is_not_compared() -> None:
    """An option of a later or an earlier version."""
    layer = BinaryLinear(9, 8)
    text = json.loads(layer.method.get_extra_state().numpy().tobytes())
    text["options"]["of_tomorrow"] = 1
    del text["options"]["cycles"]
    packed = torch.tensor(list(json.dumps(text).encode()), dtype=torch.uint8)
    layer.load_state_dict(state_of(layer) | {"method._extra_state": packed})


@pytest.mark.parametrize(
    "state",
    [
        torch.zeros(0, dtype=torch.uint8),
        torch.zeros(3, dtype=torch.uint8),
        torch.tensor(list(b"[]"), dtype=torch.uint8),
        torch.tensor(list(b"[" * 100_000), dtype=torch.uint8),
        torch.tensor(list(b'{"progress": "soon"}'), dtype=torch.uint8),
        torch.tensor(list(b'{"progress": 0, "options": 1}'), dtype=torch.uint8),
        torch.zeros(2),
        None,
    ],
)
def test_a_damaged_state_is_refused(state: Any) -> None:
    layer = BinaryLinear(9, 8)
    with pytest.raises(ConfigError, match="damaged"):
        layer.load_state_dict(state_of(layer) | {"method._extra_state": state})


def test_a_state_has_one_length_at_any_progress() -> None:
    """Checkpoints that are read in place need it."""
    method = create_method("rbnn", W)
    lengths = set()
    for progress in (None, 0.0, 1 / 3, 1.0, 1e-300 / 3):
        method.progress = progress
        state = method.get_extra_state()
        lengths.add(len(state))
        method.progress = 0.5
        method.set_extra_state(state)
        assert method.progress == progress
    assert len(lengths) == 1


def test_a_method_that_was_made_by_hand_takes_any_state_and_cannot_be_made_again() -> None:
    layer = BinaryConv2d(8, 8, 3, method="bnn")
    saved = state_of(layer)
    layer.adopt(BNN(layer.weight, estimator="ppf"))
    layer.load_state_dict(saved)
    assert "method='BNN'" in repr(layer)
    with pytest.raises(ConfigError, match="BNN was created without the registry"):
        layer.restart_method()


def test_a_method_shows_its_options() -> None:
    shown = repr(create_method("rbnn", W, standardise=False))
    assert shown.startswith("RBNN(rotation='filter', alpha='filter', beta_start=1.57")
    assert "standardise=False" in shown
    assert repr(create_method("bnn+", W)).startswith("BNNPlus(regulariser='r1', strength=1e-06, scale='filter'")


def test_a_start_from_other_options_is_no_loading() -> None:
    """Rotations and scales are kept wherever they fit, whatever the options."""
    before, method = create_method("rbnn", W), create_method("rbnn", W + 1, cycles=7)
    assert method.continue_from(before)
    assert torch.equal(method.get_buffer("R1"), before.get_buffer("R1"))
    assert "cycles=7" in repr(method)
