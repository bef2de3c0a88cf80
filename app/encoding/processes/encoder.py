"""An encoder whose passes are computed by processes, one for each lane.

Passes that run side by side in threads wait for each other, and for the threads of the service, at each of
their steps: one of them has the interpreter. Processes have one each, and one that hangs can be killed.
"""

import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import structlog
from numpy.typing import NDArray

from app.encoding.errors import EncoderLostError
from app.encoding.processes.fork_server import ForkServer
from app.encoding.processes.process import EncodingProcess, Load, Order
from training.common.errors import MissingModalityError
from training.common.stopped import kill_stopped
from training.models.bundle import BundleInfo, read_bundle
from training.models.embeddings import TextEmbeddings
from training.models.inputs.images import ImageInput, Pixels
from training.models.onnx.files import FOLDER, read_graphs

_log = structlog.stdlib.get_logger(__name__)


class EncoderProcesses(ImageInput):
    """Processes with the encoder of a bundle on the CPU; threads may share it.

    A process that is lost, or killed because it is stopped or a pass takes too long, is replaced.

    Args:
        server: Forks the processes.
        bundle: Holds the encoder.
        count: Number of concurrent passes.
        limit_s: Longest that a pass may take.
        replaced: Called when a process was lost.
        threads: Threads of a pass by ONNX Runtime.

    Raises:
        BundleError: The bundle cannot be used.
        EncoderLostError: A process does not start.
    """

    on_cpu: Final = True

    def __init__(
        self,
        server: ForkServer,
        bundle: Path,
        count: int,
        limit_s: float,
        replaced: Callable[[], object] | None = None,
        *,
        threads: int = 1,
    ) -> None:
        self.info: BundleInfo | None = read_bundle(bundle)
        config = self.info.config
        self.image_config = self.info.preprocessing.image
        self.modalities: Collection[str] = config.modalities
        graphs = read_graphs(self.info, bundle / FOLDER)
        self.fixed_threads = graphs is not None
        self.regions = config.regions if graphs is None else graphs.regions
        self._server = server
        self._start_with = Load(bundle, threads, by_onnx=self.fixed_threads)
        self._count = count
        self._replaced = replaced
        self._limit_s = limit_s
        self._of_thread = threading.local()
        self._changed = threading.Condition()
        self._closed = False
        self._idle: deque[EncodingProcess] = deque()
        self._all: set[EncodingProcess] = set()
        self._watch_ended = kill_stopped(self._running)
        try:
            for _ in range(count):
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

    def use_threads(self, count: int) -> None:
        """Have the calling thread's passes computed by torch on so many threads."""
        self._of_thread.count = count

    def embed_images(self, images: Pixels) -> NDArray[np.float32]:
        """Vectors (B, D) of prepared images (B, 3, S, S).

        Raises:
            EncoderLostError: The process has ended, or the pass took too long.
        """
        vectors: NDArray[np.float32] = self._ask(Order(images, self._threads))
        return vectors

    def embed_regions(self, images: Pixels) -> NDArray[np.float32]:
        """Embeddings (B, K, D) of the regions of prepared images; raises as `embed_images` does."""
        regions: NDArray[np.float32] = self._ask(Order(images, self._threads, regions=True))
        return regions

    def embed_texts(self, texts: Sequence[str]) -> TextEmbeddings:
        """Vectors (B, D) of texts, with how each was cut.

        Raises:
            MissingModalityError: The model was trained without texts.
            EncoderLostError: The process has ended, or the pass took too long.
        """
        if "text" not in self.modalities:
            raise MissingModalityError("text")
        embeddings: TextEmbeddings = self._ask(Order(list(texts), self._threads))
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

    @property
    def _threads(self) -> int:
        return getattr(self._of_thread, "count", 1)

    def _running(self) -> dict[int, Callable[[], object]]:
        with self._changed:
            running: dict[int, Callable[[], object]] = {process.pid: process.kill for process in self._all}
        # Without it no process can be replaced.
        return running if self._server.pid is None else {**running, self._server.pid: self._server.kill}

    def _ask(self, order: Order) -> Any:
        process = self._take()
        try:
            answer = process.ask(order, self._limit_s)
        except Exception as error:
            self._replace(process, str(error))
            raise
        self._give_back(process)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _take(self) -> EncodingProcess:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._idle or len(self._all) < self._count)
                if self._closed:
                    raise EncoderLostError("The encoder is closed.")
                process = self._idle.pop() if self._idle else None
            if process is None:
                self._start()
            elif process.is_alive:
                return process
            else:
                self._replace(process, "it has ended")

    def _give_back(self, process: EncodingProcess) -> None:
        with self._changed:
            # The one that was used last has the most in its caches.
            self._idle.append(process)
            self._changed.notify()

    def _replace(self, process: EncodingProcess, reason: str) -> None:
        process.end()
        with self._changed:
            self._all.discard(process)
            if self._closed:
                return
        _log.error("an encoder's process is replaced", reason=reason)
        if self._replaced is not None:
            self._replaced()
        # Now, since a start takes seconds; where there is no room for it, when the next batch needs it.
        with suppress(EncoderLostError):
            self._start()

    def _start(self) -> None:
        process = EncodingProcess(self._server, self._start_with)
        with self._changed:
            if not self._closed and len(self._all) < self._count:
                self._all.add(process)
                # Behind those that are ready.
                self._idle.appendleft(process)
                self._changed.notify()
                return
        process.end()
