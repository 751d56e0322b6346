"""`examples/fine_tune.py` on image files of three classes."""

import os
import subprocess
import sys
from pathlib import Path

from digit_files import CLASSES, pictures

from rbnn.packed.session import Session

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_three_classes_of_your_own(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "pictures", 32, 10)
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / "fine_tune.py", folder, tmp_path / "net.rbnn"],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report, *_, last = done.stdout.splitlines()
    assert report.startswith(f"{tmp_path / 'net.rbnn'}: ")
    right, of, *_ = (int(word) for word in last.split() if word.isdigit())
    assert of == 30
    assert right >= 25, last  # guessing gets 10
    assert Session(tmp_path / "net.rbnn").classes == CLASSES
