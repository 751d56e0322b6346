"""Attention with masks: the packed file agrees with torch, and a masked value has no influence at all."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rbnn
from rbnn.packed.session import Session

LENGTH, HEADS, DEEP = 10, 3, 4


def heads(x: Tensor) -> Tensor:
    """(N, heads, length, channels) from (N, heads · channels, 2, 5)."""
    return x.flatten(2).transpose(1, 2).reshape(len(x), LENGTH, HEADS, DEEP).transpose(1, 2)


def bias(*sides: int) -> Tensor:
    return torch.randn(sides, generator=torch.Generator().manual_seed(3))


def allowed(*sides: int) -> Tensor:
    return (bias(*sides) > 0) | torch.eye(LENGTH).bool()


def attended(mask: Tensor | None, **how: object) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        q = heads(x)
        return F.scaled_dot_product_attention(q, q * 2, q + 1, mask, **how)  # type: ignore[arg-type]

    return function


def own_causal(x: Tensor) -> Tensor:
    """A decoder's attention as most people write it."""
    q = heads(x)
    scores = q @ q.transpose(-2, -1)
    scores = scores.masked_fill(torch.tril(torch.ones(LENGTH, LENGTH)) == 0, float("-inf")) / math.sqrt(DEEP)
    return F.softmax(scores, dim=-1) @ q


