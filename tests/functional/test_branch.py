"""A whole branch, and the values before the sign of binary weights, against the formulas in float64."""

import copy
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import rbnn
from rbnn.functional import (
    Binarization,
    BranchEnd,
    ScaledSigns,
    as_tensor,
    binarize,
    branch,
    branch_possible,
    random_orthogonal,
    rotated_signs,
    rotated_weight,
    rotation_shape,
    standardise,
)
from rbnn.functional.estimators import Tent
from rbnn.models._after_add import Join
from rbnn.nn import BinaryConv2d

TENT = Tent(peak=1.3, slope=0.7, support=1.4)
LAST = torch.channels_last


def numbers(seed: int, *shape: int) -> Tensor:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return made.to(memory_format=LAST) if len(shape) == 4 else made


def gradients(out: Tensor, *inputs: Tensor) -> list[Tensor]:
    return [out.detach(), *torch.autograd.grad(out, inputs, numbers(9, *out.shape).to(out.dtype))]


def close(name: str, found: Tensor, exact: Tensor, tolerance: float) -> None:
    largest = float(exact.abs().max())
    torch.testing.assert_close(found.double(), exact, rtol=tolerance, atol=tolerance * largest + 1e-7, msg=name)


ENDS = ("hardtanh", "prelu", "rprelu")


def at_the_end(z: Tensor, ends: list[Tensor]) -> Tensor:
    if not ends:
        return F.hardtanh(z)
    slope, before, after = (each.view(-1, 1, 1) for each in (ends * 3)[:3]) if len(ends) == 3 else (ends[0], 0, 0)
    return F.prelu(z + before, slope.flatten()) + after


@settings(max_examples=90, deadline=None)
@given(
    st.integers(1, 5), st.sampled_from([8, 16, 24, 136]), st.sampled_from([8, 16, 40]), st.integers(4, 9),
    st.integers(4, 9), st.integers(1, 2), st.sampled_from([1, 3]), st.booleans(), st.booleans(), st.sampled_from(ENDS),
)  # fmt: skip
def test_a_branch_against_its_formula(
    images: int,
    inputs: int,
    outputs: int,
    height: int,
    width: int,
    stride: int,
    side: int,
    standardised: bool,
    soft: bool,
    end: str,
) -> None:
    padding = side // 2
    x = numbers(1, images, inputs, height, width).requires_grad_()
    signs, scale = torch.where(numbers(2, outputs, inputs, side, side) > 0, 1.0, -1.0), numbers(3, outputs).abs() + 0.1
    like = F.conv2d(x, signs, stride=stride, padding=padding)
    shortcut = numbers(4, *like.shape).requires_grad_()
    norm = nn.BatchNorm2d(outputs)
    nn.init.uniform_(norm.weight, 0.2, 1.0), nn.init.normal_(norm.bias)
    exact_norm = copy.deepcopy(norm).double()
    how, last = Binarization(TENT, standardised), [numbers(seed, outputs) for seed in (5, 6, 7)]
    found, exact = [], []
    for each, kind, own in ((found, torch.float32, norm), (exact, torch.float64, exact_norm)):
        values = [t.detach().to(kind).requires_grad_() for t in (x, shortcut, signs, scale)]
        ends = [t.to(kind).requires_grad_() for t in last[: ENDS.index(end) * 2 - (end == "prelu")]]
        weight = ScaledSigns(values[2].detach(), values[3].detach(), values[2]) if soft else ScaledSigns(*values[2:])
        learnt = [*values[: 3 if soft else 4], own.weight, own.bias, *ends]
        if each is found:
            assert branch_possible(values[0], values[2], how, (stride,) * 2, (padding,) * 2, own, values[1])
            out = branch(values[0], weight, how, (stride,) * 2, (padding,) * 2, own, values[1], BranchEnd(*ends))
        else:
            y = F.conv2d(how(values[0]), as_tensor(weight), stride=stride, padding=padding)
            out = at_the_end(own(y) + values[1], ends)
        each += gradients(out, *learnt)
    # If rounding decides on which side of a kink a value lies, the gradients may differ.
    if end == "hardtanh" and not ((found[0].abs() == 1) == (exact[0].abs() == 1)).all():
        return
    if not soft:  # batch norm cancels nearly all of a scale's gradient: the rest is a difference of large numbers
        terms = float(exact[3].flatten(1).abs().sum(1).max())
        torch.testing.assert_close(found.pop(4).double(), exact.pop(4), rtol=0, atol=1e-5 * terms)
    names = ("out", "x", "shortcut", "signs", "γ", "β", "slope", "before", "after")
    for name, a, b in zip(names, found, exact, strict=False):
        close(name, a, b, 2e-4)
    for (name, a), b in zip(norm.named_buffers(), exact_norm.buffers(), strict=True):
        close(name, a, b.double(), 1e-5)


