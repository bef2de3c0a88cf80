"""A server that ends in time, whatever its requests and threads do."""

import asyncio
import os
import socket
import threading
import time
from contextlib import suppress
from types import FrameType
from typing import Final

import structlog
import uvicorn

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

_log = structlog.stdlib.get_logger(__name__)


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
        """Start the application, and accept connections in several places at once."""
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
        """Cancel the requests that are left, which answers them, and close their connections."""
        state = self.server_state
        _log.warning(
            "requests were given up at the stop",
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
        # Writing to a log that nobody reads may be the call that blocks.
        told = threading.Thread(target=_tell_of_the_end, daemon=True)
        told.start()
        told.join(_TELLING_S)
        os._exit(0)


def _tell_of_the_end() -> None:
    _log.warning("the process is ended: a thread did not come back", seconds=_ALL_S)
