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


def kill_stopped(running: Callable[[], Mapping[int, Callable[[], object]]]) -> threading.Event:
    """Start a thread that kills stopped processes, so that their owners replace them; the event ends it.

    The system says that a process is stopped: one that works slowly, or waits for a disk, is left alone.

    Args:
        running: Returns the processes to watch by their process id, each with what kills it.
    """
    ended = threading.Event()

    def watch() -> None:
        suspects: set[int] = set()
        while not ended.wait(_LOOK_S):
            stopped = {pid: kill for pid, kill in running().items() if _is_stopped(pid)}
            for pid in suspects & stopped.keys():
                _log.warning("process %d is stopped and is killed", pid)
                stopped[pid]()
            suspects = set(stopped)

    threading.Thread(target=watch, name="stopped-processes", daemon=True).start()
    return ended


def _is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal or a debugger; False: it runs, sleeps or has ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] in _STOPPED
