"""Files and folders that appear whole or not at all."""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_file(path: Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """Open a file that takes the name `path`, replacing what is there, only when the block ends well.

    The bytes are written to a temporary name, flushed to the disk and renamed; after an error nothing is
    left. Where the file system has locks, one on the unfinished file says that it is being written. A
    `private` file can only be read by its user; others are as the umask has it.
    """
    part = _beside(path, "part")
    try:
        with open(part, "xb", opener=partial(os.open, mode=0o600 if private else 0o666)) as file:
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text and a line end into a file, as `atomic_file` writes."""
    with atomic_file(path) as file:
        file.write(f"{text}\n".encode())


@contextmanager
def atomic_folder(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Give a new folder that takes the name `path` only when the block ends well.

    Everything in it is flushed to the disk before the rename; after an error nothing is left.

    With `replace` it replaces a folder that is there. Both are whole at any moment; a power cut
    between the two renames leaves both next to `path`.

    Raises:
        FileExistsError: `path` exists already, is not an empty folder, and is not to be replaced.
    """
    occupied = path.exists() and (not path.is_dir() or any(path.iterdir()))
    if occupied and not replace:
        raise FileExistsError(f"{path} exists already.")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _beside(path, "part")
    part.mkdir()
    try:
        yield part
        for inside in (*part.rglob("*"), part):
            sync(inside)
        if occupied:
            old = _beside(path, "old")
            path.replace(old)
            try:
                part.replace(path)
            except BaseException:
                old.replace(path)
                raise
            shutil.rmtree(old, ignore_errors=True)
        else:
            part.replace(path)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    sync(path.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder, if there is one, so that nobody sees half of it.

    It is put aside in one step first; what cannot be removed then, or a killed process has not removed, stays
    next to it under a name that begins with a dot and ends in `.old`.

    Raises:
        OSError: The folder cannot be put aside.
    """
    aside = _beside(path, "old")
    try:
        path.replace(aside)
    except FileNotFoundError:
        return
    sync(path.parent)
    shutil.rmtree(aside, ignore_errors=True)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder such as a rename just done, so that they survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _beside(path: Path, suffix: str) -> Path:
    # Not tempfile: what it makes is private, and the umask that a finished file should have can only be read
    # by setting it, which another thread that does the same at that moment makes permanent.
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.{suffix}")
