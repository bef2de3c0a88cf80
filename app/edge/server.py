"""A server that always ends in time, and the resource limits that it needs to start."""

import asyncio
import os
import resource
import socket
import threading
import time
from contextlib import suppress
from types import FrameType
from typing import Final

import structlog
import uvicorn

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
        limit_now = resource.getrlimit(kind)[0]
        if limit_now != resource.RLIM_INFINITY and limit_now < least:
            raise LimitsError(
                f"This process may use {limit_now / _GIB:.1f} GiB of memory addresses and needs at least "
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


# Together under the ten seconds that orchestrators give before they kill.
_REQUESTS_S: Final = 5.0
_ANSWERS_S: Final = 0.5
_CLOSING_S: Final = 3.0
_ALL_S: Final = 9.3
_TELLING_S: Final = 0.3

_LOOK_S: Final = 0.05
# libuv accepts one connection for each listener and turn of the loop: behind a crowd, a caller would wait as
# many turns as there are others before it.
_LISTENERS: Final = 16


class GracefulServer(uvicorn.Server):
    """uvicorn's server, with an end that no stream, upload or thread delays.

    The first signal is an order to end. Streams see `stopping` and end by themselves; other requests have
    some seconds, and are cancelled after; then the application closes. A thread of its own ends the process
    where that takes too long, since a thread that is stuck in a library cannot be ended otherwise.
    """

    def __init__(self, config: uvicorn.Config, stopping: asyncio.Event) -> None:
        super().__init__(config)
        self._stopping = stopping
        # A lock, since a handler of signals may set no event: a second signal would wait for the first.
        self._no_order = threading.Lock()
        self._no_order.acquire()

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal orders the end."""
        threading.Thread(target=self._end_at_last, name="last-resort", daemon=True).start()
        super().run(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take the order of a signal to end."""
        with suppress(RuntimeError):
            self._no_order.release()
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, and accept connections on several listeners."""
        listeners = [listener.dup() for listener in sockets or [] for _ in range(_LISTENERS)]
        await super().startup(listeners or None)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close what is open, in the order that loses least."""
        _log.info("stopping", requests=len(self.server_state.tasks))
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        self._stopping.set()
        for connection in list(self.server_state.connections):
            # A connection that failed in the middle of an answer keeps no other from its end.
            with suppress(Exception):
                connection.shutdown()
        if not await self._quiet_within(_REQUESTS_S):
            await self._give_up()
        if not self.force_exit:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.lifespan.shutdown(), _CLOSING_S)

    async def _quiet_within(self, seconds: float) -> bool:
        """Whether all requests and connections end by themselves."""
        end = time.monotonic() + seconds
        while self.server_state.tasks or self.server_state.connections:
            if self.force_exit or time.monotonic() > end:
                return False
            await asyncio.sleep(_LOOK_S)
        return True

    async def _give_up(self) -> None:
        """Cancel the remaining requests, which answers them, and close their connections."""
        state = self.server_state
        _log.warning(
            "requests were cancelled at the stop",
            requests=len(state.tasks),
            connections=len(state.connections),
        )
        for task in list(state.tasks):
            task.cancel()
        await self._quiet_within(_ANSWERS_S)
        for connection in list(state.connections):
            connection.transport.abort()
        await self._quiet_within(_ANSWERS_S)

    def _end_at_last(self) -> None:
        self._no_order.acquire()
        time.sleep(_ALL_S)
        # Writing to a log that nobody reads may block.
        warning = threading.Thread(
            target=lambda: _log.warning("the process is ended: a thread did not come back", seconds=_ALL_S),
            daemon=True,
        )
        warning.start()
        warning.join(_TELLING_S)
        os._exit(0)
