"""Memory that this process may still take."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from training.common.errors import DataError
from training.common.host import processes_here

_SHARE_OF_CACHES: Final = 0.7
_KIB: Final = 2**10
_GIB: Final = 2**30


class Controller(NamedTuple):
    """Where a version of control groups has the bytes that a group may take, and those that it has taken.

    `limit` and `used` are files of a group; `cached` is the entry of `memory.stat` for what its files hold
    until something else needs it.
    """

    mount: Path
    limit: str
    used: str
    cached: str


_SECOND: Final = Controller(Path("/sys/fs/cgroup"), "memory.max", "memory.current", "inactive_file")
_FIRST: Final = Controller(
    Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
)


def free_memory() -> int:
    """Return the bytes that can still be taken without swapping, as far as the system says.

    Limits of containers and of job schedulers count, whichever group of the process has them.
    """
    free = _of_machine()
    for controller, path in _groups(Path("/proc/self/cgroup")):
        inner = controller.mount / path.lstrip("/")
        for folder in (inner, *inner.parents):
            if not folder.is_relative_to(controller.mount):
                break
            try:
                limit = (folder / controller.limit).read_text().strip()
                used = int((folder / controller.used).read_text())
                cached = _value(folder / "memory.stat", controller.cached)
            except (OSError, ValueError):
                # Not a group of this controller, or one that is not shown inside a container.
                continue
            if limit != "max":
                free = min(free, max(0, int(limit) - used + cached))
    return free


def free_memory_each() -> int:
    """Return this process's share where torchrun has started several on this machine, which take as much."""
    return free_memory() // processes_here()


def check_cache(name: str, needed: int) -> None:
    """Raise a DataError where a process cannot keep `needed` bytes of decoded data, called `name`."""
    if not fits_cache(needed):
        given = free_memory_each() * _SHARE_OF_CACHES
        raise DataError(
            f"{name} may need {needed / _GIB:.1f} GiB of memory, more than the {given / _GIB:.1f} that this "
            "machine can give a process: set data.cache_images to false."
        )


def fits_cache(needed: int) -> bool:
    """Whether every process can keep so many bytes of decoded data, with room for the training itself."""
    return needed <= free_memory_each() * _SHARE_OF_CACHES


def _of_machine() -> int:
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        # Other systems than Linux tell only how much there is.
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return _value(meminfo, "MemAvailable:") * _KIB


def _groups(listing: Path) -> Iterator[tuple[Controller, str]]:
    """Give the groups that hold a process, each a path below the mount of its controller."""
    for line in listing.read_text().splitlines() if listing.exists() else ():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield _SECOND, path
        elif "memory" in controllers.split(","):
            yield _FIRST, path


def _value(path: Path, name: str) -> int:
    """Return the number in the line of a name, or 0 when there is none."""
    lines = (line.split() for line in path.read_text().splitlines())
    return next((int(words[1]) for words in lines if words[:1] == [name]), 0)
