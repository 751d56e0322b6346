"""Properties of every registered method."""

import copy
import warnings
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from formulas import SHAPES
from torch import Tensor, nn

import rbnn
from rbnn import data
from rbnn.functional import ESTIMATORS, as_tensor
from rbnn.methods import METHODS, create_method, method_options
from rbnn.nn import BinaryConv2d, binary_layers

every_method = pytest.mark.parametrize("name", METHODS)

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in METHODS),
    ("xnor-net", {"k_map": True, "gradient": "paper"}),
    ("xnor-net", {"gradient": "sgd"}),
    *(("xnor++", {"case": case}) for case in (1, 2, 3)),
    ("dorefa", {"activation_bits": 2, "gradient_bits": 6}),
    ("abc-net", {"weight_bases": 3, "activation_bases": 2}),
    ("bnn+", {"regulariser": "r2", "scale": "layer"}),
    ("bi-real", {"gradient": "release"}),
]
every_variant = pytest.mark.parametrize(("name", "options"), VARIANTS, ids=lambda v: str(v).replace("'", ""))


def digits(count: int) -> tuple[Tensor, Tensor]:
    found = data.load("digits", ".", "train")
    assert isinstance(found, data.ImageSet)
    images = torch.from_numpy(found.images[:count].astype(np.float32)).permute(0, 3, 1, 2) / 255
    images = (images - torch.tensor(found.mean)[:, None, None]) / torch.tensor(found.std)[:, None, None]
    return images, torch.from_numpy(found.labels[:count].astype(np.int64))


def network(name: str, options: dict[str, Any]) -> nn.Module:
    """ResNet-20 in which only the binary layers learn.  Stem, head and batch norms are frozen; the gammas of the blocks
    are small, so that a flipped sign has little effect on the whole network."""
    model = rbnn.create_model("resnet20-bireal", name, in_channels=1, image_size=8, **options)
    for part, module in model.named_modules():
        if isinstance(module, nn.BatchNorm2d) and part.startswith("layers."):
            nn.init.constant_(module.weight, 0.1)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
        if part in ("conv1", "fc") or isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d):
            module.requires_grad_(False)
    return model


def train(
    model: nn.Module, optimizer: Any, schedule: rbnn.BinarySchedule, steps: range, count: int = 48
) -> list[float]:
    images, labels = digits(count)
    losses = []
    for step in steps:
        schedule.step(step / 8)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        (loss + rbnn.penalty(model)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@every_method
@pytest.mark.parametrize("structure", ["resnet20", "resnet20-bireal"])
def test_a_network_starts_with_inputs_that_the_method_can_tell_apart(name: str, structure: str) -> None:
    """With gammas of 1e-8, signs distinguish inputs, but a threshold at ½ does not."""
    model = rbnn.create_model(structure, name, in_channels=1, image_size=8)
    seen: list[Tensor] = []
    for _, layer in binary_layers(model):
        layer.register_forward_pre_hook(lambda layer, x: seen.append(layer.method.activation(x[0])))
    with torch.no_grad():
        model(digits(16)[0])
    assert len(seen) == 18
    assert min(float(values.std()) for values in seen) > 0.1


@every_variant
def test_the_loss_falls_by_the_binary_layers_alone(name: str, options: dict[str, Any]) -> None:
    model = network(name, options)
    frozen = {n: p.clone() for n, p in model.named_parameters() if not p.requires_grad}
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 0.01)
    losses = train(model, optimizer, rbnn.BinarySchedule(model, optimizer, 2), range(6))
    assert losses[-1] < 0.5 * losses[0], losses
    assert all(torch.equal(p, frozen[n]) for n, p in model.named_parameters() if n in frozen)


