"""The fused kernels against torch's own autograd of the formulas in float64, on every shape and memory order."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from rbnn import _core
from rbnn.functional import ESTIMATORS, add_hardtanh, binarize, binarize_standardised, estimator
from rbnn.functional.binarize import SMALLEST_STD
from rbnn.functional.estimators import Tent
from rbnn.functional.kernels import fusable

# One value, one image, and sizes around the kernels' blocks of 16 and 256 values.
shapes = st.one_of(
    st.tuples(st.integers(1, 4), st.integers(1, 20), st.integers(1, 9), st.integers(1, 9)),
    st.tuples(st.integers(1, 3), st.sampled_from([1, 2, 15, 16, 17, 255, 256, 257, 271, 513])),
)
orders = st.sampled_from(["contiguous", "channels last", "strided", "transposed"])
grads = st.sampled_from(["contiguous", "channels last", "strided", "expanded"])
seeds = st.integers(0, 2**32 - 1)
tents = st.sampled_from([("ste", 1.0, 1.0), ("identity", 1.0, 1.0), ("ppf", 1.0, 1.0)]) | st.tuples(
    st.just("training-aware"), st.sampled_from([0.01, 1.0, 10.0]), st.sampled_from([1.0, 100.0])
)


def laid_out(values: Tensor, order: str) -> Tensor:
    """The same values in another memory order."""
    if order == "channels last" and values.dim() == 4:
        return values.to(memory_format=torch.channels_last)
    if order == "strided":
        roomy = values.new_full((*values.shape[:-1], 2 * values.shape[-1]), float("nan"))
        roomy[..., ::2] = values
        return roomy[..., ::2]
    if order == "transposed":
        return values.transpose(0, -1).contiguous().transpose(0, -1)
    if order == "expanded":
        return values.flatten()[0].expand(values.shape)
    return values.contiguous()


def gaussian(seed: int, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def with_gradient(function: Callable[..., Tensor], grad: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """The value, and the gradient for each input."""
    inputs = tuple(x.detach().requires_grad_() for x in inputs)
    out = function(*inputs)
    return out.detach(), *torch.autograd.grad(out, inputs, grad)


def stand_in(x: Tensor, derivative: Callable[[Tensor], Tensor]) -> Tensor:
    """Sign in the forward pass, ``derivative`` in the backward pass, in plain torch."""
    signs = torch.where(x > 0, 1.0, -1.0).to(x)
    slope = derivative(x.detach())
    return signs + slope * x - (slope * x).detach()


def standardised(x: Tensor) -> Tensor:
    flat = x.flatten(1)
    std = flat.std(1, keepdim=True) if flat.shape[1] > 1 else torch.zeros_like(flat)
    return ((flat - flat.mean(1, keepdim=True)) / std.clamp_min(SMALLEST_STD)).reshape(x.shape)


def test_which_tensors_the_kernels_take() -> None:
    x = torch.zeros(2, 3, 4, 5)
    assert fusable(x, x + 1)
    assert fusable(x.to(memory_format=torch.channels_last))
    assert fusable(torch.zeros(2, 7))
    assert not fusable(x, x.to(memory_format=torch.channels_last))
    assert not fusable(x, x[:1])
    assert not fusable(x.double())
    assert not fusable(x[..., ::2])
    assert not fusable(torch.zeros(3))


@given(shapes, orders, grads, tents, seeds)
def test_sign(shape: tuple[int, ...], order: str, grad_order: str, tent: tuple[str, float, float], seed: int) -> None:
    x = laid_out(gaussian(seed, shape), order)
    grad = laid_out(gaussian(seed + 1, shape), grad_order)
    derivative = estimator(*tent)
    out, grad_x = with_gradient(lambda x: binarize(x, derivative), grad, x)
    expected, expected_grad = with_gradient(lambda x: stand_in(x, derivative), grad.double(), x.double())
    assert out.dtype is torch.float32
    np.testing.assert_array_equal(out, expected.sign())
    np.testing.assert_allclose(grad_x, expected_grad, rtol=1e-5, atol=1e-5 * tent[2])


@given(shapes, orders, grads, tents, seeds, st.sampled_from([0.0, 3.0, -100.0]), st.sampled_from([1e-2, 1.0, 30.0]))
@settings(max_examples=200)
def test_standardised_sign(
    shape: tuple[int, ...],
    order: str,
    grad_order: str,
    tent: tuple[str, float, float],
    seed: int,
    offset: float,
    scale: float,
) -> None:
    x = laid_out(gaussian(seed, shape) * scale + offset * scale, order)
    grad = laid_out(gaussian(seed + 1, shape), grad_order)
    derivative = estimator(*tent)
    standard = standardised(x.double())
    size = standard.abs()
    # Within rounding error of the kernel's float mean, or at an estimator's edge, both results are right.
    rounding = 1e-5 * (1 + abs(offset))
    assume(bool((size > rounding).all()) or x[0].numel() == 1)
    assume(bool(((size - 1).abs() > 10 * rounding).all()))
    out, grad_x = with_gradient(lambda x: binarize_standardised(x, derivative), grad, x)
    expected, expected_grad = with_gradient(lambda x: stand_in(standardised(x), derivative), grad.double(), x.double())
    if x[0].numel() > 1:
        np.testing.assert_array_equal(out, expected.sign())
        step = 1 / float(x.double().flatten(1).std(1).min())
    else:
        assert out.flatten().tolist() == [-1.0] * len(x)  # a single value is its own mean
        step = 1 / SMALLEST_STD
    peak = float(derivative(torch.zeros(1)))
    np.testing.assert_allclose(grad_x, expected_grad, rtol=1e-3, atol=20 * rounding * step * peak * (1 + tent[1]))


@given(shapes, orders, seeds, st.floats(0.1, 10))
@settings(max_examples=50)
def test_standardised_sign_by_an_estimator_that_is_no_tent(
    shape: tuple[int, ...], order: str, seed: int, t: float
) -> None:
    x, grad = laid_out(gaussian(seed, shape).double(), order), gaussian(seed + 1, shape).double()
    derivative = estimator("ede", t, 1.0)
    found = with_gradient(lambda x: binarize_standardised(x, derivative), grad, x)
    expected = with_gradient(lambda x: stand_in(standardised(x), derivative), grad, x)
    np.testing.assert_array_equal(found[0], expected[0].sign() if x[0].numel() > 1 else -np.ones(shape))
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-6, atol=1e-9)


@given(shapes, orders, orders, grads, seeds)
def test_add_hardtanh(shape: tuple[int, ...], order: str, other: str, grad_order: str, seed: int) -> None:
    a, b = laid_out(gaussian(seed, shape), order), laid_out(gaussian(seed + 1, shape), other)
    grad = laid_out(gaussian(seed + 2, shape), grad_order)
    assume(bool((((a + b).double().abs() - 1).abs() > 1e-6).all()))
    out, grad_a, grad_b = with_gradient(add_hardtanh, grad, a, b)
    expected, expected_grad, _ = with_gradient(
        lambda a, b: torch.clamp(a + b, -1, 1), grad.double(), a.double(), b.double()
    )
    np.testing.assert_allclose(out, expected, atol=1e-6)
    np.testing.assert_array_equal(grad_a, expected_grad)
    np.testing.assert_array_equal(grad_b, expected_grad)


def test_hardtanh_has_no_gradient_at_its_ends() -> None:
    a = torch.tensor([[-2.0, -1, -0.5, 0, 0.5, 1, 2]])
    out, grad, _ = with_gradient(add_hardtanh, torch.ones_like(a), a, torch.zeros_like(a))
    assert out.tolist() == [[-1, -1, -0.5, 0, 0.5, 1, 1]]
    assert grad.tolist() == [[0, 0, 1, 1, 1, 0, 0]]


@pytest.mark.parametrize("n", [1, 16, 37, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nan_and_infinity_pass_through_add_hardtanh(n: int, dtype: torch.dtype) -> None:
    for at in (0, n // 2, n - 1):
        a = torch.zeros(1, n, dtype=dtype)
        a[0, at] = float("nan")
        out = add_hardtanh(a, torch.zeros_like(a))
        assert out.isnan().nonzero().tolist() == [[0, at]]
    assert add_hardtanh(torch.full((1, n), float("inf")), torch.zeros(1, n)).tolist() == [[1.0] * n]


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.0, 0.1, -7.3])
def test_constant_image_is_finite_and_minus_one(name: str, dtype: torch.dtype, value: float) -> None:
    x = torch.full((2, 3, 5, 7), value, dtype=dtype)
    x[1] = gaussian(0, (3, 5, 7))
    out, grad = with_gradient(lambda x: binarize_standardised(x, estimator(name, 1.0, 1.0)), torch.ones_like(x), x)
    assert grad.isfinite().all()
    if dtype is torch.float32 and isinstance(
        estimator(name, 1.0, 1.0), Tent
    ):  # the kernels' mean is exact; torch's may have a rounding error
        assert out[0].eq(-1).all()
    assert 0 < out[1].eq(1).sum() < 105


def test_nearly_constant_image_has_the_gradient_of_a_clamped_deviation() -> None:
    x, grad = 1e-7 * gaussian(0, (1, 3, 5, 5)), gaussian(1, (1, 3, 5, 5))
    derivative = estimator("ppf", 1.0, 1.0)
    _, found = with_gradient(lambda x: binarize_standardised(x, derivative), grad, x)
    _, expected = with_gradient(lambda x: stand_in(standardised(x), derivative), grad.double(), x.double())
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


@pytest.mark.parametrize("function", [binarize, binarize_standardised])
@pytest.mark.parametrize("shape", [(0, 5), (0, 3, 4, 4)])
def test_empty_batch(function: Callable[..., Tensor], shape: tuple[int, ...]) -> None:
    x = torch.zeros(shape)
    out, grad = with_gradient(lambda x: function(x, estimator("ste", 1.0, 1.0)), torch.zeros(shape), x)
    assert out.shape == grad.shape == shape
    assert add_hardtanh(x, x).shape == shape


def test_memory_order_is_kept() -> None:
    x = gaussian(0, (2, 8, 5, 5)).to(memory_format=torch.channels_last)
    derivative = estimator("ste", 1.0, 1.0)
    for out in (binarize(x, derivative), binarize_standardised(x, derivative), add_hardtanh(x, x)):
        assert out.is_contiguous(memory_format=torch.channels_last)


def test_input_and_gradient_are_left_alone() -> None:
    x, grad = gaussian(0, (2, 300)), gaussian(1, (2, 300))
    before = x.clone(), grad.clone()
    derivative = estimator("ste", 1.0, 1.0)
    with_gradient(lambda x: binarize_standardised(x, derivative), grad, x)
    with_gradient(lambda x: binarize(x, derivative), grad, x)
    with_gradient(add_hardtanh, grad, x, x)
    assert torch.equal(x, before[0])
    assert torch.equal(grad, before[1])


# More than one chunk per thread: the kernels distribute 16384 values at a time.
@pytest.mark.parametrize("shape", [(5, 37, 33, 31), (40, 3000), (1, 200_003)])
def test_any_number_of_threads_gives_the_same_bits(shape: tuple[int, ...]) -> None:
    x, grad = gaussian(0, shape), gaussian(1, shape)
    derivative = estimator("training-aware", 1.0, 1.0)
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results.append(
            with_gradient(lambda x: binarize(x, derivative), grad, x)
            + with_gradient(lambda x: binarize_standardised(x, derivative), grad, x)
            + with_gradient(add_hardtanh, grad, x, grad)
        )
    for one, other in pairwise(results):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


# Bits


@given(st.integers(0, 4), st.integers(1, 200), seeds)
def test_pack_bits_is_numpys_little_endian_packing(rows: int, n: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(-1, 2, (rows, n)).astype(np.float32)
    words = -(-n // 64)
    padded = np.zeros((rows, 64 * words), bool)
    padded[:, :n] = values > 0
    expected = np.packbits(padded, axis=1, bitorder="little").view("<u8")
    found = _core.pack_bits(values)
    assert found.dtype == np.uint64
    np.testing.assert_array_equal(found, expected.reshape(rows, words))


def test_nan_is_not_positive() -> None:
    assert _core.pack_bits(np.array([[np.nan, 1, -0.0, np.inf]], np.float32)).tolist() == [[0b1010]]


def test_no_values_no_words() -> None:
    assert _core.pack_bits(np.zeros((3, 0), np.float32)).shape == (3, 0)


# Wrong arrays are rejected before a pointer is used.

F32 = np.zeros((2, 8), np.float32)
FLAT = np.array([1.0, 0.0, 1.0, 0.0])


@pytest.mark.parametrize(
    "call",
    [
        lambda: _core.sign_forward(F32, np.zeros((2, 7), np.float32), 1),
        lambda: _core.sign_forward(F32, np.zeros((3, 8), np.float32), 1),
        lambda: _core.sign_forward(F32, F32.astype(np.float64), 1),
        lambda: _core.sign_forward(F32.astype(np.float64), F32, 1),
        lambda: _core.sign_forward(F32, np.zeros((8, 2), np.float32).T, 1),
        lambda: _core.sign_forward(np.zeros(8, np.float32), np.zeros(8, np.float32), 1),
        lambda: _core.sign_backward(F32, F32[:1], F32, FLAT, 1),
        lambda: _core.sign_backward(F32, F32, F32, FLAT[:3], 1),
        lambda: _core.standardised_sign_forward(F32, F32, np.zeros(3, np.float32), np.zeros(2, np.float32), 1),
        lambda: _core.standardised_sign_forward(F32, F32, np.zeros(2, np.float32), np.zeros(1, np.float32), 1),
        lambda: _core.standardised_sign_backward(
            F32, F32, np.zeros(2, np.float32), np.zeros(3, np.float32), F32, FLAT, 1
        ),
        lambda: _core.add_hardtanh_forward(F32, F32[:, :4].copy(), F32, 1),
        lambda: _core.add_hardtanh_backward(F32, F32, F32[:1].copy(), 1),
        lambda: _core.pack_bits(F32[0]),
        lambda: _core.pack_bits(F32.astype(np.int32)),
    ],
)
def test_wrong_arrays_raise(call: Callable[[], object]) -> None:
    with pytest.raises((TypeError, ValueError)):
        call()


def test_read_only_output_is_refused() -> None:
    out = np.zeros((2, 8), np.float32)
    out.flags.writeable = False
    with pytest.raises((TypeError, ValueError, BufferError)):
        _core.sign_forward(F32, out, 1)
