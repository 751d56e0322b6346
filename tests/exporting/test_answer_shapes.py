"""An output has the shape that the network returned, also if sides are 1."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import rbnn
from rbnn.packed import oracle


class Ending(nn.Module):
    """A convolution and a function of its map."""

    def __init__(self, conv: nn.Module, end: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.conv, self.end = conv, end

    def forward(self, x: Tensor) -> Tensor:
        return self.end(self.conv(x))


def pooled(x: Tensor) -> Tensor:
    return x.mean(tuple(range(2, x.dim())), keepdim=True)


PICTURES: dict[str, Callable[[Tensor], Tensor]] = {
    "a map of one pixel": pooled,
    "a vector": lambda x: x.mean((2, 3)),
    "a row": lambda x: x.mean(2),
    "a row of one pixel": lambda x: pooled(x)[:, :, 0],
    "a number": lambda x: x.mean((1, 2, 3)),
    "a map": lambda x: x,
}
SIGNALS: dict[str, Callable[[Tensor], Tensor]] = {
    "a signal of one sample": pooled,
    "a vector": lambda x: x.mean(2),
    "a signal": lambda x: x,
    "a picture of one row": lambda x: x[:, :, None],
}


@pytest.mark.parametrize("end", PICTURES.values(), ids=list(PICTURES))
@pytest.mark.parametrize("height", [1, 6])
def test_pictures(tmp_path: Path, end: Callable[[Tensor], Tensor], height: int) -> None:
    torch.manual_seed(0)
    compare(tmp_path, Ending(nn.Conv2d(3, 4, (1, 3)), end), torch.randn(2, 3, height, 7))


@pytest.mark.parametrize("end", SIGNALS.values(), ids=list(SIGNALS))
def test_signals(tmp_path: Path, end: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    compare(tmp_path, Ending(nn.Conv1d(3, 4, 3), end), torch.randn(2, 3, 7))


def compare(tmp_path: Path, model: nn.Module, x: Tensor) -> None:
    rbnn.export(model, tmp_path / "net.rbnn", x)
    session, wanted = rbnn.Session(tmp_path / "net.rbnn"), model(x).detach().numpy()
    answer = session(x.numpy())
    assert answer.shape == wanted.shape
    np.testing.assert_allclose(answer, wanted, rtol=1e-5, atol=1e-6)
    assert session(x.numpy()[:1]).shape == (1, *wanted.shape[1:])
    if x.dim() == 4:
        assert oracle.run(session.graph, x.numpy()).shape == wanted.shape


@pytest.mark.parametrize(("conv", "sides"), [(nn.Conv2d(3, 4, 5), (5, 5)), (nn.Conv1d(3, 4, 5), (5,))])
def test_a_single_pixel_at_the_size_of_the_example(tmp_path: Path, conv: nn.Module, sides: tuple[int, ...]) -> None:
    """With free sizes: one pixel for the example, more for larger images."""
    path = tmp_path / "net.rbnn"
    rbnn.export(conv, path, torch.randn(2, 3, *sides), free_size=True)
    for more in (0, 1, 2):
        x = torch.randn(2, 3, *(side + more for side in sides))
        answer, wanted = rbnn.Session(path)(x.numpy()), conv(x).detach().numpy()
        assert answer.shape == wanted.shape
        np.testing.assert_allclose(answer, wanted, rtol=1e-4, atol=1e-5)


def test_a_classifier_that_ends_in_a_map_of_one_pixel_still_classifies(tmp_path: Path) -> None:
    torch.manual_seed(0)
    path = tmp_path / "net.rbnn"
    model = Ending(nn.Conv2d(3, 4, 3), pooled)
    rbnn.export(model, path, torch.randn(2, 3, 8, 8), mean=0.5, std=0.25, classes=list("abcd"))
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8))
    prediction = rbnn.Session(path).predict(picture)
    assert prediction.probabilities.shape == (4,)
    assert prediction.probabilities.sum() == pytest.approx(1)
    assert prediction.name in "abcd"
