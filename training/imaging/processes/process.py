"""A decoding process as its owner sees it: started, asked, and killed when it overruns."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

from training.imaging.processes.errors import DecoderLostError, DecoderStartError, LossReason
from training.imaging.processes.messages import BrokenMessageError, receive, send

Outcome = Literal["done", "refused", "too-large", "memory"]

_START_S: Final = 60.0
_EXIT_S: Final = 5.0
# Standard input, output and error.
_STREAMS: Final = 3
_OUTCOMES: Final = frozenset({"done", "refused", "too-large", "memory"})
# One thread each, and no memory kept after an image.
_ENVIRONMENT: Final = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
}
# Settings may hold secrets, and a decoder of untrusted files needs none of them.
_SECRETS: Final = "RECOQUEST_"


@dataclass(frozen=True, slots=True)
class DecoderLimits:
    """Bounds of one task in a decoding process.

    Attributes:
        memory_bytes: Address space beyond that of the idle process.
        cpu_s: Seconds of CPU time.
    """

    memory_bytes: int
    cpu_s: int = 5


@dataclass(frozen=True, slots=True)
class Task:
    """One order to a process.

    Attributes:
        header: JSON values; `task` names it.
        answer_bytes: The most that the answer's body may have.
        content: The file that it is about.
    """

    header: dict[str, Any]
    answer_bytes: int
    content: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a process, well-formed yet untrusted, and the seconds that it took."""

    outcome: Outcome
    header: dict[str, Any]
    body: bytearray
    seconds: float = 0.0


class DecodingProcess:
    """One process. All methods but `kill` belong to the thread that made it, and it ends with that thread."""

    def __init__(self, worker: str, limits: DecoderLimits) -> None:
        """Start it, and wait until it takes tasks.

        Args:
            worker: Name of the module that runs in it; it calls `serving.serve`.
            limits: Limits of a task.

        Raises:
            DecoderStartError: The process cannot be started.
        """
        try:
            self._connection, self._process = _started(worker, limits)
        except OSError as error:
            raise DecoderStartError("No process that decodes images can be started.") from error
        self._ended_for: LossReason | None = None
        try:
            receive(self._connection, 0, time.monotonic() + _START_S)
        except (OSError, BrokenMessageError) as error:
            self.kill("crash")
            self.end()
            raise DecoderStartError("The process that decodes images does not start.") from error

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can take a task."""
        return self._process.poll() is None

    def ask(self, task: Task, until: float) -> Answer:
        """Give a task and wait for the answer, on the clock of `time.monotonic` up to `until`.

        Raises:
            DecoderLostError: The process ended before it answered, or was killed at the deadline.
        """
        started = time.monotonic()
        try:
            self._connection.settimeout(max(0.001, until - time.monotonic()))
            send(self._connection, task.header, task.content)
            header, body = receive(self._connection, task.answer_bytes, until)
        except TimeoutError:
            self.kill("wall")
            raise DecoderLostError(self.end()) from None
        except (OSError, BrokenMessageError):
            raise DecoderLostError(self.end()) from None
        outcome = header.get("outcome")
        if outcome not in _OUTCOMES:
            self.kill("crash")
            raise DecoderLostError(self.end())
        return Answer(outcome, header, body, time.monotonic() - started)

    def kill(self, reason: LossReason) -> None:
        """Kill it from any thread; whoever waits for its answer is told the reason."""
        self._ended_for = self._ended_for or reason
        self._process.kill()

    def end(self) -> LossReason:
        """Wait for its end, kill it if need be, let go of it, and return why it has ended."""
        with suppress(subprocess.TimeoutExpired):
            # One that has closed its side may be about to end by itself.
            self._process.wait(_EXIT_S)
        self._process.kill()
        code = self._process.wait()
        self._connection.close()
        return self._ended_for or ("cpu" if code == -signal.SIGXCPU else "crash")


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets; neither takes the place of a standard stream that is closed."""
    own, theirs = socket.socketpair()
    with own, theirs:
        kept = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _STREAMS) for end in (own, theirs)]
    return socket.socket(fileno=kept[0]), socket.socket(fileno=kept[1])


def _started(worker: str, limits: DecoderLimits) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    own, theirs = _socket_pair()
    # Modules are found where this process finds them: the current folder may have others of the same names.
    numbers = (os.getpid(), theirs.fileno(), limits.memory_bytes, limits.cpu_s)
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(_SECRETS)}
    try:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", worker, *map(str, numbers)],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**kept, **_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(sys.path)},
                # Ctrl-C in a terminal is for its owner.
                start_new_session=True,
            )
    except OSError:
        own.close()
        raise
    return own, process
