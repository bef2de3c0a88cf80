"""Processes that do one task at a time, and a pool that replaces those that end, overrun or are stopped.

A message is a JSON header and raw bytes, with their lengths: what a process answers is data, never code.
"""

import fcntl
import json
import logging
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

LossReason = Literal["crash", "cpu", "wall", "memory", "stopped", "closed"]
# Header and body.
Message = tuple[dict[str, Any], bytearray]

_LENGTHS: Final = struct.Struct(">IQ")
_MAX_START_BYTES: Final = _LENGTHS.size + 65_536
_SMALL_BYTES: Final = 1 << 16
_PART_BYTES: Final = 1 << 20
# Standard input, output and error.
_STREAMS: Final = 3
_START_S: Final = 120.0
_EXIT_S: Final = 5.0
# A process that is stopped at two looks in a row is killed.
_LOOK_S: Final = 0.75
# The signals of a process's own timer and of a limit that its user has set.
_OUT_OF_CPU: Final = (signal.SIGPROF, signal.SIGXCPU)
# Letters of the system for a process that a signal or a debugger has stopped.
_STOPPED: Final = ("T", "t")

_log = logging.getLogger(__name__)


class BrokenMessageError(Exception):
    """The other side has ended, or does not keep to the form of messages."""


class WorkerLostError(Exception):
    """A process ended, or was killed, before it had done its task."""

    def __init__(self, reason: LossReason) -> None:
        super().__init__(reason)
        self.reason = reason


class WorkerStartError(WorkerLostError):
    """The system starts no process now."""

    def __init__(self) -> None:
        super().__init__("crash")


