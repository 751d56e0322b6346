"""Runs that several tests look at, each trained once."""

from pathlib import Path

import pytest
from runs import small

from rbnn.training.loop import train


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two epochs of RBNN that nothing disturbed; not to be changed."""
    return train(small(tmp_path_factory.mktemp("uninterrupted"))).out


@pytest.fixture(scope="session")
def float_twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An epoch of the float twin; not to be changed."""
    return train(small(tmp_path_factory.mktemp("float-twin"), method="float", epochs=1)).out
