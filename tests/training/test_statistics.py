"""Re-estimated batch-norm statistics: the network's outputs stay the same, in training mode too."""

import pytest
import torch
from torch import nn

from rbnn.errors import CheckpointError
from rbnn.training.statistics import get_statistics, refresh_statistics, set_statistics


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Hardtanh(), nn.Conv2d(8, 4, 3, bias=False), nn.BatchNorm2d(4)
    )


def test_what_it_computes_stays_and_training_mode_agrees() -> None:
    model, images = network(), torch.randn(64, 3, 8, 8) * 3 + 1
    model.eval()
    with torch.no_grad():
        before = model(images)
        assert not torch.allclose(model.train()(images), before, atol=0.1)  # without re-estimation the outputs differ
        model[1].reset_running_stats(), model[4].reset_running_stats()
        model.eval()
        before = model(images)
        refresh_statistics(model, images.split(16))
        assert not model.training
        torch.testing.assert_close(model(images), before, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(model.train()(images), before, rtol=1e-3, atol=2e-3)


def test_they_are_the_mean_and_the_variance_of_all_pictures() -> None:
    model, images = network(), torch.randn(40, 3, 8, 8) + 2
    refresh_statistics(model, images.split(7))
    seen = model[0](images).detach().double()
    torch.testing.assert_close(model[1].running_mean.double(), seen.mean((0, 2, 3)), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model[1].running_var.double(), seen.var((0, 2, 3)), rtol=1e-5, atol=1e-6)


def test_known_ones_are_set_as_they_were_measured() -> None:
    measured, other, images = network(), network(), torch.randn(32, 3, 8, 8) + 2
    refresh_statistics(measured, [images])
    set_statistics(other, *get_statistics(measured))
    for name, value in measured.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value, msg=name)
    with pytest.raises(CheckpointError, match="expected statistics of 12 channels, got 3"):
        set_statistics(other, torch.zeros(3), torch.ones(3))


def test_a_norm_without_statistics_is_left_alone() -> None:
    model = nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False), nn.BatchNorm2d(3, affine=False))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    refresh_statistics(model, [torch.randn(8, 3, 4, 4) + 5])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
