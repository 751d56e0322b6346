"""A run whose images are decoded by workers: signals to the whole process group, and workers that die."""

import signal
from pathlib import Path

import numpy as np
import pytest
from faults import Fault
from killed_run import INT, KILL, TERM, code_of, messages, send_to_group, start
from PIL import Image
from runs import assert_same_run, state_of

SEGV = signal.SIGSEGV
STEPS = 4


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of noise, one brighter than the other."""
    root = tmp_path_factory.mktemp("pictures")
    random = np.random.default_rng(0)
    for split, count in (("train", 16), ("val", 8)):
        for number, name in enumerate(("dark", "light")):
            folder = root / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = random.integers(100 * number, 100 * number + 100, (20, 24, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
    return root


def command(out: Path, pictures: Path) -> list[str]:
    words = {"data": "image-folder", "data-dir": pictures, "image-size": 16, "batch-size": 8, "epochs": 2}
    words |= {"lr": 0.05, "threads": 1, "workers": 2, "out": out}
    return ["train", *(word for key, value in words.items() for word in (f"--{key}", str(value)))]


@pytest.fixture(scope="module")
def whole(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    assert code_of(start(command(out, pictures), out.with_name("said"))) == 0, out.with_name("said").read_text()
    return out


@pytest.mark.parametrize("sent", [TERM, INT])
def test_a_signal_to_the_whole_group(
    sent: signal.Signals, whole: Path, pictures: Path, tmp_path: Path, fault: Fault
) -> None:
    out, said = tmp_path / "run", tmp_path / "said"
    with fault("signal to a run and its workers"):
        run = start(command(out, pictures), said, "step", STEPS + 2, (signal.SIGSTOP,))
        send_to_group(run, sent)
        assert code_of(run) == 130, said.read_text()
        assert messages(said.read_text()) == [f"stopped; continue with: rbnn train {out} --resume"]
        # The kernel delivers a signal to any thread of the run, so the main thread may be one step further by then.
        assert (state_of(out / "last.pt")["epoch"], state_of(out / "last.pt")["step"]) in ((1, 2), (1, 3))
        assert code_of(start(["train", str(out), "--resume"], tmp_path / "said after")) == 0
        assert_same_run(whole, out)


@pytest.mark.parametrize(
    ("sent", "moment", "count", "place"),
    [
        (KILL, "step", 1, (0, 1)),
        (SEGV, "step", STEPS + 1, (1, 1)),
        pytest.param(KILL, "validation", 1, (0, STEPS), marks=pytest.mark.long),
        pytest.param(KILL, "step", STEPS, (0, STEPS), marks=pytest.mark.long),
    ],
)
def test_a_worker_that_dies(
    sent: signal.Signals,
    moment: str,
    count: int,
    place: tuple[int, int],
    whole: Path,
    pictures: Path,
    tmp_path: Path,
    fault: Fault,
) -> None:
    out, said = tmp_path / "run", tmp_path / "said"
    with fault("worker that dies"):
        assert code_of(start(command(out, pictures), said, moment, count, (sent,), "worker")) == 2, said.read_text()
        (line,) = messages(said.read_text())
        assert line.startswith("rbnn: a process that decodes images was killed (")
        epoch, step = place
        assert line.endswith(f"saved at step {step} of epoch {epoch + 1}; continue with: rbnn train {out} --resume")
        assert code_of(start(["train", str(out), "--resume"], tmp_path / "said after")) == 0
        assert_same_run(whole, out)


def test_a_picture_that_is_broken_costs_no_epoch(whole: Path, pictures: Path, tmp_path: Path, fault: Fault) -> None:
    """The run saves a checkpoint and continues once the image has been repaired."""
    out, said = tmp_path / "run", tmp_path / "said"
    picture = pictures / "val" / "light" / "7.png"
    good = picture.read_bytes()
    with fault("broken image"):
        try:
            picture.write_bytes(good[:50])
            assert code_of(start(command(out, pictures), said)) == 2
        finally:
            picture.write_bytes(good)
        (line,) = messages(said.read_text())
        assert "7.png could not be read as an image" in line
        assert line.endswith(f"saved at step {STEPS} of epoch 1; continue with: rbnn train {out} --resume")
        assert code_of(start(["train", str(out), "--resume"], tmp_path / "said after")) == 0
        assert_same_run(whole, out)