class WorkerRefusedError(WorkerLostError):
    """A process cannot do what it was started for; `why` is its word on it."""

    def __init__(self, why: str) -> None:
        super().__init__("crash")
        self.why = why


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets; neither replaces a standard stream that is closed."""
    own, theirs = socket.socketpair()
    with own, theirs:
        kept = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _STREAMS) for end in (own, theirs)]
    return socket.socket(fileno=kept[0]), socket.socket(fileno=kept[1])


def send(connection: socket.socket, header: Mapping[str, Any], body: bytes | memoryview = b"") -> None:
    """Write a message.

    Raises:
        OSError: The other side has ended, or the time-out of the connection has passed.
    """
    encoded = json.dumps(header).encode()
    start = _LENGTHS.pack(len(encoded), len(body)) + encoded
    if len(body) <= _SMALL_BYTES:
        # At each call, another thread of a busy process may take the interpreter for milliseconds.
        connection.sendall(start + body)
    else:
        connection.sendall(start)
        connection.sendall(body)


def receive(connection: socket.socket, max_bytes: int, until: float | None = None) -> Message:
    """Read a message with a body of at most `max_bytes`; the other side sends another only after an answer.

    `until` is the deadline for the whole message on the clock of `time.monotonic`; None: no deadline.

    Raises:
        BrokenMessageError: The other side has ended, or this is no message.
        OSError: The connection is broken; a TimeoutError when it is too late.
    """
    start = bytearray(_MAX_START_BYTES)
    filled = _fill(connection, start, 0, _LENGTHS.size, until)
    header_bytes, body_bytes = _LENGTHS.unpack_from(start)
    end = _LENGTHS.size + header_bytes
    if end > _MAX_START_BYTES or body_bytes > max_bytes:
        raise BrokenMessageError
    filled = _fill(connection, start, filled, end, until)
    try:
        header = json.loads(start[_LENGTHS.size : end])
    except (ValueError, RecursionError) as error:
        raise BrokenMessageError from error
    if not isinstance(header, dict) or filled - end > body_bytes:
        raise BrokenMessageError
    body = bytearray(body_bytes)
    # What has come with the header.
    body[: filled - end] = start[end:filled]
    _fill(connection, body, filled - end, body_bytes, until)
    return header, body


def _fill(connection: socket.socket, content: bytearray, filled: int, least: int, until: float | None) -> int:
    """Read from `filled` on until `least` bytes are there, or more; return how many are."""
    view = memoryview(content)
    while filled < least:
        if until is not None:
            # A timeout once set would count anew for each part that comes.
            connection.settimeout(max(0.001, until - time.monotonic()))
        if not (got := connection.recv_into(view[filled : filled + _PART_BYTES])):
            raise BrokenMessageError
        filled += got
    return filled


class Worker:
    """One process; a thread at a time may ask it, and any thread may kill it.

    Args:
        handle: Its pidfd, which a later process with the same number does not share.
        connection: Socket to it. Its first message has the outcome `ready`, or else a `reason`.
        status: Returns its exit code, once it has ended.
    """

    def __init__(
        self, pid: int, handle: int, connection: socket.socket, status: Callable[[], int] = lambda: 0
    ) -> None:
        self.pid = pid
        self.connection = connection
        self.is_ready = False
        self._handle = handle
        # Closed no earlier: its number may be another's by the time that a thread kills the process.
        weakref.finalize(self, os.close, handle).atexit = False
        self._status = status
        self._ended_for: LossReason | None = None

    @property
    def is_alive(self) -> bool:
        """Whether it can take a task, now or when it is ready."""
        return self._ended_for is None and not self._has_ended(0)

    def wait_until_ready(self) -> None:
        """Wait until it takes tasks.

        Raises:
            WorkerLostError: It has ended, or takes too long; a WorkerRefusedError if it cannot be used.
        """
        if self.is_ready:
            return
        header, _ = self._answer(0, time.monotonic() + _START_S)
        if header.get("outcome") != "ready":
            raise WorkerRefusedError(str(header.get("reason")))
        self.is_ready = True

    def ask(self, header: Mapping[str, Any], content: bytes, most: int, until: float) -> Message:
        """Give a task and wait until `until` for the answer, whose body has at most `most` bytes.

        Raises:
            WorkerLostError: The process ended before it answered, or was killed at the deadline.
        """
        return self._answer(most, until, (header, content))

    def kill(self, reason: LossReason) -> None:
        """Kill it; a thread that waits for its answer gets the reason."""
        self._ended_for = self._ended_for or reason
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def end(self) -> LossReason:
        """Wait for its end, kill it if need be, let go of it, and return why it has ended."""
        # One that has closed its side may be about to end by itself.
        if not self._has_ended(_EXIT_S):
            self.kill("crash")
            self._has_ended(None)
        self.connection.close()
        cause: LossReason = "cpu" if -self._status() in _OUT_OF_CPU else "crash"
        self._ended_for = self._ended_for or cause
        return self._ended_for

    def _answer(
        self, most: int, until: float, task: tuple[Mapping[str, Any], bytes] | None = None
    ) -> Message:
        try:
            self.connection.settimeout(max(0.001, until - time.monotonic()))
            if task is not None:
                send(self.connection, *task)
            return receive(self.connection, most, until)
        except TimeoutError:
            self.kill("wall")
        except (OSError, BrokenMessageError):
            # It has ended, or answers nonsense, and is ended.
            pass
        raise WorkerLostError(self.end())

    def _has_ended(self, wait_s: float | None) -> bool:
        watched = select.poll()
        watched.register(self._handle, select.POLLIN)
        return bool(watched.poll(None if wait_s is None else wait_s * 1000))


def start_process(
    module: str, *arguments: int, environment: Mapping[str, str] = os.environ, stderr: int | None = None
) -> Worker:
    """Run a module in a process, which gets the number of this one, that of its socket, and the arguments.

    It is to end with this one, by `end_with_parent`; the system then ends it with the thread that calls this.

    Raises:
        WorkerStartError: The system has no room for a process.
    """
    with ExitStack() as opened:
        try:
            own, theirs = socket_pair()
            opened.callback(own.close)
            numbers = (os.getpid(), theirs.fileno(), *arguments)
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", module, *map(str, numbers)],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    # Modules are found where this process finds them: the current folder may have others of
                    # the same names.
                    env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
                    # Ctrl-C in a terminal is for its owner.
                    start_new_session=True,
                )
            opened.callback(process.wait)
            opened.callback(process.kill)
            handle = os.pidfd_open(process.pid)
        except OSError as error:
            raise WorkerStartError from error
        opened.pop_all()
    return Worker(process.pid, handle, own, process.wait)


class WorkerPool:
    """Keeps processes that threads take for a task each, and replaces those that are lost.

    Stopped processes neither work nor end, so they are killed. The system says that a process is stopped: one
    that works slowly, or waits for a disk, is left alone.

    Args:
        start: Starts a process; it raises WorkerStartError where there is no room for one.
        size: Number of processes, each started when it is first needed.
        replaced: Is given the reason when a process was lost.
        also_watched: Returns other processes that must not be stopped, by their number, and what kills each.
    """

    def __init__(
        self,
        start: Callable[[], Worker],
        size: int,
        replaced: Callable[[LossReason], object],
        also_watched: Callable[[], Mapping[int, Callable[[], object]]] = dict,
    ) -> None:
        self._start = start
        self._size = size
        self._replaced = replaced
        self._also_watched = also_watched
        self._changed = threading.Condition()
        self._closed = False
        self._idle: deque[Worker] = deque()
        self._all: set[Worker] = set()
        self._watch_ended = threading.Event()
        threading.Thread(target=self._kill_stopped, name="stopped-processes", daemon=True).start()

    @property
    def workers(self) -> list[Worker]:
        """The processes that are there."""
        with self._changed:
            return list(self._all)

    @property
    def taken_count(self) -> int:
        """Number of processes that threads have taken."""
        return len(self._all) - len(self._idle)

    def start_all(self) -> None:
        """Start all processes and wait until they are ready; raises as `taken` does."""
        for _ in range(self._size):
            self._add()
        for worker in self.workers:
            worker.wait_until_ready()

    @contextmanager
    def taken(self) -> Iterator[Worker]:
        """Take a process that is ready, and give it back at the end, or replace it after an exception.

        Raises:
            WorkerLostError: None can be started, or it ended before it was ready or cannot be used, or the
                pool is closed.
        """
        worker = self._take()
        try:
            worker.wait_until_ready()
            yield worker
        except BaseException:
            worker.kill("crash")
            self._replace(worker)
            raise
        with self._changed:
            if not self._closed:
                # The one that was used last has the most in its caches.
                self._idle.append(worker)
                self._changed.notify()
                return
        worker.end()

    def close(self) -> None:
        """Kill all processes; threads that wait for one, or for an answer, get an error."""
        self._watch_ended.set()
        with self._changed:
            self._closed = True
            workers, idle = list(self._all), list(self._idle)
            self._all.clear()
            self._idle.clear()
            self._changed.notify_all()
        for worker in workers:
            worker.kill("closed")
        # The threads that have taken the others end them.
        for worker in idle:
            worker.end()

    def _take(self) -> Worker:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._idle or len(self._all) < self._size)
                if self._closed:
                    raise WorkerLostError("closed")
                worker = self._idle.pop() if self._idle else None
            if worker is None:
                self._add()
            elif worker.is_alive:
                return worker
            else:
                self._replace(worker)

    def _replace(self, worker: Worker) -> None:
        reason = worker.end()
        with self._changed:
            self._all.discard(worker)
            if self._closed:
                return
            # There is room for another, which a thread that waits for one may start.
            self._changed.notify()
        self._replaced(reason)
        # Now, since a start may take seconds; where there is no room for it, when the next task needs it.
        with suppress(WorkerStartError):
            self._add()

    def _add(self) -> None:
        worker = self._start()
        with self._changed:
            if not self._closed and len(self._all) < self._size:
                self._all.add(worker)
                # Behind those that are ready.
                self._idle.appendleft(worker)
                self._changed.notify()
                return
        worker.kill("closed")
        worker.end()

    def _kill_stopped(self) -> None:
        suspects: set[int] = set()
        while not self._watch_ended.wait(_LOOK_S):
            watched = dict(self._also_watched())
            watched |= {worker.pid: partial(worker.kill, "stopped") for worker in self.workers}
            stopped = {pid: kill for pid, kill in watched.items() if _is_stopped(pid)}
            for pid in suspects & stopped.keys():
                _log.warning("process %d is stopped and is killed", pid)
                stopped[pid]()
            suspects = set(stopped)


def _is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal or a debugger, rather than running, asleep or at its end."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] in _STOPPED
