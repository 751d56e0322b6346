"""Small runs on digits for reports, each trained once; do not modify."""

from pathlib import Path

import pytest

from rbnn.training.config import from_table
from rbnn.training.loop import train


def trained(out: Path, method: str, epochs: int) -> Path:
    table = {"epochs": epochs, "limit": 128, "batch_size": 64, "lr": 0.05, "threads": 1, "method": method}
    return train(from_table(table | {"out": str(out)})).out


@pytest.fixture(scope="session")
def rbnn_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three epochs, in a directory whose name must not be taken for markup."""
    return trained(tmp_path_factory.mktemp("runs") / "rotated <b>$x$ & 語", "rbnn", 3)


@pytest.fixture(scope="session")
def xnor_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs") / "xnor", "xnor-net", 2)


@pytest.fixture(scope="session")
def float_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs") / "float", "float", 1)
