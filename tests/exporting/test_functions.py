"""Each torch function by itself: the packed file gives the same result as torch."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from user_networks import CHANNELS, HEIGHT, WIDTH
from zoo import arrays

import rbnn
from rbnn.errors import ExportError
from rbnn.packed.session import Session

Function = Callable[[Tensor], Any]


class Behind(nn.Module):
    """A convolution and a function, which gets (N, 12, HEIGHT, WIDTH)."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.stem, self.function = nn.Conv2d(CHANNELS, 12, 3, padding=1), function

    def forward(self, x: Tensor) -> Any:
        return self.function(self.stem(x))


def check(function: Function, path: Path) -> None:
    torch.manual_seed(3)
    model = Behind(function).eval()
    rbnn.export(model, path, torch.randn(2, CHANNELS, HEIGHT, WIDTH))
    x = torch.randn(3, CHANNELS, HEIGHT, WIDTH)
    with torch.no_grad():
        wanted = arrays(model(x))
    for ours, theirs in zip(arrays(Session(path)(x.numpy())), wanted, strict=True):
        assert ours.shape == tuple(theirs.shape)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5 * max(1.0, float(theirs.abs().max())))


def written_in_the_middle(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, 2:5, 1:, :-1] = x[:, :3, :-1, 1:] * 2
    y[:, 7] = 0.5
    y[..., 0] = y[..., 0] + 1
    return y


def written_into_zeros(x: Tensor) -> Tensor:
    y = x.new_zeros(x.shape[0], 3, 4, x.shape[2], x.shape[3])
    y[:, :, 1] = x[:, :3]
    y[:, 2, 3] = x[:, 4]
    return y


def written_in_place(x: Tensor) -> Tensor:
    y = x * 1
    y[:, 1:4] += 1
    y[:, :, 2:] *= x[:, :, 2:]
    return y


def nothing_assigned(x: Tensor) -> Tensor:
    y = x * 1
    y[:, 1:1] = 0
    return y


def boxes(x: Tensor) -> Tensor:
    y = x.flatten(2).transpose(1, 2).contiguous()
    y[..., :2] = (y[..., :2] + torch.arange(y.shape[1])[None, :, None]) * 4
    y[..., 2:4] = torch.exp(y[..., 2:4])
    return y


