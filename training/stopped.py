"""Kills processes that are stopped, as by SIGSTOP: they neither work nor end, and callers wait."""

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

# A process that is stopped at two looks in a row is killed.
_LOOK_S: Final = 0.75
# Letters of the system for a process that a signal or a debugger has stopped.
_STOPPED: Final = ("T", "t")

_log = logging.getLogger(__name__)


class StoppedProcessWatch:
    """A thread that kills processes which are stopped, so that their owners replace them.

    The system says that a process is stopped: one that works slowly, or waits for a disk, is left alone.

    Args:
        running: Returns the processes to watch by their process id, each with what kills it.
    """

    def __init__(self, running: Callable[[], Mapping[int, Callable[[], object]]]) -> None:
        self._running = running
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="stopped-processes", daemon=True).start()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def _watch(self) -> None:
        suspects: set[int] = set()
        while not self._closed.wait(_LOOK_S):
            stopped = {pid: kill for pid, kill in self._running().items() if is_stopped(pid)}
            for pid in suspects & stopped.keys():
                _log.warning("process %d is stopped and is killed", pid)
                stopped[pid]()
            suspects = set(stopped)


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal or a debugger; False: it runs, sleeps or has ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] in _STOPPED
