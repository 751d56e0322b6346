"""The comparison with torch detects errors and names the layer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import rbnn
from rbnn.errors import ExportError
from rbnn.exporting import pack
from rbnn.exporting.check import compare
from rbnn.exporting.draft import TorchValue
from rbnn.exporting.int8 import Rounding
from rbnn.packed.graph import Graph, Input


class Small(nn.Module):
    """A float layer, a layer with a threshold, one with a shortcut, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 20, 3, padding=1)
        self.one = rbnn.BinaryConv2d(20, 20, 3, padding=1, method="xnor-net")
        self.norm = nn.BatchNorm2d(20)
        self.two = rbnn.BinaryConv2d(20, 20, 3, padding=1, method="xnor-net")
        self.head = nn.Linear(20, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.hardtanh(self.stem(x))
        y = nn.functional.hardtanh(self.norm(self.one(x)))
        y = nn.functional.hardtanh(self.two(y) + x)
        return self.head(y.mean((2, 3)))  # type: ignore[no-any-return]


Packed = tuple[Graph, dict[str, TorchValue], torch.Tensor, list[torch.Tensor]]


@pytest.fixture
def packed() -> Packed:
    images = torch.randn(3, 3, 9, 9)
    draft, traced = pack(Small(), images, Rounding.of("float32", "float32", (), (), 3))
    return draft.graph(Input("image")), draft.torch_values, images, traced.answers


def changed(name: str, change: Callable[[Any], Any]) -> Callable[[Graph], None]:
    def apply(graph: Graph) -> None:
        layer, _, role = name.rpartition(".")
        (operation,) = (each for each in graph.operations if each.name == layer)
        operation.tensors[role] = change(operation.tensors[role])

    return apply


def first_bit(weight: Any) -> Any:
    """Flip one bit of one filter."""
    weight = weight.copy()
    weight[3, 1, 1, 0] ^= 1
    return weight


def test_what_is_right_passes(packed: Packed) -> None:
    found = compare(*packed)
    assert [each.name for each in found.operations] == ["stem", "one", "two", "mean", "head"]
    assert [each.signs for each in found.operations] == [3 * 81 * 20, 3 * 81 * 20, 0, 0, 0]
    assert found.images == 3
    assert max(each.difference for each in found.operations) < 1e-5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (changed("stem.weight", lambda w: w * np.float32(1.001)), "layer 'stem': the packed output differs"),
        (changed("stem.shift", lambda b: b + np.float32(0.001)), "layer 'stem': the packed output differs"),
        (changed("one.threshold", lambda t: t + np.int32(2)), r"layer 'one': \d+ of 4860 signs differ"),
        (changed("one.weight", first_bit), r"layer 'one': \d+ of 4860 signs differ"),
        (changed("two.weight", first_bit), "layer 'two': the packed output differs"),
        (changed("two.scale", lambda s: s * np.float32(1.001)), "layer 'two': the packed output differs"),
        (changed("head.weight", lambda w: -w), "layer 'head': the packed output differs"),
    ],
)
def test_what_is_wrong_is_named(packed: Packed, change: Callable[[Graph], None], words: str) -> None:
    change(packed[0])
    with pytest.raises(ExportError, match=words):
        compare(*packed)


def test_a_sign_at_its_threshold_is_a_near_tie(packed: Packed) -> None:
    """Torch gives +1 and the packed layer −1 for a value that equals the threshold up to rounding."""
    graph, torch_values, images, answers = packed
    name = graph.operations[0].outputs["bits"]
    torch_value = torch_values[name]
    assert torch_value.signs is not None
    value, signs = torch_value.value.clone(), torch_value.signs.clone()
    place = tuple(int(each) for each in (signs < 0).nonzero()[0])
    signs[place] = 1.0
    for size, near in ((3e-6, True), (1e-5, False)):
        value[place] = size * float(value[place[0]].abs().max())
        tampered = torch_values | {name: TorchValue(value, torch_value.level, signs)}
        if near:
            stem = compare_first(graph, tampered, images, answers)
            assert stem == 1
        else:
            with pytest.raises(ExportError, match=r"layer 'stem': 1 of 4860 signs differ .* more than 4e-06"):
                compare_first(graph, tampered, images, answers)


def compare_first(
    graph: Graph, torch_values: dict[str, TorchValue], images: torch.Tensor, answers: torch.Tensor
) -> int:
    """Near-ties of the first operation; later operations are not compared."""
    known = {name: torch_values[name] for name in graph.operations[0].outputs.values()}
    return compare(graph, known, images, answers).operations[0].near_ties


def test_answers_are_compared_too(packed: Packed) -> None:
    graph, torch_values, images, answers = packed
    with pytest.raises(ExportError, match=r"outputs differ from torch's by .* although no sign differs"):
        compare(
            graph,
            {name: each for name, each in torch_values.items() if each.signs is not None},
            images,
            [answers[0] + 0.1],
        )


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("side", [224, 448])
def test_averages_over_large_pictures(size: int, side: int, tmp_path: Path) -> None:
    """Torch sums averages in float32, one value after the other; the engine sums them in double."""
    model = nn.Sequential(nn.Conv2d(3, 2, 1), nn.Hardtanh(), nn.AdaptiveAvgPool2d(size), nn.Flatten())
    images = torch.full((1, 3, side, side), 0.1)
    rbnn.export(model, tmp_path / "net.rbnn", example_input=images)


@pytest.mark.parametrize("signs", [False, True])
def test_a_batch_norm_may_cancel_its_input(tmp_path: Path, signs: bool) -> None:
    """Before training the channels of a pooled branch may not vary at all, so that their norm leaves nothing but
    rounding."""
    conv, norm = rbnn.BinaryConv2d(32, 64, 1, bias=False, method="xnor-net"), nn.BatchNorm2d(64)
    with torch.no_grad():
        same = conv(torch.ones(1, 32, 1, 1)).flatten()
    norm.running_mean, norm.running_var = same, torch.zeros(64)
    nn.init.uniform_(norm.weight, 0.5, 2)
    branch = nn.Sequential(nn.Conv2d(3, 32, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), conv, norm)
    nn.init.ones_(branch[0].bias)  # type: ignore[arg-type]
    nn.init.zeros_(branch[0].weight)  # type: ignore[arg-type]
    reader = rbnn.BinaryConv2d(64, 16, 1, method="bnn") if signs else nn.Identity()
    report = rbnn.export(nn.Sequential(branch, reader, nn.Flatten()), tmp_path / "net.rbnn", torch.randn(2, 3, 4, 4))
    assert report.answer_difference < 1e-3
