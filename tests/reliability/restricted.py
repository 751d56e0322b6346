"""Run commands in a process with limited memory and, even as root, only the rights of a file's owner."""

import contextlib
import ctypes
import io
import json
import os
import resource
from pathlib import Path

from killed_run import code_of, server

MEMORY = 3 << 30
"""Bytes beyond what the process has mapped at its start."""


def answers(cases: list[list[str]], folder: Path) -> list[tuple[int, str, str]]:
    """Run the commands in order in one process, in ``folder``; return exit code, stdout and stderr of each."""
    result = folder / "answers.json"
    process = server().Process(target=_run, args=(cases, folder, result))
    process.start()
    assert code_of(process, 300) == 0
    found = json.loads(result.read_text())
    result.unlink()
    return [(code, out, err) for code, out, err in found]


def _run(cases: list[list[str]], folder: Path, result: Path) -> None:
    os.chdir(folder)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, mapped + MEMORY))
    _give_up_rights()
    from rbnn.cli import main

    found = []
    for words in cases:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            code = main(words)
        found.append((code, out.getvalue(), err.getvalue()))
    result.write_text(json.dumps(found))


def _give_up_rights() -> None:
    """Root without capabilities may not read what its owner may not read (Linux, capset of version 3)."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    nothing = (ctypes.c_uint32 * 6)()
    if ctypes.CDLL(None, use_errno=True).capset(header, nothing) != 0:
        raise OSError(ctypes.get_errno(), "capset")