def windows(x: Tensor) -> Tensor:
    """Two windows of each image are images for the layers, and each has its own mask."""
    y = x.flatten(2).transpose(1, 2).reshape(len(x) * 2, LENGTH // 2, HEADS, DEEP).transpose(1, 2)
    mask = bias(2, 1, LENGTH // 2, LENGTH // 2).gt(0.8).float() * -100
    full = mask.repeat(len(x), HEADS, 1, 1) + bias(HEADS, LENGTH // 2, LENGTH // 2)
    y = F.scaled_dot_product_attention(y, y, y, attn_mask=full)
    return y.transpose(1, 2).reshape(len(x), -1)


def pieces(x: Tensor) -> Tensor:
    """The masked fill of Swin's five dimensions."""
    y = x.reshape(len(x), 2, HEADS, 2, 10)
    scores = y @ y.transpose(-2, -1)
    closed = torch.tensor([[False, True], [False, False]])
    return scores.masked_fill(closed.view(1, 2, 1, 1, 2), -torch.inf).softmax(-1) @ y


def gated(x: Tensor) -> Tensor:
    """A mask that depends on the image."""
    q = heads(x)
    return F.scaled_dot_product_attention(q, q, q, q[:, :, :, :1].transpose(-2, -1) > q[:, :, :, 1:2] - 3)


def grouped(x: Tensor) -> Tensor:
    q = heads(x)
    return F.scaled_dot_product_attention(q.repeat(1, 2, 1, 1), q, q, enable_gqa=True, scale=0.3)


def one_head(x: Tensor) -> Tensor:
    q = x.flatten(2).transpose(1, 2)
    return F.scaled_dot_product_attention(bias(1, 4, 12).expand(len(x), -1, -1), q, q)


MASKS: dict[str, Callable[[Tensor], Tensor]] = {
    "no mask": attended(None), "causal": attended(None, is_causal=True), "true and false": attended(allowed(10, 10)),
    "numbers": attended(bias(10, 10)), "numbers for each head": attended(bias(1, HEADS, 10, 10)),
    "infinite numbers": attended(torch.zeros(10, 10).masked_fill(~allowed(10, 10), -torch.inf)),
    "the smallest numbers": attended(torch.full((10, 10), torch.finfo(torch.float32).min).triu(1)),
    "keys": attended(allowed(1, 10)[:1].reshape(1, 1, 1, 10)), "own, causal": own_causal, "windows": windows,
    "of pieces": pieces, "of the image": gated, "groups of heads": grouped, "one head": one_head,
}  # fmt: skip


def check(model: nn.Module, path: Path) -> None:
    model.eval()
    torch.manual_seed(1)
    x = torch.randn(3, 12, 2, 5)
    rbnn.export(model, path, x[:2])
    with torch.no_grad():
        wanted = model(x)
    np.testing.assert_allclose(Session(path)(x.numpy()), wanted, rtol=1e-4, atol=1e-5)


class Masked(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.stem, self.function = nn.Conv2d(12, 12, 1), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.stem(x))


@pytest.mark.parametrize("name", MASKS)
def test_a_mask(tmp_path: Path, name: str) -> None:
    check(Masked(MASKS[name]), tmp_path / "net.rbnn")


class Encoder(nn.Module):
    """Torch's own attention, with its masks."""

    def __init__(self, mask: Tensor | None, padding: Tensor | None, *, weights: bool, front: bool) -> None:
        super().__init__()
        self.stem, self.attention = nn.Conv2d(12, 12, 1), nn.MultiheadAttention(12, HEADS, batch_first=front)
        self.mask, self.padding, self.weights, self.front = mask, padding, weights, front

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x).flatten(2).transpose(1, 2)
        padding = None if self.padding is None else self.padding.expand(len(y), -1)
        mask = self.mask.repeat(len(y), 1, 1) if self.mask is not None and self.mask.dim() == 3 else self.mask
        y = y if self.front else y.transpose(0, 1)
        made, weights = self.attention(
            y, y, y, key_padding_mask=padding, need_weights=self.weights, attn_mask=mask, is_causal=False
        )
        made = made if self.front else made.transpose(0, 1)
        return made if weights is None else torch.cat([made, weights], -1)


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize(("mask", "padding", "front"), [
    (~allowed(10, 10), None, True), (bias(10, 10), None, True), (bias(HEADS, 10, 10), None, True),
    (None, torch.arange(10).ge(7)[None], True), (~allowed(10, 10).tril(), torch.arange(10).ge(9)[None], True),
    (nn.Transformer.generate_square_subsequent_mask(10), None, False),
])  # fmt: skip
def test_masks_of_multi_head_attention(
    tmp_path: Path, mask: Tensor | None, padding: Tensor | None, front: bool, weights: bool
) -> None:
    check(Encoder(mask, padding, weights=weights, front=front), tmp_path / "net.rbnn")


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.layer = nn.Conv2d(12, 12, 1), nn.TransformerDecoderLayer(12, HEADS, 16, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x).flatten(2).transpose(1, 2)
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        made: Tensor = self.layer(y, y * 0.5, tgt_mask=mask, tgt_is_causal=True)
        return made


def test_a_decoder(tmp_path: Path) -> None:
    check(Decoder(), tmp_path / "net.rbnn")


class Windows(nn.Module):
    """Binary layers on windows, each of which is an image for them."""

    def __init__(self, method: str, form: tuple[int, ...]) -> None:
        super().__init__()
        self.stem, self.form = nn.Conv2d(12, 16, 1), form
        self.one, self.two = (rbnn.BinaryLinear(form[-1], 16, method=method) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x) + torch.linspace(-4, 4, 10).view(2, 5)  # so that each window has another mean
        y = y.flatten(2).transpose(1, 2).reshape(-1, *self.form)
        made: Tensor = self.one(y) * 0.1 + self.two(y).relu()
        return made.reshape(len(x), -1)


@pytest.mark.parametrize("form", [(16,), (2, 16), (1, 5, 16), (5, 1, 2, 8)])
@pytest.mark.parametrize("method", ["rbnn", "bnn"])
def test_signs_relative_to_the_mean_of_each_window(tmp_path: Path, method: str, form: tuple[int, ...]) -> None:
    torch.manual_seed(4)
    model = Windows(method, form)
    check(model, tmp_path / "net.rbnn")
    kinds = [operation.kind for operation in Session(tmp_path / "net.rbnn").graph.operations]
    assert (kinds.count("pack"), kinds.count("binary_conv")) == (1, 2)  # both layers share the signs


class Pieces(nn.Module):
    def __init__(self, **how: Any) -> None:
        super().__init__()
        self.stem, self.conv = nn.Conv2d(12, 32, 1), rbnn.BinaryConv2d(8, 24, **how)

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x) + torch.linspace(-4, 4, 32).view(-1, 1, 1)  # so that each piece has another mean
        return self.conv(y.reshape(-1, 8, *x.shape[2:])).reshape(len(x), -1)


@pytest.mark.parametrize("method", ["rbnn", "bnn"])
def test_convolutions_of_pieces(tmp_path: Path, method: str) -> None:
    torch.manual_seed(5)
    check(Pieces(kernel_size=1, groups=2, method=method), tmp_path / "net.rbnn")
    with pytest.raises(rbnn.RbnnError, match="only a 1×1 convolution can be binary: keep this one float"):
        check(Pieces(kernel_size=3, padding=1, method=method), tmp_path / "net.rbnn")


def test_a_mask_that_is_different_for_each_image_is_refused(tmp_path: Path) -> None:
    with pytest.raises(rbnn.RbnnError, match="one value per image of the batch fits only one batch"):
        check(Masked(attended(bias(2, 1, 10, 10))), tmp_path / "net.rbnn")
