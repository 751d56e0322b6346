"""A session in a forked process: the child has the parent's memory, but none of its threads."""

import os
import subprocess
import sys

import pytest
from faults import Fault

FORKS = 40
SESSION = """
import ctypes, os, signal, sys, threading
import numpy as np
from packed_networks import small_network
from rbnn.packed.session import Session

session = Session(small_network(), threads=2)
images = np.random.default_rng(0).normal(size=(6, 3, 8, 8)).astype(np.float32)
wanted = session(images)

def forked(child):
    number = os.fork()
    if number:
        return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    signal.alarm(20)
    child()
    sys.exit(0)

def answers():
    assert np.array_equal(session(images), wanted)
    assert np.array_equal(Session(small_network(), threads=3)(images), wanted)

def forks_itself():
    answers()
    assert forked(answers) == 0
"""
IDLE = """
assert forked(lambda: None) == 0
assert forked(answers) == 0
assert forked(forks_itself) == 0
answers()
"""
IN_USE = f"""
ended = False
def use():
    while not ended:
        session(images)
users = [threading.Thread(target=use) for _ in range(3)]
for user in users:
    user.start()
codes = [forked(lambda: (answers(), os._exit(0))) for _ in range({FORKS})]
ended = True
for user in users:
    user.join()
answers()
assert codes == [0] * {FORKS}, codes
"""
TORCH = """
import torch
torch.set_num_threads(2)
"""
WITH_ITS_TEAM = """
assert "torch" in sys.modules and ctypes.CDLL(None).GOMP_parallel
"""


def run(script: str) -> None:
    words = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script]
    here = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(words, env=here, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_child_of_an_idle_session(fault: Fault) -> None:
    with fault("fork of a process with a session", 4):
        run(SESSION + "assert 'torch' not in sys.modules\n" + IDLE)


def test_children_of_a_session_in_use(fault: Fault) -> None:
    with fault("fork of a process with a session", FORKS):
        run(SESSION + IN_USE)


def test_a_child_of_a_session_that_works_on_the_team_of_torch(fault: Fault) -> None:
    """An OpenMP runtime hangs in a forked child if the parent has used it."""
    pytest.importorskip("torch")
    with fault("fork of a process with a session", 4):
        run(TORCH + SESSION + WITH_ITS_TEAM + IDLE)
