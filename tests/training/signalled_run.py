"""`python signalled_run.py SIGNAL STEP rbnn-words…`: run a command that receives a signal after STEP steps.

Under torchrun, one of the processes receives it.
"""

import os
import signal
import sys
from typing import Any

from rbnn.cli import main, train


def signal_after(steps: int, number: signal.Signals) -> None:
    left = steps
    shown = train.Watch.step

    def step(self: train.Watch, *args: Any) -> None:
        nonlocal left
        shown(self, *args)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), number)

    train.Watch.step = step  # type: ignore[method-assign]


if os.environ.get("RANK", "1") == "1":
    signal_after(int(sys.argv[2]), signal.Signals[sys.argv[1]])
sys.exit(main(sys.argv[3:]))