@every_variant
def test_a_resumed_training_continues_bit_for_bit(name: str, options: dict[str, Any]) -> None:
    def fresh() -> tuple[nn.Module, torch.optim.SGD, rbnn.BinarySchedule]:
        torch.manual_seed(1)
        model = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), BinaryConv2d(8, 9, 3, method=name, options=options),
            nn.BatchNorm2d(9), nn.Flatten(), nn.Linear(144, 10),
        )  # fmt: skip
        with torch.no_grad():
            model.eval()(torch.zeros(1, 1, 8, 8))
        optimizer = torch.optim.SGD(model.train().parameters(), 0.05, momentum=0.9)
        return model, optimizer, rbnn.BinarySchedule(model, optimizer, 4)

    whole, first, second = fresh(), fresh(), fresh()
    torch.manual_seed(2)
    train(*first, range(3), count=8)
    drawn = torch.get_rng_state()
    torch.manual_seed(2)
    train(*whole, range(7), count=8)
    for old, new in zip(first, second, strict=True):
        new.load_state_dict(copy.deepcopy(old.state_dict()))
    torch.set_rng_state(drawn)
    train(*second, range(3, 7), count=8)
    for key, value in whole[0].state_dict().items():
        assert torch.equal(value, second[0].state_dict()[key]), key
    for model in (whole[0], second[0]):
        model.eval()
    images, _ = digits(8)
    assert torch.equal(whole[0](images), second[0](images))


WITH_ESTIMATOR = [
    (name, option) for name in METHODS for option in method_options(name) if option in ("estimator", "weight_estimator")
]


def test_most_methods_have_an_estimator() -> None:
    assert {name for name, _ in WITH_ESTIMATOR} == set(METHODS) - {"dsq"}


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(("name", "option"), WITH_ESTIMATOR)
def test_every_estimator_in_every_method(name: str, option: str, estimator: str) -> None:
    layer = BinaryConv2d(8, 4, 3, method=name, options={option: estimator})
    with torch.no_grad():
        layer.eval()(torch.zeros(1, 8, 6, 6))
    layer.train()
    gradients = []
    for epoch in (0, 4, 8):
        layer.method.begin_epoch(layer.weight, epoch, 8)
        x = torch.randn(2, 8, 6, 6, generator=torch.Generator().manual_seed(1)).requires_grad_()
        layer.weight.grad = None
        layer(x).square().sum().backward()
        assert x.grad is not None
        assert layer.weight.grad is not None
        for gradient in (x.grad, layer.weight.grad):
            assert bool(torch.isfinite(gradient).all())
            assert float(gradient.abs().max()) > 0
        gradients.append(torch.cat([x.grad.flatten(), layer.weight.grad.flatten()]))
    moves = not torch.equal(gradients[0], gradients[1])
    if name != "rbnn":  # whose rotation moves too
        annealed = {"training-aware", "ede", "annealed-tanh"}
        others = set(method_options(name).values()) if option == "estimator" else {estimator}
        assert moves == (estimator in annealed or bool(others & annealed and name != "ir-net"))


@every_variant
@pytest.mark.parametrize("value", [0.0, 0.7, -0.7])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_constant_weights_and_inputs_give_no_nan(
    name: str, options: dict[str, Any], value: float, shape: tuple[int, ...]
) -> None:
    w = torch.full(shape, value, requires_grad=True)
    method = create_method(name, w, **options)
    x = torch.full((2, shape[1], 3, 3) if len(shape) == 4 else (2, shape[1]), value, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for epoch in (0, 4, 8):
            method.begin_epoch(w.detach(), epoch, 8)
            out = as_tensor(method.weight(w)), method.activation(x)
            total = sum(o.square().sum() for o in out) + sum(o.sum() for o in out)
            (total + (method.penalty(w) or 0.0)).backward()  # type: ignore[union-attr]
            with torch.no_grad():
                method.after_step(w)
    assert w.grad is not None
    assert x.grad is not None
    held = [w, w.grad, x.grad, *out, *method.buffers()]
    for parameter in method.parameters():
        held += [parameter, *([] if parameter.grad is None else [parameter.grad])]
    assert all(bool(torch.isfinite(tensor).all()) for tensor in held)


@every_method
def test_evaluation_depends_on_the_state_alone(name: str) -> None:
    """No batch statistics: an image's output is the same alone and in a batch."""
    layer = BinaryConv2d(8, 4, 3, method=name).eval()
    x = torch.randn(5, 8, 6, 6) * torch.arange(1, 6)[:, None, None, None]
    whole = layer(x)
    torch.testing.assert_close(torch.cat([layer(one[None]) for one in x]), whole)
    assert torch.equal(copy.deepcopy(layer)(x), whole)
