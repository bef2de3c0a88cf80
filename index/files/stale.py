"""Unfinished files and folders of killed processes, which would have been renamed when complete."""

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from index.files.file_lock import try_lock

# Whoever is still at work has touched its files since.
ABANDONED_SECONDS: Final = 24 * 3600.0
# The same where somebody asks for it: no file takes so long between two of its blocks.
UNTOUCHED_SECONDS: Final = 3600.0


def unfinished(folder: Path) -> Iterator[Path]:
    """Walk over what was being written anywhere below a folder, when its process was killed or still."""
    for at, folders, files in os.walk(folder):
        whole = [name for name in folders if not _is_unfinished(name)]
        for name in (*files, *(set(folders) - set(whole))):
            if _is_unfinished(name):
                yield Path(at, name)
        folders[:] = whole


def remove_abandoned(paths: Iterable[Path], untouched_s: float = ABANDONED_SECONDS) -> int:
    """Remove those of these files and folders in which nobody has written for so long.

    A folder whose owner holds its lock stays.

    Returns:
        How many were removed.
    """
    before = time.time() - untouched_s
    removed = 0
    for path in paths:
        # Another process may remove it at the same time; what cannot be removed does no harm.
        with suppress(OSError):
            if _touched(path) < before:
                removed += _remove_folder(path) if path.is_dir() else _remove_file(path)
    return removed


def _is_unfinished(name: str) -> bool:
    return name.startswith(".") and name.endswith(".part")


def _touched(path: Path) -> float:
    """Return when a file, or anything in a folder, was last written."""
    inside = path.rglob("*") if path.is_dir() else ()
    latest: float = max(one.lstat().st_mtime for one in (path, *inside))
    return latest


def _remove_file(path: Path) -> bool:
    path.unlink()
    return True


def _remove_folder(path: Path) -> bool:
    opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if not try_lock(opened):
            return False
        shutil.rmtree(path)
    finally:
        os.close(opened)
    return True