def test_x_that_is_its_own_shortcut_gets_both_gradients() -> None:
    x = numbers(1, 3, 16, 6, 6).requires_grad_()
    weight, how = ScaledSigns(torch.sign(numbers(2, 16, 16, 3, 3)), numbers(3, 16)), Binarization(TENT, True)
    norm = nn.BatchNorm2d(16)
    own, apart = x, x.clone(memory_format=torch.preserve_format)
    found = [gradients(branch(x, weight, how, (1, 1), (1, 1), norm, each, BranchEnd()), x)[1] for each in (own, apart)]
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)


def test_constant_outputs_and_large_sums() -> None:
    """All signs are equal: sums at the limit of a filter, and a variance of exactly 0."""
    x = numbers(1, 2, 64, 4, 4).abs().requires_grad_()
    weight, norm = ScaledSigns(torch.ones(8, 64, 1, 1)), nn.BatchNorm2d(8)
    zeros = torch.zeros(2, 8, 4, 4).to(memory_format=LAST)
    out = branch(x, weight, Binarization(TENT), (1, 1), (0, 0), norm, zeros, BranchEnd())
    assert torch.equal(out, torch.zeros_like(out))
    assert norm.running_mean is not None
    torch.testing.assert_close(norm.running_mean, torch.full((8,), 6.4))
    assert torch.isfinite(gradients(out, x)[1]).all()


