"""Encoders in processes, one for each lane, on the CPU: a fork server, and the encoder made of them.

Passes that run side by side in threads wait for each other, and for the threads of the service, at each of
their steps: one of them has the interpreter. Processes have one each, and one that hangs can be killed.

The fork server has imported what encoders need. The import of PyTorch takes seconds on a busy machine, and
more than a hundred megabytes that forked processes share; it comes with the first encoder that needs it.
"""

import pickle
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeAlias

import structlog

from app.encoding.queue import EncoderLostError
from app.encoding.threads import Call, ComputeThreads, IndirectEncoder, LocalEncoder
from training.common.errors import BundleError, MissingModalityError
from training.common.host import has_gpu_driver
from training.common.workers import (
    LossReason,
    Worker,
    WorkerLostError,
    WorkerPool,
    WorkerRefusedError,
    WorkerStartError,
    send,
    socket_pair,
    start_process,
)
from training.models.bundle import read_bundle
from training.models.image_input import ImageInput
from training.models.onnx import FOLDER, read_graphs

# Every encoder of transformers is made of it; it imports torch as well, and takes seconds.
_ENCODERS_IMPORT: Final = "transformers.modeling_utils"
_START_S: Final = 120.0
# Orders to the fork server.
WITH_TORCH: Final = b"t"
WITHOUT_TORCH: Final = b"o"
# The most that an answer holds; a process of ours is trusted.
MOST_BYTES: Final = 1 << 40
_ENDED: Final = "The encoder's process has ended."
_LOST: Final[Mapping[LossReason, str]] = {
    "closed": "The encoder is closed.",
    "wall": "The encoder's process does not answer.",
}

ServedEncoder: TypeAlias = "LocalEncoder | EncoderProcesses"

_log = structlog.stdlib.get_logger(__name__)


def import_torch() -> None:
    """Import what encoders computed by PyTorch need: processes forked later share its memory."""
    import_module(_ENCODERS_IMPORT)


def import_for(bundles: Iterable[Path], device: str) -> None:
    """Import what the encoders of these bundles need, if they are computed on the CPU."""
    # Torch must not be asked for a GPU: forked processes could not use it then.
    if device != "cpu" and (device != "auto" or has_gpu_driver()):
        return
    for bundle in bundles:
        # Loading it will report what is wrong with it.
        with suppress(BundleError):
            if read_graphs(read_bundle(bundle), bundle / FOLDER) is None:
                import_torch()


class ForkServer:
    """Starts the fork server, and again when it was lost; threads may share it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        # The system kills a process when the thread that has started it ends: other threads come and go.
        self._starter = ThreadPoolExecutor(1, "fork-server")
        self._server: Worker | None = None
        # Tried again when a process is needed.
        with suppress(WorkerStartError):
            self._start()

    @property
    def pid(self) -> int | None:
        """Process id."""
        return None if self._server is None else self._server.pid

    def fork(self, load: Mapping[str, Any], *, with_torch: bool) -> Worker:
        """Make a process, and have it load a bundle.

        Torch is imported before where it is needed and not there yet.

        Args:
            load: Its first message: the bundle's folder, and the threads of a pass by ONNX Runtime.
            with_torch: Whether the encoder needs torch.

        Raises:
            WorkerStartError: The system has no room for a process, or the server is closed.
        """
        with self._guard:
            try:
                worker = self._forked(with_torch)
            except OSError:
                self._end()
                try:
                    self._start()
                    worker = self._forked(with_torch)
                except (OSError, RuntimeError) as error:
                    raise WorkerStartError from error
        # Callers that wait until it is ready are notified of its end.
        with suppress(OSError):
            send(worker.connection, load)
        return worker

    def kill(self) -> None:
        """Kill the server, and with it every process that it has forked; the next fork starts another."""
        if (server := self._server) is not None:
            # A thread that waits for its answer gets none, and lets go of the guard.
            server.kill("stopped")

    def close(self) -> None:
        """End the server, and with it every process that it has forked; it starts no more."""
        self._starter.shutdown(wait=False)
        self.kill()
        with self._guard:
            self._end()

    def _start(self) -> None:
        # After the end it takes no more work: a RuntimeError.
        self._server = self._starter.submit(start_process, "app.encoding.fork_template").result()
        self._server.connection.settimeout(_START_S)

    def _forked(self, with_torch: bool) -> Worker:
        if self._server is None:
            raise OSError("no fork server runs")
        own, theirs = socket_pair()
        with theirs, ExitStack() as opened:
            opened.callback(own.close)
            order = WITH_TORCH if with_torch else WITHOUT_TORCH
            socket.send_fds(self._server.connection, [order], [theirs.fileno()])
            answer, handles, _, _ = socket.recv_fds(self._server.connection, 32, 1)
            if not answer:
                raise OSError("the fork server has ended")
            if not handles:
                # The others that it has forked continue.
                raise WorkerStartError
            opened.pop_all()
        return Worker(int(answer), handles[0], own)

    def _end(self) -> None:
        if self._server is not None:
            self._server.kill("closed")
            self._server.end()
        self._server = None


class EncoderProcesses(IndirectEncoder, ImageInput):
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
        load = {"bundle": str(bundle), "threads": threads.side_by_side}
        self._limit_s = limit_s
        self._replaced = replaced
        self._workers = WorkerPool(
            partial(server.fork, load, with_torch=graphs is None), self.lanes, self._replace, self._watched
        )
        try:
            self._workers.start_all()
        except BaseException as error:
            self.close()
            if isinstance(error, WorkerLostError):
                raise _error_of(error) from error
            raise

    @property
    def pids(self) -> list[int]:
        """The processes by their number in the system."""
        return [worker.pid for worker in self._workers.workers]

    def close(self) -> None:
        """Kill all processes; callers that wait for a vector get an error."""
        self._workers.close()

    def _watched(self) -> dict[int, Callable[[], object]]:
        # Without it no process can be replaced.
        return {} if self._server.pid is None else {self._server.pid: self._server.kill}

    def _replace(self, reason: LossReason) -> None:
        _log.error("an encoder's process is replaced", reason=reason)
        self._replaced()

    def _run(self, call: Call, batch: Any) -> Any:
        if call == "embed_texts" and "text" not in self.modalities:
            raise MissingModalityError("text")
        content = pickle.dumps(batch, pickle.HIGHEST_PROTOCOL)
        try:
            with self._workers.taken() as worker:
                is_alone = self._workers.taken_count == 1
                order = {
                    "call": call,
                    "threads": self._threads.alone if is_alone else self._threads.side_by_side,
                }
                _, body = worker.ask(order, content, MOST_BYTES, time.monotonic() + self._limit_s)
        except WorkerLostError as error:
            raise _error_of(error) from error
        answer = pickle.loads(body)
        if isinstance(answer, Exception):
            raise answer
        return answer


def _error_of(error: WorkerLostError) -> BundleError | EncoderLostError:
    if isinstance(error, WorkerRefusedError):
        return BundleError(error.why)
    if isinstance(error, WorkerStartError):
        return EncoderLostError("No process of the encoder can be started.")
    return EncoderLostError(_LOST.get(error.reason, _ENDED))
