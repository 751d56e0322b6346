"""Wrong models are rejected, and the error names the layer."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper
from packed_networks import small_network

from rbnn.errors import ExportError
from rbnn.translating.onnx_check import compare
from rbnn.translating.onnx_model import OnnxNetwork, to_onnx

IMAGES = np.random.default_rng(0).normal(size=(3, 3, 8, 8)).astype(np.float32)


@pytest.mark.parametrize("qonnx", [False, True])
def test_a_right_model_is_accepted(qonnx: bool) -> None:
    """The bits of layer two are pooled before anything reads them, so they are compared after the pool."""
    found = compare(small_network(), to_onnx(small_network(), qonnx=qonnx), IMAGES)
    assert [each.name for each in found.operations] == ["stem", "pack", "one", "pool", "three", "mean", "fc"]
    assert (found.images, found.images_with_near_ties) == (3, 0)
    assert sum(each.signs for each in found.operations) == 3 * (2 * 8 * 8 * 16 + 2 * 2 * 32)
    assert sum(each.near_ties for each in found.operations) == 0
    assert max(each.difference for each in found.operations) < 1e-6
    assert found.answer_difference < 1e-6


def change(network: OnnxNetwork, tensor: str, to: Callable[[Any], Any]) -> None:
    (found,) = [each for each in network.model.graph.initializer if each.name == tensor]
    found.CopyFrom(numpy_helper.from_array(to(numpy_helper.to_array(found)), tensor))


@pytest.mark.parametrize(
    ("tensor", "to", "says"),
    [
        ("stem.weight", lambda w: w * np.float32(1.001), "layer 'stem': ONNX Runtime's output differs from the packed"),
        ("one.bits", lambda bits: bits ^ np.uint8(1), "layer 'one': ONNX Runtime's output differs"),
        (
            "two.bits",
            lambda bits: bits ^ np.uint8(255),
            "layer 'pool': .* of 384 signs differ from the packed network's",
        ),
        ("fc.bias", lambda bias: bias + np.float32(0.01), "layer 'fc': ONNX Runtime's output differs"),
    ],
)
def test_a_wrong_model_is_refused(tensor: str, to: Callable[[Any], Any], says: str) -> None:
    network = to_onnx(small_network())
    change(network, tensor, to)
    with pytest.raises(ExportError, match=says):
        compare(small_network(), network, IMAGES)


def test_a_model_that_onnx_runtime_does_not_run_is_refused_in_a_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    network = to_onnx(small_network())
    (node,) = [each for each in network.model.graph.node if each.name == "stem/Conv"]
    node.attribute.append(helper.make_attribute("group", 2))
    with pytest.raises(ExportError, match=r"^ONNX Runtime does not run the model: .*stem/Conv") as refused:
        compare(small_network(), network, IMAGES)
    assert "\n" not in str(refused.value)
    assert capfd.readouterr().err == ""
