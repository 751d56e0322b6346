"""Which operations are fused, and that thresholds are exactly equivalent to what they replace."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from user_networks import NETWORKS, Around

import rbnn
from rbnn.exporting.draft import Draft
from rbnn.exporting.thresholds import use_thresholds
from rbnn.models import RPReLU
from rbnn.packed import file as packfile
from rbnn.packed import formulas
from rbnn.packed.graph import Graph
from rbnn.packed.operations import Buffer, Operation
from rbnn.packed.session import Session


def exported(path: Path, model: nn.Module, *shape: int) -> Graph:
    rbnn.export(model, path / "net.rbnn", torch.randn(2, *shape))
    return packfile.read(path / "net.rbnn")


def kinds(graph: Graph) -> list[str]:
    return [operation.kind for operation in graph.operations]


@pytest.mark.parametrize("name", ["pool, norm, sign", "norm, clamp, pool, sign", "pool, prelu, sign"])
def test_pools_between_binary_layers_work_on_bits(tmp_path: Path, name: str) -> None:
    graph = exported(tmp_path, Around(NETWORKS[name]()).eval(), 3, 13, 11)
    assert kinds(graph) == ["float_conv", "binary_conv", "max_pool_bits", "binary_conv"]
    assert "threshold" in graph.operations[1].tensors


def test_a_bi_real_network_is_nothing_but_convolutions_and_shortcuts(tmp_path: Path) -> None:
    graph = exported(tmp_path, rbnn.create_model("resnet20-bireal", "bi-real"), 3, 32, 32)
    assert kinds(graph) == [
        "float_conv", *["binary_conv"] * 6, "slice", "pad", *["binary_conv"] * 6, "slice", "pad", *["binary_conv"] * 6,
        "mean", "affine", "float_conv",
    ]  # fmt: skip
    middle = graph.operations[2]
    assert (set(middle.inputs), set(middle.outputs)) == ({"x", "residual"}, {"float", "bits"})
    assert middle.attributes["activation"] == ["hardtanh", -1.0, 1.0]


@pytest.mark.parametrize("name", ["binary, groups", "binary, groups, centred"])
def test_groups_are_one_operation(tmp_path: Path, name: str) -> None:
    graph = exported(tmp_path, Around(NETWORKS[name]()).eval(), 3, 13, 11)
    grouped = [operation for operation in graph.operations if operation.attributes.get("groups", 1) > 1]
    assert [operation.kind for operation in grouped] == ["binary_conv"]
    assert {"slice", "concat"}.isdisjoint(kinds(graph))


@pytest.mark.parametrize(
    ("shortcut", "steps"),
    [
        ("option-a", ["slice", "pad"]),
        ("pool-pad", ["avg_pool", "pad"]),
        ("pool-conv", ["avg_pool", "float_conv"]),
        ("conv", ["float_conv"]),
    ],
)
def test_shifts_behind_an_activation_cost_nothing(tmp_path: Path, shortcut: str, steps: list[str]) -> None:
    """Signs, sums, pools, 1×1 convolutions and the last batch norm each read the shifts in their own way."""
    torch.manual_seed(0)
    model = rbnn.create_model("resnet20-bireal", "bi-real", activation="rprelu", shortcut=shortcut)
    for module in model.modules():
        if isinstance(module, RPReLU):
            for values in (module.shift_in, module.weight, module.shift_out):
                torch.nn.init.normal_(values)
    graph = exported(tmp_path, model, 3, 32, 32)
    stage = ["binary_conv"] * 6
    found = kinds(graph)
    if shortcut.endswith("conv"):  # whichever of branch and shortcut is computed later adds the other
        assert sorted(found) == sorted(["float_conv", *stage * 3, *steps * 2, "mean", "affine", "float_conv"])
    else:
        assert found == ["float_conv", *stage, *steps, *stage, *steps, *stage, "mean", "affine", "float_conv"]
    middle = next(operation for operation in graph.operations if operation.name.startswith("layers.0.1.conv1"))
    assert (set(middle.inputs), set(middle.outputs)) == ({"x", "residual"}, {"float", "bits"})
    assert {"scale", "shift", "slope", "level"} < set(middle.tensors)


@pytest.mark.parametrize(("dim", "side"), [(1, 12), (2, 13), (3, 11)])
def test_shifts_pass_a_selection(tmp_path: Path, dim: int, side: int) -> None:
    """In the new order of the channels; rows and columns have the same shifts."""
    places = torch.randint(side, (20,), generator=torch.Generator().manual_seed(0))

    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shift, self.out = nn.Parameter(torch.randn(1, 12, 1, 1)), nn.Conv2d(20 if dim == 1 else 12, 5, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out((torch.relu(x) + self.shift).index_select(dim, places))

    torch.manual_seed(0)
    model = Around(Shifted()).eval()
    assert kinds(exported(tmp_path, model, 3, 13, 11)) == ["float_conv", "select", "float_conv"]
    images = torch.randn(3, 3, 13, 11)
    wanted = model(images).detach().numpy()
    np.testing.assert_allclose(Session(tmp_path / "net.rbnn")(images.numpy()), wanted, rtol=1e-4, atol=1e-4)


def test_between_the_layers_of_a_basic_block_flow_bits_alone(tmp_path: Path) -> None:
    graph = exported(tmp_path, rbnn.create_model("resnet20", "xnor-net"), 3, 32, 32)
    alone = [operation for operation in graph.operations if set(operation.outputs) == {"bits"}]
    assert len(alone) == 9
    assert all(set(operation.tensors) == {"weight", "threshold"} for operation in alone)


def test_centring_is_one_step_before_each_binary_layer(tmp_path: Path) -> None:
    graph = exported(tmp_path, rbnn.create_model("vgg-small", "rbnn", image_size=16), 3, 16, 16)
    packs = [operation for operation in graph.operations if operation.kind == "pack"]
    assert [pack.attributes for pack in packs] == [{"level": "mean"}] * 5
    # If all gammas are positive, as in a new network, norm and clamp move before the pool.
    assert kinds(graph) == [
        "float_conv", "pack", "binary_conv", "max_pool", "pack", "binary_conv", "pack", "binary_conv", "max_pool",
        "pack", "binary_conv", "pack", "binary_conv", "max_pool", "reshape", "float_conv",
    ]  # fmt: skip


def test_bases_and_planes_share_what_they_can(tmp_path: Path) -> None:
    model = rbnn.create_model("resnet20", "abc-net", weight_bases=2, activation_bases=3)
    graph = exported(tmp_path, model, 3, 32, 32)
    layer = [operation for operation in graph.operations if operation.name.startswith("layers.0.0.conv1.base")]
    assert len(layer) == 6
    assert len({id(operation.tensors["weight"]) for operation in layer}) == 2
    assert len({operation.inputs["x"] for operation in layer}) == 3
    assert "affine" not in kinds(graph)[:-2]  # the batch norm's factor was applied to the whole chain


@pytest.mark.parametrize("activation", [None, ["hardtanh", -1.0, 1.0], ["relu"], ["leaky_relu", 0.1], ["sigmoid"]])
@pytest.mark.parametrize("level", [0.0, 0.3, -0.6])
def test_a_threshold_passes_what_the_finish_would(activation: list[object] | None, level: float) -> None:
    """For every possible sum of 9 taps of 5 channels, and all kinds of factors."""
    rng = np.random.default_rng(0)
    scale = np.concatenate([[0.0, 0.0, 0.0, 1e-8, -1e-8, 1e-30, -3.0], rng.normal(scale=0.1, size=40)])
    shift = np.concatenate([[0.0, 1e-9, -1e-9, 0.0, 1e-8, 5.0, 1.5], rng.normal(size=40)])
    weight = rng.choice([-1, 1], size=(len(scale), 3, 3, 5)).astype(np.int8)
    tensors = {"weight": weight, "scale": scale, "shift": shift, "level": np.full(len(scale), level)}
    attributes = {"kernel": [3, 3]} | ({} if activation is None else {"activation": activation})
    conv = Operation("binary_conv", "one", {"x": "a"}, {"bits": "b"}, dict(tensors), dict(attributes))
    use_thresholds(Draft("a", {"a": Buffer("bits", (3, 3, 5))}, [conv]))
    assert set(conv.tensors) == {"weight", "threshold"}
    turned = np.where((conv.tensors["weight"] == weight).all((1, 2, 3)), 1, -1)
    np.testing.assert_array_equal(turned, np.where(scale < 0, -1, 1))
    for total in range(-45, 46):
        value = np.asarray(total * scale + shift)
        if activation is not None:
            value = formulas.activation(value, {}, {"activation": activation})
        np.testing.assert_array_equal(turned * total > conv.tensors["threshold"], value > level)
