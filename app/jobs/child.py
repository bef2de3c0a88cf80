"""The process of a job: a command of `recoquest` that ends with the worker that has started it."""

import ctypes
import os
import signal
import sys
from functools import partial

from app.cli.endings import ended
from app.cli.main import build
from training.host import keep_order_of_sums

_PR_SET_PDEATHSIG = 1
# Searches on the same machine come first.
_NICENESS = 10


def main(parent: int, arguments: list[str]) -> None:
    """Run a command and leave the process with its exit code; be killed when the parent ends before."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    os.nice(_NICENESS)
    keep_order_of_sums()
    ended(partial(build(), arguments))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
