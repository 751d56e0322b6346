"""The QONNX file in qonnx's own executor, as docs/onnx.md shows it.

qonnx needs an older onnx than the other tests: QONNX_PYTHON names the interpreter of an environment that has both.
"""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rbnn
from rbnn.packed import oracle

PYTHON = os.environ.get("QONNX_PYTHON") or (sys.executable if importlib.util.find_spec("qonnx") else None)
PAGE = (Path(__file__).parents[2] / "docs" / "onnx.md").read_text(encoding="utf-8")


@pytest.mark.skipif(PYTHON is None, reason="QONNX_PYTHON names no interpreter with qonnx")
@pytest.mark.parametrize("name", ["resnet20-bireal-digits", "resnet20-bireal-cifar10"])
def test_qonnx_answers_as_the_oracle(name: str, tmp_path: Path) -> None:
    rbnn.export_onnx(name, tmp_path / "net.qonnx.onnx", qonnx=True)
    (shown,) = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "qonnx.core" in block]
    (tmp_path / "page.py").write_text(f"{shown}\nnp.savez('answers.npz', images=images, logits=logits)\n", "utf-8")
    assert PYTHON is not None
    done = subprocess.run([PYTHON, "page.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "answers.npz") as found:
        wanted = oracle.run(rbnn.load(name).graph, found["images"])
        np.testing.assert_allclose(found["logits"], wanted, atol=1e-4)
