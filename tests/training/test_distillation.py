"""Distillation: the loss follows the formula, a run learns from its teacher, and nothing else changes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from runs import log_of, small, state_of
from scipy.special import log_softmax
from stopped_run import assert_resumes_bit_for_bit

from rbnn.errors import CheckpointError, ConfigError
from rbnn.training.checkpoint import load_network
from rbnn.training.distillation import distillation_loss
from rbnn.training.loop import train


@pytest.mark.parametrize(("share", "temperature"), [(0.9, 2.0), (0.5, 6.0), (0.0, 1.0), (1.0, 1.0)])
def test_the_loss_is_the_formula(share: float, temperature: float) -> None:
    random = np.random.default_rng(0)
    logits, taught, labels = 3 * random.normal(size=(7, 5)), 3 * random.normal(size=(7, 5)), random.integers(0, 5, 7)
    own, theirs = log_softmax(logits / temperature, 1), log_softmax(taught / temperature, 1)
    softened = (np.exp(theirs) * (theirs - own)).sum(1).mean()
    hard = -log_softmax(logits, 1)[np.arange(7), labels].mean()
    loss = distillation_loss(*map(torch.from_numpy, (logits, taught, labels)), share, temperature)
    assert float(loss) == pytest.approx((1 - share) * hard + share * temperature**2 * softened, rel=1e-12)


def test_without_labels_the_gradient_is_that_of_the_teachers_answers() -> None:
    """−Σ p_T log p_S, whose gradient for a logit is (p_S − p_T)/N."""
    logits = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    taught, labels = torch.randn(6, 4, dtype=torch.float64), torch.zeros(6, dtype=torch.int64)
    distillation_loss(logits, taught, labels, share=1.0, temperature=1.0).backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, (logits.detach().softmax(1) - taught.softmax(1)) / 6)


def test_a_teacher_that_agrees_leaves_the_labels_alone() -> None:
    logits, labels = torch.randn(4, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    loss = distillation_loss(logits, logits, labels, 0.9, 2.0)
    assert float(loss) == pytest.approx((1 - 0.9) * float(torch.nn.functional.cross_entropy(logits, labels)))


def test_a_pupil_follows_its_teacher_and_the_teacher_stays(float_twin: Path, tmp_path: Path) -> None:
    before = (float_twin / "best.pt").read_bytes()
    alone, taught = tmp_path / "alone", tmp_path / "taught"
    train(small(alone, epochs=1))
    train(small(taught, epochs=1, teacher=str(float_twin)))
    assert (float_twin / "best.pt").read_bytes() == before
    assert log_of(taught)[0]["loss"] != log_of(alone)[0]["loss"]
    images = torch.randn(256, 1, 8, 8)
    with torch.no_grad():
        wanted = load_network(float_twin).model.eval()(images).log_softmax(1)
        apart = [
            float(torch.nn.functional.kl_div(network.log_softmax(1), wanted, log_target=True, reduction="batchmean"))
            for network in (load_network(path).model.eval()(images) for path in (taught, alone))
        ]
    assert apart[0] < apart[1]


def test_without_a_step_a_teacher_changes_nothing(float_twin: Path, tmp_path: Path) -> None:
    """The initial weights are the same, and the checkpoint contains nothing of the teacher."""
    alone, taught = tmp_path / "alone", tmp_path / "taught"
    train(small(alone, epochs=1, lr=0))
    train(small(taught, epochs=1, lr=0, teacher=str(float_twin)))
    first, second = (state_of(path / "last.pt")["model"] for path in (alone, taught))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first if name.endswith(".weight"))


def test_share_and_temperature_reach_the_loss(float_twin: Path, tmp_path: Path) -> None:
    losses = {}
    for share, temperature in ((0.9, 2.0), (1.0, 2.0), (0.9, 1.0)):
        out = tmp_path / f"{share}-{temperature}"
        more = {"distillation_share": share, "temperature": temperature}
        train(small(out, epochs=1, lr=0, teacher=str(float_twin), **more))
        losses[share, temperature] = log_of(out)[0]["loss"]
    assert len(set(losses.values())) == 3


def test_a_wider_network_teaches(tmp_path: Path) -> None:
    teacher, pupil = tmp_path / "teacher", tmp_path / "pupil"
    train(small(teacher, model="resnet18-cifar", method="float", epochs=1, limit=64))
    train(small(pupil, epochs=1, teacher=str(teacher), distillation_share=1.0, temperature=1.0))
    assert log_of(pupil)[0]["loss"] > 0


def test_a_run_with_a_teacher_resumes_bit_for_bit(float_twin: Path, tmp_path: Path) -> None:
    assert_resumes_bit_for_bit(tmp_path, teacher=str(float_twin))


def test_what_cannot_teach_is_refused_before_anything_is_written(float_twin: Path, tmp_path: Path) -> None:
    state = state_of(float_twin / "best.pt")
    state["contract"]["mean"] = (0.25,)
    torch.save(state, tmp_path / "other.pt")
    out = tmp_path / "run"
    with pytest.raises(ConfigError, match=r"other\.pt was trained on different images or classes"):
        train(small(out, teacher=str(tmp_path / "other.pt")))
    with pytest.raises(CheckpointError, match="does not exist"):
        train(small(out, teacher=str(tmp_path / "nobody.pt")))
    assert not out.exists()
