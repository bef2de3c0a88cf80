"""Limits of a process, open files and memory, checked before a service or a worker starts."""

import resource
from typing import Final

import structlog

from training.common.errors import RecoquestError
from training.common.memory import free_memory

_GIB: Final = 2**30
# The catalogue, images that are read, views, child processes, and connections that are leaving.
_BESIDE: Final = 768
_LEAST_BESIDE: Final = 192
_LEAST_FILES: Final = 256
# With the smallest encoder the service and its processes hold .7 GiB; its threads reserve 2 GiB at first.
_LEAST_FREE: Final = 0.75 * _GIB
_LEAST_ADDRESSES: Final = 4 * _GIB
_LEAST_DATA: Final = 2 * _GIB

_log = structlog.stdlib.get_logger(__name__)


class LimitsError(RecoquestError):
    """A limit of this process is too low for what is to be started."""


def require_limits() -> None:
    """Refuse to start where files or memory would soon run out.

    Raises:
        LimitsError: A limit of the process, or the free memory of the machine or container, is too low.
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if files != resource.RLIM_INFINITY and files < _LEAST_FILES:
        raise LimitsError(
            f"This process may open {files} files and needs at least {_LEAST_FILES}: raise the limit "
            "(`ulimit -n 4096`, or LimitNOFILE= of a systemd unit) and start it again."
        )
    for kind, option, least in (
        (resource.RLIMIT_AS, "v", _LEAST_ADDRESSES),
        (resource.RLIMIT_DATA, "d", _LEAST_DATA),
    ):
        given = resource.getrlimit(kind)[0]
        if given != resource.RLIM_INFINITY and given < least:
            raise LimitsError(
                f"This process may use {given / _GIB:.1f} GiB of memory addresses and needs at least "
                f"{least // _GIB} GiB: raise the limit (`ulimit -{option} unlimited`) and start it again."
            )
    free = free_memory()
    if free < _LEAST_FREE:
        raise LimitsError(
            f"{free / _GIB:.2f} GiB of memory are free, and {_LEAST_FREE / _GIB:g} GiB are needed at least: "
            "end other programs, or give the machine or the container more memory, and start it again."
        )


def allow_descriptors(connections: int) -> int:
    """Raise the limit of open files to the need of these connections; return how many of them it allows."""
    needed = connections + _BESIDE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return connections
    raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    if raised == needed:
        return connections
    allowed = min(connections, raised - _LEAST_BESIDE)
    _log.warning(
        "too few files may be open for so many connections: raise the limit (ulimit -n) or set "
        "RECOQUEST_MAX_CONNECTIONS lower",
        allowed=raised,
        needed=needed,
        connections=allowed,
    )
    return allowed
