"""Unfinished files and folders of killed processes, and the locks that tell whether one still writes."""

import fcntl
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

# Age from which an unfinished file is stale: a running process has written to it since.
STALE_SECONDS: Final = 24 * 3600.0
# Age for a removal on request: no process pauses so long between two writes to a file.
UNTOUCHED_SECONDS: Final = 3600.0


def unfinished(folder: Path) -> Iterator[Path]:
    """Walk over unfinished files and folders below a folder, of killed and of running processes."""
    for at, folders, files in os.walk(folder):
        finished = [name for name in folders if not _is_unfinished(name)]
        for name in (*files, *(set(folders) - set(finished))):
            if _is_unfinished(name):
                yield Path(at, name)
        folders[:] = finished


def remove_stale(paths: Iterable[Path], untouched_s: float = STALE_SECONDS) -> int:
    """Remove the files and folders that were not written to for `untouched_s` seconds.

    A folder whose owner holds its lock stays.

    Returns:
        Number of removed files and folders.
    """
    before = time.time() - untouched_s
    removed = 0
    for path in paths:
        # Another process may remove it at the same time; what cannot be removed does no harm.
        with suppress(OSError):
            if _touched(path) < before:
                if path.is_dir():
                    removed += _remove_folder(path)
                else:
                    path.unlink()
                    removed += 1
    return removed


def remove_abandoned(paths: Iterable[Path]) -> None:
    """Remove unfinished files of any age that no process is writing."""
    for path in paths:
        # Files that cannot be removed are listed by the next call of `unfinished`.
        with suppress(OSError), path.open("rb") as file:
            if try_lock(file):
                path.unlink()


def _is_unfinished(name: str) -> bool:
    return name.startswith(".") and name.endswith(".part")


def _touched(path: Path) -> float:
    """Return when a file, or anything in a folder, was last written."""
    inside = path.rglob("*") if path.is_dir() else ()
    latest: float = max(one.lstat().st_mtime for one in (path, *inside))
    return latest


def _remove_folder(path: Path) -> bool:
    opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if not try_lock(opened):
            return False
        shutil.rmtree(path)
    finally:
        os.close(opened)
    return True


def try_lock(opened: int | IO[Any], *, shared: bool = False) -> bool:
    """Lock an open file or folder without waiting; False while another process keeps it from that.

    Args:
        opened: Open file or its descriptor; closing all copies of the descriptor releases the lock.
        shared: Whether others may also hold it, if they share it.

    Raises:
        OSError: The file system does not support the lock.
    """
    try:
        fcntl.flock(opened, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
