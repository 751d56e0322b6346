"""`rbnn reproduce` on digits: parallel rows, interruption, resuming and the table."""

import fcntl
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from answers import Rbnn

from rbnn.reproduce.runner import LOCK, OUTPUT
from rbnn.reproduce.tables import TABLES
from rbnn.training.config import read_recipe
from rbnn.training.log import read_log

SMALL = ["--data", "digits", "--limit", "64", "--batch-size", "32", "--threads", "1"]
RBNN = "rbnn-resnet20-bireal"
FULL = RBNN
"""The directory of B+T+R+A, which is RBNN as in the paper."""


def test_a_table_from_start_to_end(rbnn: Rbnn, tmp_path: Path) -> None:
    out = tmp_path / "rep ü"
    words = ["reproduce", "ablation", *SMALL, "--epochs", "1", "--rows", "B+T+R+A", "xnor-net", "--out", out]
    answer = rbnn(*words, "--seeds", "0", "1", "--jobs", "2")
    assert answer.code == 0
    first, *others = answer.err.splitlines()
    assert first == "training 4 runs, 2 at a time: 1 epoch of 64 images each"
    told = (f"{row}, seed {seed}: 1 of 1 epochs, test " for row in ("B+T+R+A", "xnor-net") for seed in (0, 1))
    assert [line.rpartition("test ")[0] + "test " for line in sorted(others)] == list(told)
    directories = [
        out / name / f"seed-{seed}" for name in (FULL, "xnor-net-resnet20-bireal-gradient=sgd") for seed in (0, 1)
    ]
    for directory in directories:
        assert {"config.toml", "log.jsonl", "last.pt", "best.pt"} <= {path.name for path in directory.iterdir()}

    table = json.loads((out / "ablation.json").read_text(encoding="utf-8"))
    assert table["budget"]["epochs"] == 1
    assert table["budget"]["images"] == 64
    rows = {row["row"]: row for row in table["rows"]}
    assert list(rows) == ["B+T+R+A", "xnor-net"]  # the others were not requested
    full = rows["B+T+R+A"]
    accuracies = [read_log(out / FULL / f"seed-{seed}" / "log.jsonl")[-1]["top1"] for seed in (0, 1)]
    assert full["paper"] == {"top1": 87.8, "top5": None}
    assert full["top1"]["values"] == accuracies
    assert full["top1"]["mean"] == pytest.approx(sum(accuracies) / 2)
    assert full["top1"]["std"] == pytest.approx(statistics.stdev(accuracies))
    assert full["options"]["rotation"] == "filter"
    assert full["seeds"] == [0, 1]
    text = (out / "ablation.md").read_text(encoding="utf-8")
    cell = f"{full['top1']['mean']:.2f} ± {full['top1']['std']:.2f} (2)"
    assert f"| B+T+R+A | resnet20-bireal | rbnn | 87.8 | {cell} |" in text
    assert "1 epoch of 64 images of digits" in text
    assert text.count("\n| ") == 4  # heading, rule and two rows
    assert cell in answer.out

    # Finished rows are not repeated, and another table reuses one of them.
    stamps = [(directory / "last.pt").stat().st_mtime_ns for directory in directories]
    assert json.loads(rbnn(*words, "--seeds", "0", "1", "--json").out) == table
    other = rbnn("reproduce", "gradients", *SMALL, "--epochs", "1", "--rows", "training-aware", "--out", out, "--json")
    (row,) = json.loads(other.out)["rows"]
    assert row["top1"] == {"mean": accuracies[0], "std": None, "values": accuracies[:1]}
    assert [(directory / "last.pt").stat().st_mtime_ns for directory in directories] == stamps

    answer = rbnn(*[word if word != "1" else "2" for word in words])
    assert answer.code == 2
    assert "contains a run with epochs = 1, not epochs = 2: change it back, or choose another --out" in answer.err