@pytest.mark.parametrize("kernels", [name for name, there in rbnn._core.kernels() if there])
def test_every_instruction_set_gives_the_same_branch(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = numbers(1, 3, 24, 7, 9).requires_grad_()
    weight, how = ScaledSigns(torch.sign(numbers(2, 40, 24, 3, 3)), numbers(3, 40)), Binarization(TENT, True)
    shortcut, found = numbers(4, 3, 40, 4, 5), []
    for name, end in product(("portable", kernels), (BranchEnd(), BranchEnd(numbers(5, 40)))):
        monkeypatch.setenv("RBNN_KERNELS", name)
        found += gradients(branch(x, weight, how, (2, 2), (1, 1), nn.BatchNorm2d(40), shortcut, end), x)
    half = len(found) // 2
    for a, b in zip(found[:half], found[half:], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_a_layer_that_is_listened_to_or_has_an_output_of_its_own_is_called() -> None:
    x, norm, join = numbers(1, 2, 8, 5, 5).requires_grad_(), nn.BatchNorm2d(8), Join(nn.Hardtanh())
    layer, heard = BinaryConv2d(8, 8, 3, padding=1, bias=False), list[object]()
    layer.method.begin_epoch(layer.weight, 0, 2)
    assert layer.branch(x, norm, x, BranchEnd()) is not None
    for listen in (layer.register_forward_hook, layer.register_forward_pre_hook, layer.register_full_backward_hook):
        handle = listen(lambda *args: heard.append(args))
        join.after(layer, norm, x, x).sum().backward()  # type: ignore[no-untyped-call]
        assert len(heard) == 1
        handle.remove()
        heard.clear()
    layer.set_method("xnor-net", {"k_map": True})
    assert layer.branch(x, norm, x, BranchEnd()) is None
    assert layer.eval().branch(x, norm, x, BranchEnd()) is None


@pytest.mark.parametrize("shape", [(16, 16, 3, 3), (32, 16, 3, 3), (5, 7, 3, 2), (10, 64), (8, 24, 1, 1), (4, 2, 5)])
def test_the_rotated_weight_against_its_formula(shape: tuple[int, ...]) -> None:
    w = numbers(1, *shape) * 0.1 + 0.02
    generator = torch.Generator().manual_seed(5)
    r1, r2 = (random_orthogonal(n, generator) for n in rotation_shape(w[0].numel()))
    for betas, rotated_gradient, last in product((None, 1, shape[0]), (True, False), (True, False)):
        found, exact = [], []
        for each, kind in ((found, torch.float32), (exact, torch.float64)):
            value = w.detach().clone(memory_format=LAST if last and w.dim() == 4 else torch.contiguous_format)
            learnt = [value.to(kind).requires_grad_()]
            if betas is not None:
                learnt.append(torch.linspace(0.3, 2.8, betas, dtype=kind).requires_grad_())
            beta = learnt[1] if betas is not None else None
            each += gradients(rotated_weight(learnt[0], r1.to(kind), r2.to(kind), beta, rotated_gradient), *learnt)
        for name, a, b in zip(("mixed", "w", "β"), found, exact, strict=False):
            close(name, a, b, 2e-5)


@pytest.mark.parametrize("rotated", [True, False])
def test_signs_of_the_rotated_weight_and_their_gradients(rotated: bool) -> None:
    """The fused operator gives the same result as computing the weight and then its signs."""
    w, beta = numbers(1, 8, 4, 3, 3).requires_grad_(), numbers(2, 8).requires_grad_()
    generator = torch.Generator().manual_seed(5)
    r1, r2 = (random_orthogonal(n, generator) for n in rotation_shape(36))
    rotation = (r1, r2, beta) if rotated else (None, None, None)
    learnt = (w, beta) if rotated else (w,)
    found = gradients(rotated_signs(w, *rotation, True, TENT), *learnt)
    exact = gradients(binarize(rotated_weight(w, *rotation), TENT), *learnt)
    for a, b in zip(found, exact, strict=True):
        assert torch.equal(a, b)


def test_constant_filters_become_zeros_without_a_gradient() -> None:
    w = torch.cat([torch.full((1, 4, 3, 3), 0.1), numbers(1, 2, 4, 3, 3)]).requires_grad_()
    out, grad = gradients(standardise(w), w)
    assert not out[0].any()
    assert not grad[0].any()
    assert out[1:].all()
    assert grad[1:].all()


@torch.no_grad()
@pytest.mark.parametrize("kernels", [name for name, there in rbnn._core.kernels() if there])
@pytest.mark.parametrize(
    ("end", "standardised", "stride"), [(e, s, n) for e in ENDS for s in (False, True) for n in (1, 2)]
)
def test_a_branch_in_evaluation(
    end: str, standardised: bool, stride: int, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uses the running statistics and does not change them."""
    monkeypatch.setenv("RBNN_KERNELS", kernels)
    x, weight = numbers(1, 3, 16, 7, 5), ScaledSigns(torch.sign(numbers(2, 24, 16, 3, 3)), numbers(3, 24))
    norm, how = nn.BatchNorm2d(24), Binarization(TENT, standardised)
    norm.running_mean, norm.running_var = numbers(4, 24), numbers(5, 24).abs()
    nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
    norm.eval()
    before = copy.deepcopy(norm.state_dict())
    ends = [numbers(seed, 24) for seed in (6, 7, 8)][: ENDS.index(end) * 2 - (end == "prelu")]
    y = F.conv2d(how(x.double()), as_tensor(weight).double(), stride=stride, padding=1)
    shortcut = numbers(9, *y.shape)
    where = (stride,) * 2, (1, 1)
    assert branch_possible(x, weight.signs, how, *where, norm, shortcut)
    found = branch(x, weight, how, *where, norm, shortcut, BranchEnd(*ends))
    exact = at_the_end(copy.deepcopy(norm).double()(y) + shortcut, [each.double() for each in ends])
    close("out", found, exact, 1e-5)
    assert all(torch.equal(value, norm.state_dict()[name]) for name, value in before.items())


def test_evaluation_with_a_gradient_is_left_to_torch() -> None:
    x, weight, norm = numbers(1, 1, 8, 4, 4), torch.ones(8, 8, 3, 3), nn.BatchNorm2d(8).eval()
    assert not branch_possible(x, weight, Binarization(TENT), (1, 1), (1, 1), norm, x)


@pytest.mark.parametrize("training", [False, True])
def test_a_hook_on_the_norm_behind_a_branch_is_called(training: bool) -> None:
    model = rbnn.create_model("resnet20-bireal", method="rbnn", num_classes=10).to(memory_format=LAST).train(training)
    rbnn.BinarySchedule(model, torch.optim.SGD(model.parameters(), 0.1), epochs=1).step(0)
    seen: list[str] = []
    norms = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.BatchNorm2d)]
    for name, module in norms:
        module.register_forward_hook(lambda *_, name=name: seen.append(name))
    with torch.no_grad():
        model(numbers(1, 2, 3, 32, 32))
    assert seen == [name for name, _ in norms]


def test_beta_changes_nothing_without_a_rotation() -> None:
    w, beta = torch.randn(64, 8, 3, 3, requires_grad=True), torch.full((64,), 0.5, requires_grad=True)
    for filler in (3e33, -1.0):
        torch.full((64,), filler)  # memory that the gradient may get next
        (grad,) = torch.autograd.grad(rotated_weight(w, None, None, beta).square().sum(), beta)
        assert torch.equal(grad, torch.zeros(64))
