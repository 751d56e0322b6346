"""A run that is killed anywhere, any number of times, ends with bit-identical results."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

import killed_run
import pytest
from faults import Fault
from killed_run import INT, KILL, MOMENTS, TERM, code_of, start
from runs import assert_same_run, log_of
from short_runs import EPOCHS, command

from rbnn.training.stopping import stop_on_signal

ENDS = {0, 130, 1, -KILL, -TERM, -INT}
"""Exit codes after a signal.  1 means that the interpreter was interrupted before it ran our code; a bug in rbnn also
gives 1, but says so."""


def disturb(out: Path, said: Path, rng: random.Random) -> tuple[int, str]:
    """Start the run and interrupt it at a random moment; return its exit code and what was done to it."""
    run = [*command(out), "--resume"]
    signals = rng.choice([(KILL,), (KILL,), (TERM,), (INT,), (INT, INT), (TERM, KILL)])
    name = "+".join(sent.name for sent in signals)
    if rng.random() < 0.4:
        process = start(run, said)
        time.sleep(rng.uniform(0, 1.5))
        for sent in signals:
            if process.pid is not None and process.exitcode is None:
                os.kill(process.pid, sent)
        return code_of(process), f"{name} anywhere"
    moment = rng.choice(MOMENTS)
    count = rng.randint(1, 7) if moment == "step" else rng.randint(1, 2)
    return code_of(start(run, said, moment, count, signals)), f"{name} at {moment}"


def kill_until(kills: int, runs: int, undisturbed: Path, folder: Path, seed: int, fault: Fault) -> None:
    """Kill runs this many times in total, over at least this many runs, each resumed until it finishes."""
    rng = random.Random(seed)
    done, number = 0, 0
    while done < kills or number < runs:
        out, said, faults = folder / f"run {number}", folder / f"said {number}", []
        number += 1
        code = -1
        while code != 0:
            if len(faults) < -(-kills // runs) and done < kills:
                try:
                    code, what = disturb(out, said, rng)
                except AssertionError as hang:
                    raise AssertionError(said.read_text()) from hang
                if code != 0:
                    faults.append(what)
                    done += 1
            else:
                code = code_of(start([*command(out), "--resume"], said))
                assert code == 0, said.read_text()
            assert code in ENDS, (code, faults, said.read_text())
        with fault("killed while training, checking, logging, saving", len(faults)):
            assert_same_run(undisturbed, out)
            assert [entry["epoch"] for entry in log_of(out)] == list(range(EPOCHS))
            for complaint in ("Traceback", "a bug"):
                assert complaint not in said.read_text()
            assert not [path for path in out.iterdir() if path.name.startswith(".")], faults


def test_a_few_kills(undisturbed: Path, tmp_path: Path, fault: Fault) -> None:
    kill_until(4, 1, undisturbed, tmp_path, 1, fault)


@pytest.mark.long
def test_a_hundred_kills(undisturbed: Path, tmp_path: Path, fault: Fault) -> None:
    kill_until(100, 10, undisturbed, tmp_path, 2, fault)


@pytest.mark.parametrize("moment", ["half a checkpoint", *(pytest.param(m, marks=pytest.mark.long) for m in MOMENTS)])
def test_a_kill_at_every_moment(moment: str, undisturbed: Path, tmp_path: Path, fault: Fault) -> None:
    out, said = tmp_path / "run", tmp_path / "said"
    assert code_of(start(command(out), said, moment, 2, (KILL,))) == -KILL
    with fault(f"killed at: {moment}"):
        assert code_of(start([*command(out), "--resume"], said)) == 0, said.read_text()
        assert_same_run(undisturbed, out)
        assert not [path for path in out.iterdir() if path.name.startswith(".")]


@pytest.mark.long
def test_the_command_itself_is_killed(undisturbed: Path, tmp_path: Path, fault: Fault) -> None:
    """Each time a new interpreter, which may also be killed while it imports."""
    rng, out, kills = random.Random(3), tmp_path / "run", 0
    run = [sys.executable, "-m", "rbnn", *command(out), "--resume"]
    for attempt in range(8):
        process = subprocess.Popen(
            run, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        if attempt < 7:
            time.sleep(rng.uniform(0.5, 12))
            process.send_signal(rng.choice([KILL, TERM, INT]))
        kills += process.wait(120) != 0
    with fault("killed while training, checking, logging, saving", kills):
        assert process.returncode == 0
        assert_same_run(undisturbed, out)


def test_a_second_signal_at_every_line_of_the_first_ones_handler(fault: Fault) -> None:
    """A second Ctrl-C must not deadlock in the signal handler."""

    def hang(number: int, frame: FrameType | None) -> None:
        raise AssertionError("the handler hangs")

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(60)
    try:
        for line in range(1, 31):
            with fault("second signal while the first is handled"):
                assert stopped_by_two(line)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def stopped_by_two(line: int) -> bool:
    """Whether a run stops after a SIGINT and a second one this many executed lines later."""
    left = line
    before = sys.gettrace()  # set by a coverage run

    def trace(*happened: object) -> object:
        nonlocal left
        left -= 1
        if left == 0:
            signal.raise_signal(signal.SIGINT)
        return trace

    try:
        with stop_on_signal() as stop:
            sys.settrace(trace)
            signal.raise_signal(signal.SIGINT)
            sys.settrace(before)
            return stop.asked
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)


def test_the_harness_can_fail(undisturbed: Path, tmp_path: Path) -> None:
    """With another seed the result differs, so the comparison would detect a lost step."""
    assert code_of(killed_run.start(command(tmp_path / "run", seed=1), tmp_path / "said")) == 0
    with pytest.raises(AssertionError):
        assert_same_run(undisturbed, tmp_path / "run")
