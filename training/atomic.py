"""Files and folders that appear whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the name `path`, replacing what is there, only when the block ends well.

    The bytes are written beside `path`, flushed to the disk and renamed; after an error nothing is left.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    part = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.chmod(0o666 & ~_umask())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync(path.parent)


@contextmanager
def atomic_folder(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Give a new folder that takes the name `path` only when the block ends well.

    Everything in it is flushed to the disk before the rename; after an error nothing is left.

    Args:
        path: Name of the finished folder.
        replace: Put it in the place of a folder that is there. Both are whole at any moment; a power cut
            between the two renames leaves them beside `path`.

    Raises:
        FileExistsError: `path` exists already, is not an empty folder, and is not to be replaced.
    """
    occupied = path.exists() and (not path.is_dir() or any(path.iterdir()))
    if occupied and not replace:
        raise FileExistsError(f"{path} exists already.")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _folder_beside(path, ".part")
    try:
        yield part
        part.chmod(0o777 & ~_umask())
        for inside in (*part.rglob("*"), part):
            sync(inside)
        if occupied:
            old = _folder_beside(path, ".old")
            path.replace(old)
            part.replace(path)
            shutil.rmtree(old, ignore_errors=True)
        else:
            part.replace(path)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder such as a rename just done, so that they survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _folder_beside(path: Path, suffix: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=suffix, dir=path.parent))


def _umask() -> int:
    # The mask can only be read by setting it; temporary files are made private, finished ones are not.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
