"""File descriptors: as many as the connections of the service need."""

import resource
from typing import Final

import structlog

# The catalogue, images that are read, views, child processes, and connections that are leaving.
_BESIDE: Final = 768

_log = structlog.stdlib.get_logger(__name__)


def allow_descriptors(connections: int) -> None:
    """Raise the process's limit of open files to the need of these connections, or warn of it."""
    needed = connections + _BESIDE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    if raised < needed:
        _log.warning(
            "too few files may be open for so many connections: raise the limit (ulimit -n) or set "
            "RECOQUEST_MAX_CONNECTIONS lower",
            allowed=raised,
            needed=needed,
            connections=connections,
        )
