"""Which parameters decay, and the learning rate over a run."""

from math import cos, pi

import pytest
from torch import nn

from rbnn.models import create_model
from rbnn.nn import BinaryConv2d, binary_layers
from rbnn.training.config import TrainConfig
from rbnn.training.optimizer import create_optimizer, learning_rate, parameter_groups, set_learning_rate


def decays(model: nn.Module, weight_decay: float, decay: str) -> dict[str, float]:
    """Weight decay by name of the parameter; each parameter is in exactly one group."""
    names = {id(p): name for name, p in model.named_parameters()}
    found: dict[str, float] = {}
    for group in parameter_groups(model, weight_decay, decay):
        for parameter in group["params"]:
            assert names[id(parameter)] not in found
            found[names[id(parameter)]] = group["weight_decay"]
    assert set(found) == set(names.values())
    return found


@pytest.mark.parametrize("beta_decay", [1.0, 0.0, 2.5])
def test_weights_decay_and_scales_do_not(beta_decay: float) -> None:
    model = create_model("resnet20-bireal", beta_decay=beta_decay, image_size=8)
    weights = {f"{n}.weight" for n, m in model.named_modules() if isinstance(m, nn.Conv2d | nn.Linear)}
    betas = {f"{n}.method.beta" for n, _ in binary_layers(model)}
    assert len(weights) == 20
    assert len(betas) == 18
    for name, value in decays(model, 0.01, "weights").items():
        expected = 0.01 if name in weights else 0.01 * beta_decay if name in betas else 0.0
        assert value == pytest.approx(expected), name


def test_all_decay() -> None:
    model = create_model("resnet20-bireal", image_size=8)
    assert set(decays(model, 0.01, "all").values()) == {0.01}


def test_batch_norm_bias_and_scale_by_name() -> None:
    model = nn.Sequential(BinaryConv2d(8, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 2))
    assert decays(model, 1e-4, "weights") == {
        "0.weight": 1e-4,
        "0.bias": 0.0,
        "0.method.scale": 0.0,
        "0.method.beta": 1e-4,
        "1.weight": 0.0,
        "1.bias": 0.0,
        "3.weight": 1e-4,
        "3.bias": 0.0,
    }


def test_the_optimizer_is_sgd_with_these_groups() -> None:
    model = create_model("resnet20", method="float", image_size=8)
    optimizer = create_optimizer(model, TrainConfig(lr=0.3, momentum=0.7, weight_decay=5e-4, decay="weights"))
    assert {(g["lr"], g["momentum"], g["weight_decay"], g["nesterov"]) for g in optimizer.param_groups} == {
        (0.3, 0.7, 5e-4, False),
        (0.3, 0.7, 0.0, False),
    }


def test_weights_behind_signs_learn_at_their_own_rate() -> None:
    model = create_model("resnet20-bireal", image_size=8)
    optimizer = create_optimizer(model, TrainConfig(lr=0.3, binary_lr=5.0))
    behind_signs = {id(layer.weight) for _, layer in binary_layers(model)}
    assert len(behind_signs) == 18
    for peak in (0.3, 0.02):
        set_learning_rate(optimizer, peak)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                assert group["lr"] == pytest.approx(5 * peak if id(parameter) in behind_signs else peak)
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(model.parameters()))


@pytest.mark.parametrize("decay", ["all", "weights"])
def test_weights_behind_signs_decay_apart(decay: str) -> None:
    model = create_model("resnet20-bireal", image_size=8)
    config = TrainConfig(weight_decay=1e-3, binary_decay=0.25, decay=decay)  # type: ignore[arg-type]
    behind_signs = {id(layer.weight) for _, layer in binary_layers(model)}
    for group in create_optimizer(model, config).param_groups:
        for parameter in group["params"]:
            if id(parameter) in behind_signs:
                assert group["weight_decay"] == pytest.approx(0.25e-3)
            else:
                assert group["weight_decay"] in ((1e-3,) if decay == "all" else (1e-3, 0.0))


def test_learning_rate_at_start_peak_middle_and_end() -> None:
    config = TrainConfig(epochs=105, lr=0.4, warmup=5)
    assert learning_rate(config, 0) == 0
    assert learning_rate(config, 2.5) == pytest.approx(0.2)
    assert learning_rate(config, 5) == pytest.approx(0.4)
    assert learning_rate(config, 55) == pytest.approx(0.2)  # half of the cosine
    assert learning_rate(config, 30) == pytest.approx(0.2 * (1 + 2**-0.5))
    assert learning_rate(config, 105) == pytest.approx(0)
    for epoch in range(5, 106):
        assert learning_rate(config, epoch) == pytest.approx(0.4 * cos(pi / 2 * (epoch - 5) / 100) ** 2)


@pytest.mark.parametrize(
    ("epochs", "warmup", "used"), [(20, 5, 2.0), (50, 5, 5.0), (400, 5, 5.0), (1, 5, 0.1), (8, 0, 0)]
)
def test_warm_up_is_at_most_a_tenth(epochs: int, warmup: int, used: float) -> None:
    config = TrainConfig(epochs=epochs, warmup=warmup, lr=1.0)
    rates = [learning_rate(config, epochs * i / 1000) for i in range(1001)]
    assert epochs * rates.index(max(rates)) / 1000 == pytest.approx(used, abs=epochs / 1000)
    assert learning_rate(config, used) == pytest.approx(1.0)
