"""A disk without space."""

import os
from pathlib import Path


def fill(disk: Path, free: int = 0) -> Path:
    """Write a file that takes all the space that there is but so many bytes."""
    path = disk / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    os.truncate(path, path.stat().st_size - free)
    return path