CHOSEN: dict[str, Function] = {
    "a part that is written": written_in_the_middle, "a part of zeros": written_into_zeros,
    "a part changed in place": written_in_place, "boxes in place": boxes,
    "a table": lambda x: x[:, torch.tensor([[3, 1, 1], [0, -1, 4]])],
    "a mask": lambda x: x[:, torch.arange(12) % 3 > 0],
    "rows by a table": lambda x: x[:, :, torch.tensor([[2, 3], [0, 1]])],
    "the upper triangle": lambda x: x.flatten(1)[:, torch.ones(12, HEIGHT * WIDTH).triu().reshape(-1).nonzero()],
    "a large triangle": lambda x: torch.bmm(x.flatten(2).mT, x.flatten(2)).flatten(1)[
        :, torch.ones(HEIGHT * WIDTH, HEIGHT * WIDTH).triu().flatten().nonzero()[:, 0]
    ],
    "joined with nothing": lambda x: torch.cat([x, torch.zeros(len(x), 0, *x.shape[2:]), F.relu(x)], 1),
    "joined with nothing else": lambda x: torch.cat([torch.zeros(0), x * 2], 1),
    "equal": lambda x: x * (F.max_pool2d(x, 3, 1, 1) == x), "not equal": lambda x: (x.relu() != 0) * x,
    "equal to a number": lambda x: torch.where(x.clamp(0, 1).eq(1), x, -x),
    "a list": lambda x: x[:, [3, 1, 1, 0]], "a permutation": lambda x: x[:, torch.tensor([*range(11, -1, -2), 0, 4])],
    "rows": lambda x: torch.index_select(x, 2, torch.tensor([2, 3, 0])),
    "flipped": lambda x: torch.flip(x, (1, -1)), "flipped, as arguments": lambda x: x.flip(2, 3),
    "rolled": lambda x: torch.roll(x, (1, -2), (2, 3)), "rolled channels": lambda x: x.roll(5, 1),
    "repeated": lambda x: x.repeat_interleave(2, dim=1), "repeated rows": lambda x: x.repeat_interleave(3, 2),
    "flipped by name": lambda x: torch.flip(x, dims=[3]), "tiled by name": lambda x: torch.tile(x, dims=(1, 2, 1, 1)),
    "nothing assigned": lambda x: nothing_assigned(x), "repeated by name": lambda x: x.repeat(repeats=(1, 1, 2, 1)),
    "flipped in the middle": lambda x: x.unsqueeze(1).flip(2), "many rows": lambda x: x[:, :, [*range(12, -1, -1), 3]],
    "many pixels of a signal": lambda x: x.flatten(2)[..., torch.arange(40) * 7 % (HEIGHT * WIDTH)],
    "one minus what is repeated": lambda x: 1 - x.mean(1, keepdim=True).expand_as(x),
    "a constant that repeats": lambda x: x.mean(3, keepdim=True) * torch.linspace(-1, 1, 5) + 1,
    "added products": lambda x: torch.addcmul(torch.linspace(-1, 1, WIDTH), torch.linspace(1, 2, 12).view(12, 1, 1), x)
    .addcmul(x, x, value=0.5).addcmul(torch.ones(WIDTH), torch.ones(1), value=2),
    "by name": lambda x: torch.add(input=F.relu(input=x), other=x),
    "length of vectors": lambda x: torch.linalg.vector_norm(x, ord=2, dim=(2, 3), keepdim=True) + x,
    "length, as torch.norm computes it": lambda x: torch.norm(x, p=2, dim=1, keepdim=True) * x,
    "one list of pixels and back": lambda x: nn.BatchNorm1d(12).eval()(x.flatten(2).mT.flatten(0, 1)).reshape_as(
        x.flatten(2).mT
    ),
    "one number": lambda x: x.mean((1, 2, 3)), "one number of several": lambda x: (x.mean((1, 2, 3)), x.sum((2, 3))),
    "one answer in two shapes": lambda x: (x.mean((2, 3), keepdim=True), x.mean((2, 3), keepdim=True).flatten(1)),
    "expanded in the middle": lambda x: x.view(len(x), 3, 4, 1, HEIGHT, -1)
    .expand(-1, -1, -1, 2, -1, -1).flatten(1, 2),
    "expanded on all sides": lambda x: x[:, :1, None, :, :1].expand(-1, 3, 2, -1, 4).permute(0, 4, 1, 2, 3),
    "windows": lambda x: F.unfold(x, (3, 2), dilation=(1, 2), padding=1, stride=2),
    "windows of rows": lambda x: x.unfold(2, 3, 2), "each image once": lambda x: x.repeat_interleave(1, dim=0) + 1,
    "windows of both": lambda x: x.unfold(2, 4, 3).unfold(3, 2, 1).relu(),
    "many windows of channels": lambda x: x.unfold(dimension=1, size=2, step=1),
    "windows laid back": lambda x: F.fold(F.unfold(x, 3, padding=1), x.shape[2:], 3, padding=1),
}  # fmt: skip


