"""A process that holds an encoder and computes its passes, as the service sees it."""

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.encoding.errors import EncoderLostError
from app.encoding.processes.fork_server import ForkServer
from training.models.embeddings import TextEmbeddings
from training.models.inputs.images import Pixels

_START_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Load:
    """Order to load a bundle, the first that a process gets.

    Attributes:
        bundle: Folder of the bundle.
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
        self._process = server.fork(with_torch=not load.by_onnx)
        self._connection = self._process.connection
        self._is_ready = False
        # The end of a process is told by `wait_until_ready`.
        with suppress(OSError):
            self._connection.send(load)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it can take an order."""
        return self._process.is_alive

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
        """Give an order, and return the vectors or the encoder's own error; one that raises is to be ended.

        Raises:
            BundleError: The bundle cannot be used.
            EncoderLostError: The process has ended, or takes too long.
        """
        self.wait_until_ready()
        try:
            self._connection.send(order)
        except OSError as error:
            raise EncoderLostError("The encoder's process has ended.") from error
        answer: TextEmbeddings | NDArray[np.float32] | Exception = self._answer(time.monotonic() + limit_s)
        return answer

    def kill(self) -> None:
        """Kill it; whoever waits for its answer is told, and ends it."""
        self._process.kill()

    def end(self) -> None:
        """Kill it, wait for its end, and let go of it."""
        self._process.end()

    def _answer(self, until: float) -> Any:
        try:
            if self._connection.poll(max(0.0, until - time.monotonic())):
                return self._connection.recv()
        except (OSError, EOFError) as error:
            raise EncoderLostError("The encoder's process has ended.") from error
        raise EncoderLostError("The encoder's process does not answer.")
