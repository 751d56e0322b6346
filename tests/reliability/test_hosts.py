"""Two hosts, as network namespaces with a virtual cable.  The run equals that of two processes on one host."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import Fault
from runs import assert_same_run, done, torchrun
from short_runs import command

pytestmark = pytest.mark.long

HOSTS = {f"rbnn-host{number}-{os.getpid()}": f"10.213.77.{number + 1}" for number in (0, 1)}
NEVER = ["SIGTERM", "1000000"]
"""The arguments of signalled_run.py for an uninterrupted run."""


def ip(*words: str) -> None:
    ended = subprocess.run(["ip", *words], capture_output=True, text=True)
    if ended.returncode:
        pytest.skip(f"needs the right to make network namespaces: ip {' '.join(words)}: {ended.stderr.strip()}")


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    try:
        for name in HOSTS:
            ip("netns", "add", name)
        first, second = HOSTS
        ip("link", "add", "cable", "netns", first, "type", "veth", "peer", "name", "cable", "netns", second)
        for name, address in HOSTS.items():
            ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
            for device in ("lo", "cable"):
                ip("-n", name, "link", "set", device, "up")
        yield list(HOSTS)
    except FileNotFoundError:
        pytest.skip("needs the command ip: apt install iproute2")
    finally:
        for name in HOSTS:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def on(host: str, rank: int, *words: str) -> subprocess.Popen[str]:
    """Start one of two processes on a host; it finds the other through the first host's address."""
    address = next(iter(HOSTS.values()))
    launcher = ("--nnodes=2", f"--node-rank={rank}", f"--master-addr={address}", "--master-port=29511")
    words_here = torchrun(*words, launcher=launcher)
    words_here[words_here.index("--nproc-per-node=2")] = "--nproc-per-node=1"
    return subprocess.Popen(
        ["ip", "netns", "exec", host, *words_here],
        env=os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "cable"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_hosts(hosts: list[str], tmp_path: Path, fault: Fault) -> None:
    ended = done(torchrun("signalled_run.py", *NEVER, *command(tmp_path / "one host")))
    assert ended.returncode == 0, ended.stderr
    with fault("two hosts"):
        both = [on(host, i, "signalled_run.py", *NEVER, *command(tmp_path / "two")) for i, host in enumerate(hosts)]
        said = [process.communicate(timeout=300) for process in both]
        assert [process.returncode for process in both] == [0, 0], said
        assert_same_run(tmp_path / "one host", tmp_path / "two")
        assert said[0][0].count("test accuracy") == 1
        assert said[1][0] == ""


def test_a_host_that_dies(hosts: list[str], tmp_path: Path, fault: Fault) -> None:
    """If one host vanishes, the other ends with a checkpoint instead of waiting forever."""
    out = tmp_path / "run"
    with fault("two hosts, one dies"):
        both = [on(host, i, "signalled_run.py", "SIGKILL", "3", *command(out)) for i, host in enumerate(hosts)]
        said = [process.communicate(timeout=300) for process in both]
        assert all(process.returncode != 0 for process in both)
        assert "lost contact with another of the 2 processes" in said[0][1] + said[1][1]
        both = [on(host, i, "signalled_run.py", *NEVER, *command(out), "--resume") for i, host in enumerate(hosts)]
        said = [process.communicate(timeout=300) for process in both]
        assert [process.returncode for process in both] == [0, 0], said