def old_softmax(x: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own warning about its choice
        return F.softmax(x.flatten(1))


BENT: dict[str, Function] = {
    "celu": lambda x: F.celu(x, 0.7), "rrelu": F.rrelu, "softsign": F.softsign, "logsigmoid": F.logsigmoid,
    "softshrink": lambda x: F.softshrink(x, 0.3), "hardshrink": lambda x: F.hardshrink(x, 0.3),
    "tanhshrink": F.tanhshrink, "threshold": lambda x: F.threshold(x, 0.1, 0.1), "glu": lambda x: F.glu(x, 1),
    "glu of rows": lambda x: F.glu(x[:, :, :4], 2), "sign": torch.sign, "sign of zeros": lambda x: F.relu(x).sign(),
    "softmin": lambda x: F.softmin(x, 1), "where": lambda x: torch.where(x > 0.2, x, x * 0.1),
    "where two": lambda x: torch.where(x[:, :6] <= x[:, 6:], x[:, :6], -1.0),
    "compared": lambda x: (x >= 0).float() * x + (x < 0.5).to(x.dtype),
    "masked": lambda x: x.masked_fill(torch.eye(HEIGHT, WIDTH).bool(), -3.0), "logsumexp": lambda x: x.logsumexp(1),
    "var and mean": lambda x: torch.var_mean(x, (2, 3), keepdim=True),
    "std and mean": lambda x: torch.std_mean(x, dim=1, correction=0),
    "old softmax": old_softmax,
}  # fmt: skip

PRODUCTS: dict[str, Function] = {
    "heads": lambda x: torch.einsum("bhij,bhkj->bhik", x, x),
    "spaces": lambda x: torch.einsum("b c h w, b c h v -> b c w v", x, x),
    "a constant": lambda x: torch.einsum("bchw,dc->bdhw", x, torch.ones(5, 12)),
    "a constant first": lambda x: torch.einsum("nc,bcd->bnd", torch.ones(4, 12), x.flatten(2)),
    "an order": lambda x: torch.einsum("bchw->bwhc", x), "a sum": lambda x: torch.einsum("bchw->bwc", x),
    "gates": lambda x: torch.einsum("bchw,bc->bchw", x, x.mean((2, 3))),
    "a constant for all": lambda x: x.flatten(2).bmm(torch.eye(HEIGHT * WIDTH).mul(2).repeat(len(x), 1, 1)),
    "a constant on the left": lambda x: torch.ones(1, 12, 3, HEIGHT) @ x,
    "a constant matrix on the left": lambda x: torch.ones(3, HEIGHT).tril() @ x,
    "a constant for each head": lambda x: x.flatten(2).mT[:, None] @ torch.linspace(-1, 1, 120).view(5, 12, 2),
    "a vector": lambda x: x @ torch.linspace(-1, 1, WIDTH),
    "one head for all": lambda x: x[:, :4] @ x[:, 5:6].mT,
    "one of many heads": lambda x: x.view(len(x), 3, 4, HEIGHT, -1) @ x.view(len(x), 3, 4, HEIGHT, -1)[:, :, :1].mT,
    "many heads": lambda x: x.view(len(x), 3, 4, HEIGHT, WIDTH) @ x.view(len(x), 3, 4, WIDTH, HEIGHT),
}  # fmt: skip


def shuffled(x: Tensor) -> Tensor:
    """ShuffleNet V2's shuffle as its authors write it: one dimension holds the batch and half of the channels."""
    n, c, h, w = x.shape
    y = x.reshape(n * c // 2, 2, h * w).permute(1, 0, 2).reshape(2, -1, c // 2, h, w)
    return torch.cat([F.relu(y[0]), y[1]], 1)


def pieces(x: Tensor) -> Tensor:
    """Each image is cut into four parts, which go through the same layers."""
    n, c, h, w = x.shape
    torch.manual_seed(0)
    conv, norm, group = nn.Conv2d(3, 6, 3, padding=1, groups=3), nn.BatchNorm2d(6).eval(), nn.GroupNorm(3, 6)
    nn.init.normal_(norm.running_mean)
    nn.init.normal_(group.weight)
    y = x.reshape(n * 4, c // 4, h, w)
    y = group(norm(conv(y))) * torch.sigmoid(F.adaptive_avg_pool2d(y, 1)).mean(1, True)
    return F.max_pool2d(F.leaky_relu(y), 2).reshape(n, 24, h // 2, w // 2)


def sequence(x: Tensor) -> Tensor:
    """(length, N, channels), as in transformers."""
    y = x.flatten(2).permute(2, 0, 1)
    y = torch.cat([y.mean(dim=0, keepdim=True), y], dim=0) + torch.linspace(0, 1, HEIGHT * WIDTH + 1)[:, None, None]
    y = F.layer_norm(y, (12,)) * torch.linspace(0, 1, 12)
    y = F.linear(y, torch.linspace(-1, 1, 60).view(5, 12))
    return y[0] + y.softmax(0).amax(0) + y[1:].transpose(0, 1).sum(1)


def coefficients(x: Tensor) -> Tensor:
    """Dynamic ReLU's layout: pixels first."""
    slopes = x.mean((2, 3)).view(-1, 12, 1) * torch.tensor([1.0, 0.5])
    return (x.permute(2, 3, 0, 1).unsqueeze(-1) * slopes).max(dim=-1)[0].permute(2, 3, 0, 1)


def both_views(x: Tensor) -> Tensor:
    """Two concatenated batches."""
    one, two = torch.cat([x, x.flip(3)]).mul(2).relu().chunk(2)
    return one - two


APART: dict[str, Function] = {
    "stack": lambda x: torch.stack([x, F.relu(x)]).mean(0), "stack and max": lambda x: torch.stack([x, -x]).max(0)[0],
    "shuffle": shuffled, "pieces": pieces, "sequence": sequence, "pixels first": coefficients,
    "pool of pieces": lambda x: nn.MaxPool2d(2)(x.reshape(-1, 3, *x.shape[2:])).reshape(len(x), -1),
    "two batches": both_views, "unbound": lambda x: torch.stack([x, x + 1], 0).unbind(0)[1],
    "padded pieces": lambda x: F.pad(F.pad(x.reshape(len(x) * 3, -1, WIDTH), [1, 0, 0, 2]).flatten(1), [0, 3])
    .view(len(x), -1),
    "each image twice": lambda x: (x.repeat_interleave(2, 0) * x.reshape(len(x), 2, -1).flatten(0, 1).mean(1)
    .view(-1, 1, 1, 1)).reshape(len(x), -1),
    "expanded pieces": lambda x: (x.reshape(len(x) * 2, 6, 1, HEIGHT, WIDTH).expand(-1, -1, 3, -1, -1) + 1)
    .permute(0, 1, 3, 2, 4).reshape(len(x), -1),
    "back again": lambda x: x.transpose(0, 1).transpose(0, 1) + 1,
    "sums of a middle dimension": lambda x: x.view(len(x), 3, 2, 2, HEIGHT, WIDTH).sum((2, 5)),
    "softmax of a middle dimension": lambda x: x.view(len(x), 3, 4, HEIGHT, WIDTH).softmax(2),
    "gates of a middle dimension": lambda x: x.view(len(x), 3, 4, HEIGHT, -1) * torch.arange(4.0).view(4, 1, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", [*CHOSEN, *BENT, *PRODUCTS, *APART])
def test_the_file_answers_like_torch(tmp_path: Path, name: str) -> None:
    check((CHOSEN | BENT | PRODUCTS | APART)[name], tmp_path / "net.rbnn")


class Shuffled(nn.Module):
    """Many channels between two layers, in another order if there is one."""

    def __init__(self, order: Tensor | None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.order, self.wide, self.narrow = order, nn.Conv2d(CHANNELS, 512, 1), nn.Conv2d(512, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.wide(x))
        return self.narrow(y if self.order is None else y.index_select(1, self.order))


def test_a_selection_stores_its_places_alone(tmp_path: Path) -> None:
    """A permutation of 512 channels takes 9 bits for each; as a dense convolution it took a megabyte."""
    order = torch.randperm(512, generator=torch.Generator().manual_seed(1))
    x, sizes = torch.randn(2, CHANNELS, HEIGHT, WIDTH), []
    for name, model in (("plain", Shuffled(None)), ("shuffled", Shuffled(order))):
        rbnn.export(model, tmp_path / name, x)
        sizes.append((tmp_path / name).stat().st_size)
    session = Session(tmp_path / "shuffled")
    kinds = [operation.kind for operation in session.graph.operations]
    assert kinds == ["float_conv", "select", "float_conv"]
    assert session.graph.operations[1].attributes == {"places": order.tolist()}
    assert sizes[1] - sizes[0] < 2000


@pytest.mark.parametrize("levels", [0, 3])
def test_maxima_are_put_back_where_they_were(tmp_path: Path, levels: int) -> None:
    """Also if several pixels of a window are equal: the first one counts."""

    def pooled(x: Tensor) -> Tensor:
        x = x[:, :, : HEIGHT // 2 * 2, : WIDTH // 2 * 2]
        x = F.hardtanh(x * 1e9, 0, levels) if levels else F.relu(x)
        small, places = F.max_pool2d(x, 2, return_indices=True)
        return F.max_unpool2d(small.flip(1) + 1, places, 2)

    check(pooled, tmp_path / "net.rbnn")


@pytest.mark.parametrize("levels", [0, 3])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [
    (3, 2, 1), (2, 2, 0), (2, 1, 0), (3, 1, 1), ((3, 2), (2, 3), (1, 0)), (4, 3, 2), (1, 2, 0),
])  # fmt: skip
def test_maxima_of_windows_that_overlap_or_leave_gaps(
    tmp_path: Path, levels: int, kernel: Any, stride: Any, padding: Any
) -> None:
    """A pixel that several windows chose gets the value of the last one; a ReLU makes many of them equal."""

    def pooled(x: Tensor) -> Tensor:
        x = F.hardtanh(x * 1e9, 0, levels) if levels else F.relu(x)
        small, places = F.max_pool2d(x, kernel, stride, padding, return_indices=True)
        high, wide = small.shape[2:]
        values = torch.linspace(1, 2, high * wide).view(high, wide)  # a different one for each window
        return F.max_unpool2d(small.flip(1) + values, places, kernel, stride, padding, x.shape[2:])

    check(pooled, tmp_path / "net.rbnn")


def test_maxima_of_another_size_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="as many pixels as the input of its max pool"):
        check(lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 3), tmp_path / "net.rbnn")


@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_of_torch(tmp_path: Path, batch_first: bool) -> None:
    attention = nn.MultiheadAttention(12, 3, batch_first=batch_first).eval()
    nn.init.normal_(attention.in_proj_bias)

    def attend(x: Tensor) -> Any:
        y = x.flatten(2)
        y = y.transpose(1, 2) if batch_first else y.permute(2, 0, 1)
        seen, weights = attention(y, y, y)
        return (seen if batch_first else seen.transpose(0, 1)), weights

    check(attend, tmp_path / "net.rbnn")


class Kept(nn.Module):
    """A network with weight norm that caches its last result."""

    def __init__(self) -> None:
        super().__init__()
        with pytest.warns(FutureWarning):
            self.conv = nn.utils.weight_norm(nn.Conv2d(3, 8, 3))

    def forward(self, x: Tensor) -> Tensor:
        self.last = self.conv(x)
        return self.last.relu()


def test_results_that_a_module_keeps_do_not_hinder(tmp_path: Path) -> None:
    model, x = Kept(), torch.randn(2, 3, 6, 6)
    wanted = model(x)
    assert model.last.grad_fn is not None
    rbnn.export(model, tmp_path / "net.rbnn", x)
    np.testing.assert_allclose(Session(tmp_path / "net.rbnn")(x.numpy()), wanted.detach(), rtol=1e-4, atol=1e-5)
    assert model.last.grad_fn is not None


def test_an_answer_begins_with_the_batch(tmp_path: Path) -> None:
    with pytest.raises(
        ExportError, match=r"an output of the network has the shape \(12, 2, .*keep the first dimension"
    ):
        rbnn.export(Behind(lambda x: x.transpose(0, 1)), tmp_path / "net.rbnn", torch.randn(2, CHANNELS, 5, 4))
