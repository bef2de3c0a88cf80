"""Encoders in processes, one for each lane, on the CPU: a fork server, and the encoder made of them.

Passes that run side by side in threads wait for each other, and for the threads of the service, at each of
their steps: one of them has the interpreter. Processes have one each, and one that hangs can be killed.

The fork server has imported what encoders need. The import of PyTorch takes seconds on a busy machine, and
more than a hundred megabytes that forked processes share; it comes with the first encoder that needs it.
"""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import structlog
from numpy.typing import NDArray

from app.encoding.queue import EncoderLostError
from app.encoding.threads import ComputeThreads, LocalEncoder
from training.common.errors import MissingModalityError
from training.common.stopped import kill_stopped
from training.models.bundle import read_bundle
from training.models.embeddings import TextEmbeddings
from training.models.inputs.images import ImageInput, Pixels
from training.models.onnx.files import FOLDER, read_graphs

_START_S: Final = 120.0
# Orders to the fork server.
WITH_TORCH: Final = b"t"
WITHOUT_TORCH: Final = b"o"
_NO_PROCESS: Final = "No process of the encoder can be started."
_ENDED: Final = "The encoder's process has ended."

ServedEncoder: TypeAlias = "LocalEncoder | EncoderProcesses"

_log = structlog.stdlib.get_logger(__name__)


class ForkServer:
    """Starts the fork server, and again when it was lost; threads may share it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        # The system kills a process when the thread that has started it ends: other threads come and go.
        self._starter = ThreadPoolExecutor(1, "fork-server")
        self._process: subprocess.Popen[bytes] | None = None
        self._orders: socket.socket | None = None
        # Tried again when a process is needed.
        with suppress(OSError):
            self._start()

    @property
    def pid(self) -> int | None:
        """Process id."""
        return None if self._process is None else self._process.pid

    def fork(self, *, with_torch: bool) -> tuple[int, int, Connection]:
        """Make a process that waits for a bundle: its id, its pidfd, and a socket to it.

        Torch is imported before where it is needed and not there yet.

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
            except (OSError, RuntimeError) as error:
                raise EncoderLostError(_NO_PROCESS) from error

    def kill(self) -> None:
        """Kill the server, and with it every process that it has forked; the next fork starts another."""
        if (process := self._process) is not None:
            # A thread that waits for its answer gets none, and lets go of the guard.
            process.kill()

    def close(self) -> None:
        """End the server, and with it every process that it has forked; it starts no more."""
        self._starter.shutdown(wait=False)
        self.kill()
        with self._guard:
            self._end()

    def _start(self) -> None:
        own, theirs = socket.socketpair()
        own.settimeout(_START_S)
        with theirs, ExitStack() as opened:
            opened.callback(own.close)
            # After the end it takes no more work: a RuntimeError.
            self._process = self._starter.submit(_started, theirs.fileno()).result()
            opened.pop_all()
        self._orders = own

    def _forked(self, with_torch: bool) -> tuple[int, int, Connection]:
        if self._orders is None:
            raise OSError("no fork server runs")
        own, theirs = Pipe()
        with theirs, ExitStack() as opened:
            opened.callback(own.close)
            order = WITH_TORCH if with_torch else WITHOUT_TORCH
            socket.send_fds(self._orders, [order], [theirs.fileno()])
            answer, handles, _, _ = socket.recv_fds(self._orders, 32, 1)
            if not answer:
                raise OSError("the fork server has ended")
            if not handles:
                # The others that it has forked go on.
                raise EncoderLostError(_NO_PROCESS)
            opened.pop_all()
        return int(answer), handles[0], own

    def _end(self) -> None:
        if self._orders is not None:
            self._orders.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._orders = self._process = None


def _started(descriptor: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "app.encoding.fork_template", str(os.getpid()), str(descriptor)],
        pass_fds=(descriptor,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        # Ctrl-C in a terminal is for the service.
        start_new_session=True,
    )


