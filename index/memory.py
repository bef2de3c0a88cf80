"""How much memory is left to this process."""

from pathlib import Path
from typing import Final

_KIB: Final = 1024
_GROUP: Final = Path("/sys/fs/cgroup")


def free_memory() -> int:
    """Return the bytes that can still be taken without swapping, as far as the system says."""
    return min(_of_machine(), _of_group())


def _of_machine() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * _KIB
    return 0


def _of_group() -> int:
    """Return what a container may still take."""
    try:
        limit = (_GROUP / "memory.max").read_text().strip()
        used = int((_GROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return _of_machine()
    return _of_machine() if limit == "max" else max(0, int(limit) - used)
