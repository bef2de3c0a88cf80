"""Memory available to this process."""

from pathlib import Path
from typing import Final

_KIB: Final = 1024
_GROUP: Final = Path("/sys/fs/cgroup")


def free_memory() -> int:
    """Return the bytes that can still be taken without swapping, as far as the system says."""
    return min(_of_machine(), _of_group())


def _of_machine() -> int:
    return _value(Path("/proc/meminfo"), "MemAvailable:") * _KIB


def _of_group() -> int:
    """Return what a container may still take."""
    try:
        limit = (_GROUP / "memory.max").read_text().strip()
        used = int((_GROUP / "memory.current").read_text()) - _of_files()
    except (OSError, ValueError):
        return _of_machine()
    return _of_machine() if limit == "max" else max(0, int(limit) - used)


def _of_files() -> int:
    """Return what a container's files hold of its memory until something else needs it."""
    return _value(_GROUP / "memory.stat", "inactive_file")


def _value(path: Path, name: str) -> int:
    """Return the number in the line of a name, or 0 when there is none."""
    lines = (line.split() for line in path.read_text().splitlines())
    return next((int(words[1]) for words in lines if words[:1] == [name]), 0)
