"""A process that has imported what encoders need, and forks their processes.

The import of PyTorch takes seconds on a busy machine, and more than a hundred megabytes that forked processes
share; it comes with the first encoder that needs it.
"""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Final

from app.encoding.errors import EncoderLostError

_START_S: Final = 120.0
# Orders to the fork server.
WITH_TORCH: Final = b"t"
WITHOUT_TORCH: Final = b"o"
_NO_PROCESS: Final = "No process of the encoder can be started."


class ForkedProcess:
    """A process that the fork server has made.

    Args:
        pid: Process id.
        handle: Its pidfd, which a later process with the same id does not share.
        connection: Socket to its `serve`.
    """

    def __init__(self, pid: int, handle: int, connection: Connection) -> None:
        self.pid = pid
        self.connection = connection
        self._handle = handle
        self._guard = threading.Lock()
        self._ended = False

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        with self._guard:
            return not self._ended and not self._has_ended(0)

    def kill(self) -> None:
        """Kill it."""
        with self._guard, suppress(ProcessLookupError):
            if not self._ended:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def end(self) -> None:
        """Kill it, wait for its end, and let go of it."""
        self.kill()
        with self._guard:
            if self._ended:
                return
            self._has_ended(None)
            self._ended = True
            os.close(self._handle)
        with suppress(OSError):
            self.connection.close()

    def _has_ended(self, wait_ms: int | None) -> bool:
        watched = select.poll()
        watched.register(self._handle, select.POLLIN)
        return bool(watched.poll(wait_ms))


class ForkServer:
    """Starts the fork server, and again when it was lost; threads may share it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        # The system kills a process when the thread that has started it ends: other threads come and go.
        self._starter = ThreadPoolExecutor(1, "fork-server")
        self._process: subprocess.Popen[bytes] | None = None
        self._orders: socket.socket | None = None
        self._closed = False
        # Tried again when a process is needed.
        with suppress(OSError):
            self._start()

    @property
    def pid(self) -> int | None:
        """Process id."""
        return None if self._process is None else self._process.pid

    def fork(self, *, with_torch: bool) -> ForkedProcess:
        """Make a process that waits for a bundle.

        Args:
            with_torch: Import torch before, unless it is there.

        Raises:
            EncoderLostError: The system has no room for a process, or the server is closed.
        """
        with self._guard:
            try:
                return self._forked(with_torch)
            except OSError:
                self._end()
            try:
                self._start()
                return self._forked(with_torch)
            except OSError as error:
                raise EncoderLostError(_NO_PROCESS) from error

    def kill(self) -> None:
        """Kill the server, and with it every process that it has forked; the next fork starts another."""
        if (process := self._process) is not None:
            # A thread that waits for its answer gets none, and lets go of the guard.
            process.kill()

    def close(self) -> None:
        """End the server, and with it every process that it has forked."""
        self._closed = True
        self.kill()
        with self._guard:
            self._end()
        self._starter.shutdown(wait=False)

    def _start(self) -> None:
        if self._closed:
            raise EncoderLostError("The encoder is closed.")
        own, theirs = socket.socketpair()
        own.settimeout(_START_S)
        try:
            with theirs:
                self._process = self._starter.submit(_started, theirs.fileno()).result()
        except OSError:
            own.close()
            raise
        except RuntimeError as error:
            # The server was closed meanwhile.
            own.close()
            raise EncoderLostError(_NO_PROCESS) from error
        self._orders = own

    def _forked(self, with_torch: bool) -> ForkedProcess:
        if self._orders is None:
            raise OSError("no fork server runs")
        own, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(
                    self._orders, [WITH_TORCH if with_torch else WITHOUT_TORCH], [theirs.fileno()]
                )
            answer, handles, _, _ = socket.recv_fds(self._orders, 32, 1)
            if not answer:
                raise OSError("the fork server has ended")
            if not handles:
                # The others that it has forked go on.
                raise EncoderLostError(_NO_PROCESS)
        except (OSError, EncoderLostError):
            own.close()
            raise
        return ForkedProcess(int(answer), handles[0], Connection(own.detach()))

    def _end(self) -> None:
        if self._orders is not None:
            self._orders.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._orders = self._process = None


def _started(descriptor: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "app.encoding.processes.fork_template", str(os.getpid()), str(descriptor)],
        pass_fds=(descriptor,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        # Ctrl-C in a terminal is for the service.
        start_new_session=True,
    )
