"""The bi-rotation against plain loops over filters in float64 NumPy, and the paper's claims about it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rbnn.functional import (
    adjustable_weight,
    factor_pair,
    optimise_rotation,
    polar_factor,
    polish,
    random_orthogonal,
    rotate,
    rotation_shape,
    standardise,
)
from rbnn.functional.rotation import LARGEST_SIDE, alignment, b_step, r1_step, r2_step

Matrix = NDArray[np.float64]

sides = st.integers(1, 7)
seeds = st.integers(0, 2**32 - 1)


def gaussian(seed: int, *shape: int) -> Matrix:
    return np.random.default_rng(seed).standard_normal(shape)


def orthogonal(seed: int, n: int) -> Matrix:
    return np.linalg.qr(gaussian(seed, n, n))[0]


def off_identity(r: torch.Tensor) -> float:
    """The largest entry of |RᵀR − I|, computed in double."""
    r = r.double()
    return float((r.T @ r - torch.eye(len(r), dtype=torch.float64)).abs().max())


def tensors(*arrays: Matrix) -> list[torch.Tensor]:
    return [torch.from_numpy(array) for array in arrays]


# Factor pairs


@given(st.integers(1, 5000))
def test_factor_pair_is_the_closest_to_the_root(n: int) -> None:
    pairs = [(d, n // d) for d in range(1, n + 1) if n % d == 0 and d <= n // d]
    assert factor_pair(n) == min(pairs, key=lambda pair: pair[1] - pair[0])


@pytest.mark.parametrize(
    ("n", "pair"), [(1, (1, 1)), (7, (1, 7)), (64 * 9, (24, 24)), (512 * 9, (64, 72)), (512 * 512 * 9, (1536, 1536))]
)
def test_factor_pairs_of_known_layers(n: int, pair: tuple[int, int]) -> None:
    assert factor_pair(n) == pair


@given(st.integers(1, 20_000))
@settings(max_examples=50)
def test_rotation_shape_leaves_little_out_and_bounds_the_sides(n: int) -> None:
    n1, n2 = rotation_shape(n)
    assert 0 < n1 * n2 <= n
    assert max(n1, n2) <= LARGEST_SIDE
    if factor_pair(n)[1] <= LARGEST_SIDE:
        assert n1 * n2 == n


def test_rotation_shape_of_a_large_prime_takes_the_next_smaller_number() -> None:
    # 4099 is prime; 4098 = 2·3·683 has the pair (6, 683).
    assert rotation_shape(4099) == (6, 683)


def test_rotation_shape_needs_a_value() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        rotation_shape(0)


# Orthogonal matrices


def test_random_orthogonal_is_orthogonal_and_haar() -> None:
    generator = torch.Generator().manual_seed(0)
    many = torch.stack([random_orthogonal(3, generator) for _ in range(4000)]).double()
    assert max(off_identity(r) for r in many[:50]) < 1e-6
    # Under the Haar measure every entry has mean 0 and variance 1/n; without the sign fix QR has a biased diagonal.
    assert many.mean(0).abs().max() < 0.05
    assert (many.var(0) - 1 / 3).abs().max() < 0.05
    assert torch.linalg.det(many).mean().abs() < 0.1  # both reflections and rotations


def test_random_orthogonal_repeats_with_its_generator() -> None:
    first, again = (random_orthogonal(5, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, again)


@pytest.mark.parametrize("n", [1, 2, 24, 72, 384])
def test_polar_factor_is_orthogonal_and_reaches_the_nuclear_norm(n: int) -> None:
    g = gaussian(n, n, n)
    x = polar_factor(torch.from_numpy(g).float())
    assert off_identity(x) <= 1e-5
    nuclear = np.linalg.svd(g, compute_uv=False).sum()
    assert float((torch.from_numpy(g) * x.double()).sum()) == pytest.approx(nuclear, rel=1e-6)


@pytest.mark.parametrize(
    "g",
    [
        np.zeros((6, 6)),
        np.zeros((1, 1)),
        np.full((1, 1), -2.0),
        np.ones((5, 5)),  # rank 1
        np.outer(gaussian(1, 8), gaussian(2, 8)),
        np.diag([3.0, 1.0, 0.0, 0.0]),
        1e-20 * gaussian(3, 6, 6),
        1e15 * gaussian(4, 6, 6),
    ],
)
def test_polar_factor_of_degenerate_matrices_is_orthogonal_all_the_same(g: Matrix) -> None:
    g = np.asarray(g, np.float32).astype(np.float64)
    x = polar_factor(torch.from_numpy(g).float())
    assert off_identity(x) <= 1e-5
    nuclear = np.linalg.svd(g, compute_uv=False).sum()
    assert float((torch.from_numpy(g) * x.double()).sum()) == pytest.approx(nuclear, rel=1e-5, abs=1e-30)


@pytest.mark.parametrize("error", [1e-2, 1e-4])
def test_polish_squares_what_is_missing(error: float) -> None:
    r = torch.from_numpy(orthogonal(0, 24) + error * gaussian(1, 24, 24) / 24)
    before, after = off_identity(r), off_identity(polish(r))
    assert 1e-2 * error < before
    assert after < 4 * 24 * before**2


@given(sides, sides, seeds)
def test_kronecker_product_of_orthogonal_is_orthogonal_and_equals_the_bi_rotation(n1: int, n2: int, seed: int) -> None:
    r1, r2, w = orthogonal(seed, n1), orthogonal(seed + 1, n2), gaussian(seed + 2, n1 * n2)
    r = np.kron(r1, r2)
    np.testing.assert_allclose(r.T @ r, np.eye(n1 * n2), atol=1e-12)
    np.testing.assert_allclose(r.T @ w, (r1.T @ w.reshape(n1, n2) @ r2).reshape(-1), atol=1e-12)
    found = rotate(*tensors(w[None], r1, r2))
    np.testing.assert_allclose(found[0], r.T @ w, atol=1e-12)


@given(sides, sides, st.integers(1, 5), seeds)
def test_values_beyond_the_rotation_stay_and_the_map_is_orthogonal(n1: int, n2: int, rest: int, seed: int) -> None:
    r1, r2, w = orthogonal(seed, n1), orthogonal(seed + 1, n2), gaussian(seed + 2, 3, n1 * n2 + rest)
    found = rotate(*tensors(w, r1, r2)).numpy()
    np.testing.assert_array_equal(found[:, n1 * n2 :], w[:, n1 * n2 :])
    np.testing.assert_allclose(found[:, : n1 * n2], w[:, : n1 * n2] @ np.kron(r1, r2), atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), np.linalg.norm(w, axis=1), rtol=1e-12)


# The three steps


def loop_cycle(w: Matrix, r1: Matrix, r2: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """One cycle of eq. 12 to 14, filter by filter, by the SVD of NumPy."""
    b = np.stack([np.where(r1.T @ one @ r2 > 0, 1.0, -1.0) for one in w])
    g1 = sum((sign @ r2.T @ one.T for sign, one in zip(b, w, strict=True)), np.zeros((len(r1), len(r1))))
    u, _, vt = np.linalg.svd(g1)
    r1 = vt.T @ u.T
    g2 = sum((one.T @ r1 @ sign for sign, one in zip(b, w, strict=True)), np.zeros((len(r2), len(r2))))
    u, _, vt = np.linalg.svd(g2)
    return b, r1, u @ vt


# If a G has a null space, its polar factor is not unique, and only the objective can be compared.  With n1 or n2 = 1
# each filter adds one row of signs to a G.  With 12 rows two columns are equal in 1 of 300 draws, so there are 64.
@given(st.integers(1, 6), st.integers(1, 6), seeds)
@settings(max_examples=50)
def test_steps_equal_a_loop_over_filters(n1: int, n2: int, seed: int) -> None:
    w, r1, r2 = gaussian(seed, 64, n1, n2), orthogonal(seed + 1, n1), orthogonal(seed + 2, n2)
    b, expected1, expected2 = loop_cycle(w, r1, r2)
    tw, t1, t2 = tensors(w, r1, r2)
    found_b = b_step(tw, t1, t2)
    np.testing.assert_array_equal(found_b, b)
    found1 = r1_step(tw, t2, found_b)
    np.testing.assert_allclose(found1, expected1, atol=1e-7)
    np.testing.assert_allclose(r2_step(tw, found1, found_b), expected2, atol=1e-7)


def test_optimise_rotation_is_three_cycles_of_the_loop() -> None:
    w, r1, r2 = gaussian(0, 16, 4, 6), orthogonal(1, 4), orthogonal(2, 6)
    found1, found2 = optimise_rotation(*tensors(w.reshape(16, 24), r1, r2))
    for _ in range(3):
        _, r1, r2 = loop_cycle(w, r1, r2)
    np.testing.assert_allclose(found1, r1, atol=1e-7)
    np.testing.assert_allclose(found2, r2, atol=1e-7)


@given(st.integers(1, 4), sides, sides, seeds, st.sampled_from(["gaussian", "sparse", "constant", "zero"]))
def test_the_objective_never_falls_over_a_single_step(groups: int, n1: int, n2: int, seed: int, kind: str) -> None:
    w = gaussian(seed, groups, n1, n2)
    w = {"gaussian": w, "sparse": w * (w > 1), "constant": w * 0 + 0.3, "zero": w * 0}[kind]
    tw, r1, r2 = tensors(w, orthogonal(seed + 1, n1), orthogonal(seed + 2, n2))
    b = torch.from_numpy(np.random.default_rng(seed).choice([-1.0, 1.0], w.shape))
    last = alignment(tw, r1, r2, b)
    slack = 1e-9 * max(float(tw.abs().sum()), 1.0)
    for _ in range(3):
        for step in ("B", "R1", "R2"):
            if step == "B":
                b = b_step(tw, r1, r2)
            elif step == "R1":
                r1 = r1_step(tw, r2, b)
            else:
                r2 = r2_step(tw, r1, b)
            now = alignment(tw, r1, r2, b)
            assert now >= last - slack, step
            last = now


def test_objective_is_the_trace_of_eq_11() -> None:
    w, r1, r2 = gaussian(0, 3, 4, 5), orthogonal(1, 4), orthogonal(2, 5)
    b = np.sign(gaussian(3, 3, 4, 5))
    expected = sum(np.trace(sign @ r2.T @ one.T @ r1) for sign, one in zip(b, w, strict=True))
    assert float(alignment(*tensors(w, r1, r2, b))) == pytest.approx(expected, rel=1e-12)


@given(sides, sides, seeds)
def test_cosine_is_the_objective_over_root_n_times_norm(n1: int, n2: int, seed: int) -> None:
    w, r1, r2 = gaussian(seed, 1, n1, n2), orthogonal(seed + 1, n1), orthogonal(seed + 2, n2)
    tw, t1, t2 = tensors(w, r1, r2)
    b = b_step(tw, t1, t2)
    rotated = np.kron(r1, r2).T @ w.reshape(-1)
    signs = np.where(rotated > 0, 1.0, -1.0)
    cosine = rotated @ signs / np.linalg.norm(rotated) / np.linalg.norm(signs)
    trace = float(alignment(tw, t1, t2, b))
    assert trace / (np.sqrt(n1 * n2) * np.linalg.norm(w)) == pytest.approx(cosine, rel=1e-9)


def test_rotation_of_a_whole_layer_reaches_the_measured_cosine() -> None:
    # 16×16×3×3 Gaussian: .80 without rotation, .97 after three cycles (measured).
    w = torch.from_numpy(gaussian(0, 1, 16 * 16 * 9)).float()
    n1, n2 = rotation_shape(w.shape[1])
    r1, r2 = (random_orthogonal(n, torch.Generator().manual_seed(n)) for n in (n1, n2))
    turned = rotate(w, *optimise_rotation(w, r1, r2))
    cosines = [float(v.abs().sum() / v.norm() / v.numel() ** 0.5) for v in (w, turned)]
    assert cosines[0] == pytest.approx(0.80, abs=0.01)
    assert cosines[1] > 0.95


def test_a_thousand_epochs_in_float32_stay_orthogonal() -> None:
    random = np.random.default_rng(0)
    w = torch.from_numpy(random.standard_normal((8, 24))).float()
    r1, r2 = (random_orthogonal(n, torch.Generator().manual_seed(n)) for n in (4, 6))
    for _ in range(1000):
        w = 0.98 * w + 0.05 * torch.from_numpy(random.standard_normal((8, 24))).float()
        r1, r2 = optimise_rotation(w, r1, r2)
    assert off_identity(r1) <= 1e-5
    assert off_identity(r2) <= 1e-5


@pytest.mark.parametrize("shape", [(4, 8, 3, 3), (4, 8, 1, 1), (4, 1, 1, 1), (1, 1, 1, 1), (3, 7), (2, 13, 1, 1)])
@pytest.mark.parametrize("values", ["constant", "zero", "one filter constant", "one value", "gaussian"])
@pytest.mark.parametrize("granularity", ["filter", "layer"])
def test_degenerate_weights_give_a_valid_rotation(shape: tuple[int, ...], values: str, granularity: str) -> None:
    w = torch.from_numpy(gaussian(0, *shape)).float()
    if values == "constant":
        w.fill_(0.7)
    elif values == "zero":
        w.zero_()
    elif values == "one filter constant":
        w[0] = -0.1
    elif values == "one value":
        w.zero_().view(-1)[0] = 1.0
    flat = standardise(w).reshape(shape[0] if granularity == "filter" else 1, -1)
    assert flat.isfinite().all()
    n1, n2 = rotation_shape(flat.shape[1])
    r1, r2 = (random_orthogonal(n, torch.Generator().manual_seed(n)) for n in (n1, n2))
    for _ in range(3):
        r1, r2 = optimise_rotation(flat, r1, r2)
    assert off_identity(r1) <= 1e-5
    assert off_identity(r2) <= 1e-5
    assert float(rotate(flat, r1, r2).norm()) == pytest.approx(float(flat.norm()), rel=1e-5)


# Standardised and adjustable weights


@given(st.integers(1, 5), st.integers(2, 40), seeds, st.floats(1e-3, 1e3), st.floats(-100, 100))
def test_standardise_is_the_formula(filters: int, n: int, seed: int, scale: float, offset: float) -> None:
    w = gaussian(seed, filters, n) * scale + offset * scale
    expected = (w - w.mean(1, keepdims=True)) / w.std(1, ddof=1, keepdims=True)
    np.testing.assert_allclose(standardise(torch.from_numpy(w)), expected, atol=1e-9)


@pytest.mark.parametrize("value", [0.0, 0.1, -3.3e4, 1e-8])
def test_standardise_makes_zeros_of_a_constant_filter(value: float) -> None:
    # 0.1 is not representable: its mean over 27 values carries rounding noise that must not become signs.
    w = torch.full((2, 3, 3, 3), value)
    w[1, 0] = 1.0 + value
    standard = standardise(w)
    assert torch.equal(standard[0], torch.zeros(3, 3, 3))
    assert float(standard[1].std()) == pytest.approx(1, rel=1e-5)


def test_standardise_of_one_value_keeps_its_sign() -> None:
    w = torch.tensor([0.3, -4.0, 0.0]).reshape(3, 1, 1, 1)
    assert standardise(w).flatten().tolist() == [1.0, -1.0, 0.0]


def test_gradient_through_standardise_is_finite_for_constant_filters() -> None:
    w = torch.full((2, 9), 0.1, requires_grad=True)
    (standardise(w) * torch.arange(9.0)).sum().backward()
    assert w.grad is not None
    assert w.grad.isfinite().all()


def test_gradient_through_standardise_by_finite_differences() -> None:
    w = torch.from_numpy(gaussian(0, 3, 7)).requires_grad_()
    assert torch.autograd.gradcheck(standardise, (w,))


@given(st.integers(1, 4), sides, sides, st.integers(0, 3), st.floats(0, 1), seeds)
@settings(max_examples=50)
def test_gradient_of_the_adjustable_weight_keeps_the_rotation(
    groups: int, n1: int, n2: int, rest: int, alpha: float, seed: int
) -> None:
    """∂w̃/∂w = (1 − α) I + α Rᵀ as an explicit matrix, and ∂L/∂α = Σ_j [σ(Rᵀw − w)]_j."""
    n = n1 * n2 + rest
    r1, r2, w = orthogonal(seed, n1), orthogonal(seed + 1, n2), gaussian(seed + 2, groups, n)
    r = np.eye(n)
    r[: n1 * n2, : n1 * n2] = np.kron(r1, r2)
    jacobian = (1 - alpha) * np.eye(n) + alpha * r.T
    grad = gaussian(seed + 3, groups, n)
    tw, t1, t2 = tensors(w, r1, r2)
    ta = torch.full((groups, 1), alpha, dtype=torch.float64, requires_grad=True)
    mixed = adjustable_weight(tw.requires_grad_(), t1, t2, ta)
    np.testing.assert_allclose(mixed.detach(), w @ jacobian.T, atol=1e-12)
    mixed.backward(torch.from_numpy(grad))
    assert tw.grad is not None
    assert ta.grad is not None
    np.testing.assert_allclose(tw.grad, grad @ jacobian, atol=1e-12)
    np.testing.assert_allclose(ta.grad[:, 0], (grad * (w @ r - w)).sum(1), atol=1e-11)


def test_gradients_of_the_adjustable_weight_by_finite_differences() -> None:
    w, r1, r2, alpha = tensors(gaussian(0, 2, 13), orthogonal(1, 3), orthogonal(2, 4), np.array([[0.3], [0.9]]))
    assert torch.autograd.gradcheck(
        lambda w, alpha: adjustable_weight(w, r1, r2, alpha), (w.requires_grad_(), alpha.requires_grad_())
    )