@dataclass(frozen=True, slots=True)
class Load:
    """Order to load a bundle, the first that a process gets.

    Attributes:
        threads: Threads of a pass by ONNX Runtime.
        by_onnx: Whether the bundle has ONNX graphs; else its encoder needs torch.
    """

    bundle: Path
    threads: int
    by_onnx: bool


@dataclass(frozen=True, slots=True)
class Order:
    """A batch for the process.

    Attributes:
        batch: Texts, or prepared images (B, 3, S, S).
        threads: Threads of this pass by torch.
        regions: Whether the regions of the images are embedded.
    """

    batch: list[str] | Pixels
    threads: int
    regions: bool = False


class EncodingProcess:
    """One process; a thread at a time may ask it."""

    def __init__(self, server: ForkServer, load: Load) -> None:
        """Start it; its bundle is loaded meanwhile.

        Raises:
            EncoderLostError: The system has no room for a process.
        """
        # A later process with the same id does not share the pidfd.
        self.pid, self._handle, self._connection = server.fork(with_torch=not load.by_onnx)
        # Closed no earlier: its number may be another's by the time that a thread kills the process.
        weakref.finalize(self, os.close, self._handle)
        self._is_ready = False
        # The end of a process is told by `wait_until_ready`.
        with suppress(OSError):
            self._connection.send(load)

    @property
    def is_alive(self) -> bool:
        """Whether it can take an order."""
        return not self._has_ended(0)

    def wait_until_ready(self) -> None:
        """Wait until it has made its first pass.

        Raises:
            BundleError: The bundle cannot be used.
            EncoderLostError: The process has ended, or takes too long.
        """
        if self._is_ready:
            return
        answer = self._answer(time.monotonic() + _START_S)
        if isinstance(answer, Exception):
            raise answer
        self._is_ready = True

    def ask(self, order: Order, limit_s: float) -> TextEmbeddings | NDArray[np.float32] | Exception:
        """Give an order, and return the vectors or the encoder's own error.

        A process that raises, as by `wait_until_ready`, is to be ended.
        """
        self.wait_until_ready()
        try:
            self._connection.send(order)
        except OSError as error:
            raise EncoderLostError(_ENDED) from error
        answer: TextEmbeddings | NDArray[np.float32] | Exception = self._answer(time.monotonic() + limit_s)
        return answer

    def kill(self) -> None:
        """Kill it; whoever waits for its answer is told, and ends it."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def end(self) -> None:
        """Kill it, wait for its end, and let go of it."""
        self.kill()
        self._has_ended(None)
        self._connection.close()

    def _has_ended(self, wait_ms: int | None) -> bool:
        watched = select.poll()
        watched.register(self._handle, select.POLLIN)
        return bool(watched.poll(wait_ms))

    def _answer(self, until: float) -> Any:
        try:
            if self._connection.poll(max(0.0, until - time.monotonic())):
                return self._connection.recv()
        except (OSError, EOFError) as error:
            raise EncoderLostError(_ENDED) from error
        raise EncoderLostError("The encoder's process does not answer.")


class EncoderProcesses(ImageInput):
    """Processes with the encoder of a bundle on the CPU; threads may share it.

    A process that is lost, or killed because it is stopped or a pass takes too long, is replaced.

    Args:
        threads: Number of concurrent passes, and threads of each.

    Raises:
        BundleError: The bundle cannot be used.
        EncoderLostError: A process does not start.
    """

    def __init__(
        self,
        server: ForkServer,
        bundle: Path,
        threads: ComputeThreads,
        limit_s: float,
        replaced: Callable[[], object] = lambda: None,
    ) -> None:
        self.info = read_bundle(bundle)
        config = self.info.config
        self.image_config = self.info.preprocessing.image
        self.modalities: Collection[str] = config.modalities
        graphs = read_graphs(self.info, bundle / FOLDER)
        self.regions = config.regions if graphs is None else graphs.regions
        self.lanes = threads.lanes
        self._threads = threads
        self._server = server
        self._start_with = Load(bundle, threads.side_by_side, by_onnx=graphs is not None)
        self._replaced = replaced
        self._limit_s = limit_s
        self._changed = threading.Condition()
        self._closed = False
        self._idle: deque[EncodingProcess] = deque()
        self._all: set[EncodingProcess] = set()
        self._watch_ended = kill_stopped(self._running)
        try:
            for _ in range(self.lanes):
                self._start()
            for process in list(self._all):
                process.wait_until_ready()
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """The processes by their number in the system."""
        return [process.pid for process in self._all]

    def embed_images(self, images: Pixels) -> NDArray[np.float32]:
        """Vectors (B, D) of prepared images (B, 3, S, S).

        Raises:
            EncoderLostError: The process has ended, or the pass took too long.
        """
        vectors: NDArray[np.float32] = self._ask(images)
        return vectors

    def embed_regions(self, images: Pixels) -> NDArray[np.float32]:
        """Embeddings (B, K, D) of the regions of prepared images; raises as `embed_images` does."""
        regions: NDArray[np.float32] = self._ask(images, regions=True)
        return regions

    def embed_texts(self, texts: Sequence[str]) -> TextEmbeddings:
        """Vectors (B, D) of texts, with how each was cut.

        Raises:
            MissingModalityError: The model was trained without texts.
            EncoderLostError: The process has ended, or the pass took too long.
        """
        if "text" not in self.modalities:
            raise MissingModalityError("text")
        embeddings: TextEmbeddings = self._ask(list(texts))
        return embeddings

    def close(self) -> None:
        """Kill all processes; whoever waits for a vector is told."""
        self._watch_ended.set()
        with self._changed:
            self._closed = True
            idle, busy = set(self._idle), self._all - set(self._idle)
            self._all.clear()
            self._idle.clear()
            self._changed.notify_all()
        for process in busy:
            process.kill()
        for process in idle:
            process.end()

    def _running(self) -> dict[int, Callable[[], object]]:
        with self._changed:
            running: dict[int, Callable[[], object]] = {process.pid: process.kill for process in self._all}
        # Without it no process can be replaced.
        return running if self._server.pid is None else {**running, self._server.pid: self._server.kill}

    def _ask(self, batch: list[str] | Pixels, *, regions: bool = False) -> Any:
        process = self._take()
        is_alone = len(self._idle) == len(self._all) - 1
        threads = self._threads.alone if is_alone else self._threads.side_by_side
        try:
            answer = process.ask(Order(batch, threads, regions), self._limit_s)
        except Exception as error:
            self._replace(process, str(error))
            raise
        with self._changed:
            # The one that was used last has the most in its caches.
            self._idle.append(process)
            self._changed.notify()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _take(self) -> EncodingProcess:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._idle or len(self._all) < self.lanes)
                if self._closed:
                    raise EncoderLostError("The encoder is closed.")
                process = self._idle.pop() if self._idle else None
            if process is None:
                self._start()
            elif process.is_alive:
                return process
            else:
                self._replace(process, "it has ended")

    def _replace(self, process: EncodingProcess, reason: str) -> None:
        process.end()
        with self._changed:
            self._all.discard(process)
            if self._closed:
                return
        _log.error("an encoder's process is replaced", reason=reason)
        self._replaced()
        # Now, since a start takes seconds; where there is no room for it, when the next batch needs it.
        with suppress(EncoderLostError):
            self._start()

    def _start(self) -> None:
        process = EncodingProcess(self._server, self._start_with)
        with self._changed:
            if not self._closed and len(self._all) < self.lanes:
                self._all.add(process)
                # Behind those that are ready.
                self._idle.appendleft(process)
                self._changed.notify()
                return
        process.end()
