"""Closed or full standard streams: a command does its work regardless."""

import io
import os
import sys
from contextlib import suppress


def open_missing() -> None:
    """Opens the null device for every stream that the caller closed (``>&-``).  Otherwise the next file that is opened
    would get the stream's number and receive everything that is printed."""
    for handle in (0, 1, 2):
        try:
            os.fstat(handle)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            if opened != handle:
                os.dup2(opened, handle)
                os.close(opened)
    for name, handle in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, io.TextIOWrapper(io.FileIO(handle, "w", closefd=False), line_buffering=True))


def say(sentence: str) -> None:
    """Print to stderr.  A full disk behind it neither stops the command nor changes the exit code."""
    with suppress(OSError, ValueError):
        print(sentence, file=sys.stderr)
