"""FSDP2 on two processes: every method computes the same bits as on one."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from rbnn.methods import method_names


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("sharded")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    ended = subprocess.run(
        [*command, str(Path(__file__).with_name("sharded_ranks.py")), str(folder)],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "Warning" not in ended.stderr
    return torch.load(folder / "found.pt", weights_only=True)  # type: ignore[no-any-return]


@pytest.mark.parametrize("method", [name for name in method_names() if name != "float"])
def test_both_processes_are_given_the_same_pictures(found: dict[str, Any], method: str) -> None:
    """Both processes get the same images, so the mean of their gradients is the gradient of one."""
    whole, cut = found[method]["losses"]
    assert whole == cut
    assert whole[-1] < whole[0]
    expected, state = found[method]["whole"], found[method]["cut"]
    assert list(state) == list(expected)
    for name, tensor in expected.items():
        torch.testing.assert_close(state[name], tensor, rtol=0, atol=0, equal_nan=True, msg=name)
