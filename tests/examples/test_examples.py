"""Every example at small size: it trains, exports, and the packed network agrees with torch."""

import os
import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from rbnn.packed.session import Session

EXAMPLES = Path(__file__).parents[2] / "examples"
SHARED = "digits_cnn.py"
IN_THIS_PROCESS = ("plain_torch.py", "mixed_precision.py", "moving_average.py")
BY_ITSELF = {
    "lightning_loop.py": "lightning",
    "hugging_face_trainer.py": "transformers",
    "accelerate_loop.py": "accelerate",
}
"""If its packages are installed.  Each runs in its own process, because these packages change global state."""
ON_TWO = ("ddp.py", "fsdp.py")


def check(printed: str) -> None:
    losses = [float(each) for each in re.findall(r"\bloss'?:? '?(\d+\.\d+)", printed)]
    assert len(losses) >= 2
    assert "epoch 0:" not in printed  # people count from 1
    assert losses[-1] < 0.7 * losses[0]
    ((torch, packed),) = re.findall(r"torch (\d+\.\d) %, packed (\d+\.\d) %", printed)
    assert torch == packed
    assert float(torch) > 70
    assert "360 of 360 answers equal" in printed


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # Other packages emit their own warnings.
    assert not re.search(r"(rbnn|examples)/\S+: \w*Warning", done.stderr), done.stderr
    return done.stdout


def test_compiled(tmp_path: Path) -> None:
    """One epoch with a backend that does not compile C++, which would take most of a minute."""
    printed = run([str(EXAMPLES / "compiled.py"), "--epochs", "1", "--backend", "aot_eager"], tmp_path)
    ((torch, packed),) = re.findall(r"torch (\d+\.\d) %, packed (\d+\.\d) %", printed)
    assert torch == packed
    assert float(torch) > 30  # of ten classes


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["plain_torch.py", "--method", "nosuch"], "argument --method: invalid choice: 'nosuch'"),
        (["plain_torch.py", "--epochs", "0"], "--epochs must be at least 1, got 0"),
        (["plain_torch.py", "--out", "no/net.rbnn"], "--out: the directory no does not exist"),
        (["segmentation.py", "--data", "cifar10", "--data-dir", "no"], "segmentation.py: "),
        (["fine_tune.py", "no", "net.rbnn"], "fine_tune.py: no does not exist: expected a directory with train/"),
    ],
)
def test_bad_arguments_get_one_sentence(tmp_path: Path, words: list[str], says: str) -> None:
    command = [sys.executable, str(EXAMPLES / words[0]), *words[1:]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode in (1, 2)
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", BY_ITSELF)
def test_a_missing_package_is_named(tmp_path: Path, name: str) -> None:
    """A package that fails to import as if it were not installed."""
    (tmp_path / f"{BY_ITSELF[name]}.py").write_text(f"raise ModuleNotFoundError(name={BY_ITSELF[name]!r})")
    paths = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, str(EXAMPLES / name)]
    done = subprocess.run(command, cwd=tmp_path, env=paths, capture_output=True, text=True, timeout=300)
    assert done.stderr == f"this example needs {BY_ITSELF[name]}: pip install 'rbnn[examples]'\n"


def test_every_example_is_run() -> None:
    tests = "".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    for path in set(EXAMPLES.glob("*.py")) - {EXAMPLES / SHARED}:
        assert f'"{path.name}"' in tests


@pytest.mark.parametrize("name", IN_THIS_PROCESS)
def test_own_loops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "argv", [name, "--epochs", "3", "--out", str(tmp_path / "net.rbnn")])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    check(capsys.readouterr().out)


@pytest.mark.parametrize("name", BY_ITSELF)
def test_loops_of_other_packages(tmp_path: Path, name: str) -> None:
    pytest.importorskip(BY_ITSELF[name], reason="pip install 'rbnn[examples]'")
    check(run([str(EXAMPLES / name), "--epochs", "2"], tmp_path))


@pytest.mark.parametrize("name", ON_TWO)
def test_two_processes(tmp_path: Path, name: str) -> None:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    check(run([*launcher, str(EXAMPLES / name), "--epochs", "2"], tmp_path))


@pytest.mark.skipif(find_spec("aeon") is None, reason="pip install --no-deps aeon")
@pytest.mark.parametrize(("data", "least"), [("BasicMotions", 85), ("JapaneseVowels", 85)])
def test_signals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], data: str, least: int
) -> None:
    arguments = [data, "--epochs", "8", "--out", str(tmp_path / "net.rbnn")]
    monkeypatch.setattr(sys, "argv", ["signals.py", *arguments])
    runpy.run_path(str(EXAMPLES / "signals.py"), run_name="__main__")
    printed = capsys.readouterr().out
    twin, binary, packed = map(float, re.findall(r"(\d+\.\d) %", printed))
    assert binary == packed
    assert min(twin, binary) > least


def test_segmentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The packed U-Net and the command line agree with torch, and all figures are written."""
    from PIL import Image

    from rbnn.cli import main

    arguments = ["--epochs", "2", "--scenes", "160", "--channels", "16", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["segmentation.py", *arguments])
    example = runpy.run_path(str(EXAMPLES / "segmentation.py"), run_name="__main__")
    printed = capsys.readouterr().out
    losses = [float(each) for each in re.findall(r"loss (\d+\.\d+)", printed)]
    assert len(losses) == 4
    assert losses[1] < 0.95 * losses[0]
    assert losses[3] < 0.95 * losses[2]
    rows = re.findall(r"1-bit, (?:torch|packed): (\S+) % of pixels right, mean IoU (\S+) %", printed)
    torch, packed = ([float(number) for number in row] for row in rows)
    np.testing.assert_allclose(torch, packed, atol=0.1)
    ((equal, pixels),) = re.findall(r"torch and packed: ([\d,]+) of ([\d,]+) pixels equal", printed)
    assert pixels == f"{100 * 32 * 32:,}"
    assert int(equal.replace(",", "")) > 0.999 * 100 * 32 * 32  # a sign at a near-tie may differ, and a pixel with it
    assert re.search(r"1-bit \d+\.\d+ ms, float twin in torch \d+\.\d+ ms", printed)
    assert main(["predict", str(tmp_path / "unet.rbnn"), str(tmp_path / "scene.png"), "--output", str(tmp_path)]) == 0
    scene = np.asarray(Image.open(tmp_path / "scene.png"))[None, ..., None]
    images = example["Scenes"]("digits", None, "test").normalised(scene).numpy()
    seen = Session(tmp_path / "unet.rbnn")(images).argmax(1)[0]
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "scene.answer.png")), seen)
    assert Session(tmp_path / "unet.rbnn").classes == ("background", *"0123456789")
    with Image.open(tmp_path / "figure.png") as figure:
        assert min(figure.size) > 300


def test_scores_of_a_map() -> None:
    """Computed by hand: 4 of 6 pixels are right; class 0 has 2 of 3, class 1 has 2 of 4, class 2 has 0 of 1."""
    import torch

    scores = runpy.run_path(str(EXAMPLES / "segmentation.py"))["scores"]
    seen, labels = torch.tensor([[0, 0, 1, 1, 1, 1]]), torch.tensor([[0, 0, 0, 1, 1, 2]])
    assert scores(seen, labels, 3) == "66.67 % of pixels right, mean IoU 38.89 %"
