"""A folder to work in that has one owner at a time and is empty for each, whoever was killed in it."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from index.errors import BackupError
from index.files.file_lock import try_lock

# Between making a folder and locking it, its last owner may remove it.
_TRIES: Final = 100


@contextmanager
def working_folder(path: Path) -> Iterator[Path]:
    """Give an empty folder that only this user can read; it is removed at the end.

    Raises:
        BackupError: Another process works in the folder.
    """
    lock = _locked(path)
    try:
        for left in path.iterdir():
            left.unlink() if left.is_symlink() or left.is_file() else shutil.rmtree(left)
        yield path
    finally:
        # Still locked: whoever comes now makes a folder of its own.
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _locked(path: Path) -> int:
    """Make and lock a folder; the lock goes with the process, however that ends."""
    for _ in range(_TRIES):
        path.mkdir(mode=0o700, exist_ok=True)
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        locked = try_lock(lock)
        try:
            if locked and os.path.samestat(os.fstat(lock), path.stat()):
                return lock
        except FileNotFoundError:
            pass
        os.close(lock)
        if not locked:
            break
    raise BackupError(f"Another process is at work in {path}: wait until it has ended.")
