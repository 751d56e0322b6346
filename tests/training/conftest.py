"""Runs that several tests share, each trained once."""

from pathlib import Path

import pytest
from runs import small

from rbnn.training.loop import train


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two uninterrupted epochs of RBNN; do not modify."""
    return train(small(tmp_path_factory.mktemp("uninterrupted"))).out


@pytest.fixture(scope="session")
def float_twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One epoch of the float twin; do not modify."""
    return train(small(tmp_path_factory.mktemp("float-twin"), method="float", epochs=1)).out