def test_interrupted_and_resumed(rbnn: Rbnn, tmp_path: Path) -> None:
    """Ctrl-C reaches the run, which writes a checkpoint; another test checks that a resumed run computes the same."""
    words = ["reproduce", "ablation", *SMALL, "--epochs", "12", "--jobs", "1", "--out", str(tmp_path), "--rows", "B"]
    run = tmp_path / f"{RBNN}-alpha=none-estimator=ste-rotation=none" / "seed-0"
    process = subprocess.Popen([sys.executable, "-m", "rbnn", *words, "B+T"], stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 120
        while not (run / "last.pt").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run the same command with --resume to continue" in said
    assert f"stopped; continue with: rbnn train {run}" in (run / OUTPUT).read_text()
    assert 1 <= len(read_log(run / "log.jsonl")) < 12
    assert not (tmp_path / f"{RBNN}-alpha=none-rotation=none").exists()  # no further row was started

    answer = rbnn(*words)
    assert answer.code == 2
    assert f"{run} was interrupted: add --resume to continue it" in answer.err
    assert json.loads((tmp_path / "ablation.json").read_text())["rows"][0]["top1"] is None
    with (run / LOCK).open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        answer = rbnn(*words, "--resume")
        assert answer.code == 2
        assert f"another process is training {run}" in answer.err
    answer = rbnn(*words, "--resume", "--json")
    assert answer.code == 0
    log = read_log(run / "log.jsonl")
    assert [entry["epoch"] for entry in log] == list(range(12))
    assert json.loads(answer.out)["rows"][0]["top1"]["values"] == [log[-1]["top1"]]


def test_a_row_that_fails_does_not_stop_the_others(rbnn: Rbnn, tmp_path: Path) -> None:
    out = tmp_path / "out"
    # A directory in place of the log: this run cannot start.
    (out / f"{RBNN}-alpha=none-estimator=ste-rotation=none" / "seed-0" / "log.jsonl").mkdir(parents=True)
    answer = rbnn("reproduce", "ablation", *SMALL, "--epochs", "1", "--rows", "B", "B+T", "--out", out)
    assert answer.code == 2
    assert answer.err.splitlines()[-1].startswith("rbnn: 1 of 2 runs failed; B, seed 0: ")
    rows = {row["row"]: row for row in json.loads((out / "ablation.json").read_text())["rows"]}
    assert rows["B"]["top1"] is None
    assert set(rows["B"]["failed"]) == {"0"}
    assert rows["B+T"]["top1"] is not None
    assert "- B, seed 0, failed: " in (out / "ablation.md").read_text()
    assert "failed" in answer.out


def test_a_run_that_is_killed(rbnn: Rbnn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed as by the out-of-memory killer: its last line is not an error message."""
    start = subprocess.Popen

    def popen(words: list[str], *, stdout: int, pass_fds: list[int], **more: object) -> subprocess.Popen[bytes]:
        script = "import os; print('epoch 1 of 2: all is well', flush=True); os.kill(os.getpid(), 9)"
        return start([sys.executable, "-c", script], stdout=stdout)

    monkeypatch.setattr("subprocess.Popen", popen)
    answer = rbnn("reproduce", "ablation", *SMALL, "--epochs", "2", "--rows", "B", "--out", tmp_path)
    assert answer.code == 2
    assert "B, seed 0: it was killed by SIGKILL, perhaps because memory ran out: try fewer --jobs" in answer.err
    assert "all is well" not in answer.err


def test_all_rows_are_trained_as_a_recipe_says(rbnn: Rbnn, tmp_path: Path) -> None:
    recipe = tmp_path / "how.toml"
    recipe.write_text('model = "vgg-small"\nmethod = "bnn"\nlr = 0.03\nbinary_lr = 7.0\nbatch_size = 64\nwarmup = 0\n')
    words = ["reproduce", "ablation", "--data", "digits", "--limit", "64", "--threads", "1", "--epochs", "1"]
    answer = rbnn(*words, "--rows", "B+T+R+A-once", "--recipe", recipe, "--out", tmp_path / "out")
    assert answer.code == 0
    config = read_recipe(tmp_path / "out" / f"{RBNN}-rotate_until=0.0" / "seed-0" / "config.toml")
    assert (config.model, config.method, config.options["rotate_until"]) == ("resnet20-bireal", "rbnn", 0.0)
    assert (config.lr, config.binary_lr, config.batch_size, config.warmup) == (0.03, 7.0, 64, 0)
    assert "lr 0.03 (7 times that for binary weights)" in (tmp_path / "out" / "ablation.md").read_text(encoding="utf-8")


def test_threads_are_divided(rbnn: Rbnn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads are set through the environment, so a run that is resumed with other --jobs is still the same run."""
    seen: list[str] = []

    class Ended:
        returncode = 0

        def poll(self) -> int:
            return 0

    def popen(words: list[str], *, env: dict[str, str], pass_fds: list[int], **more: object) -> Ended:
        seen.append(env["OMP_NUM_THREADS"])
        directory = Path(words[4])
        assert read_recipe(directory / "config.toml").threads == 0
        assert os.fstat(pass_fds[0]).st_ino == (directory / LOCK).stat().st_ino
        return Ended()

    monkeypatch.setattr("subprocess.Popen", popen)
    words = ["reproduce", "ablation", "--data", "digits", "--epochs", "1", "--out", tmp_path]
    assert rbnn(*words, "--jobs", "2", "--threads", "5").code == 0
    assert seen == ["2"] * len(TABLES["ablation"].rows)
    seen.clear()
    assert rbnn(*words, "--rows", "B", "--jobs", "2", "--threads", "5", "--resume").code == 0
    assert seen == ["5"]  # nothing runs in parallel


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["ablations"], "unknown table 'ablations': did you mean 'ablation'?"),
        (["ablation", "--rows", "B+A"], "unknown row 'B+A' of table 'ablation'"),
        (["ablation", "--options", "rotation=none"], "would turn a row into another row"),
        (["ablation", "--options", "cycle=3"], "unknown option 'cycle' of method 'rbnn': did you mean 'cycles'?"),
        (["ablation", "--seeds", "1", "1"], "--seeds must be one or more different numbers, got 1 1"),
        (["ablation", "--seeds", "-1"], "seed must be 0 or more"),
        (["ablation", "--jobs", "0"], "--jobs and --threads must be at least 1"),
        (["ablation", "--epochs", "-1"], "epochs must be at least 1, got -1"),
        (["ablation", "--device", "gpu"], "device 'gpu' is not available"),
        (["ablation", "--out", "file"], "file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_one_sentence(words: list[str], says: str, rbnn: Rbnn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("in the way")
    answer = rbnn("reproduce", words[0], "--data", "digits", *words[1:])
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("rbnn: ")
    assert says in answer.err
    assert answer.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_table_of_ones_own_with_a_method_of_ones_own(tmp_path: Path) -> None:
    """In separate processes: the method does not affect other tests, and the training process knows it.  The working
    directory contains another file of the same name, which nobody imports."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "mine.py").write_text("raise SystemExit(1)\n")
    (tmp_path / "mine.py").write_text(
        "from rbnn.methods import BNN, register_method\n@register_method('own')\nclass Own(BNN): pass\n"
    )
    rows = [f'[[rows]]\nname = "{name}"\nmodel = "resnet20"\nmethod = "{name}"\ntop1 = 50\n' for name in ("own", "bnn")]
    (tmp_path / "mine.toml").write_text('title = "Mine"\ndata = "digits"\nepochs = 1\n' + "".join(rows))
    words = ["reproduce", "../mine.toml", "--rows", "own", "--limit", "64", "--batch-size", "32", "--out", "out"]

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "rbnn", *words, *more]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        return subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=120, env=environment)

    without = run()
    assert (without.returncode, without.stdout) == (2, "")
    assert without.stderr.startswith("rbnn: unknown method 'own': ")
    done = run("--import", "../mine.py")
    assert done.returncode == 0, done.stderr
    summary = json.loads((here / "out" / "mine.json").read_text(encoding="utf-8"))
    (row,) = summary["rows"]
    assert (row["row"], row["paper"]["top1"], len(row["top1"]["values"])) == ("own", 50.0, 1)
    assert "1 epoch of 64 images of digits, batch 32" in (here / "out" / "mine.md").read_text(encoding="utf-8")
    assert (here / "out" / "own-resnet20" / "seed-0" / "best.pt").exists()
    told = run("--import", "../mine.py", "--epochs", "2", "--out", "longer").stdout
    assert "2 epochs of 64 images of digits (the table: 1), batch 32" in told
