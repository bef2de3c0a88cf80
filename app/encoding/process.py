"""A process that holds an encoder and computes its passes, as the service sees it."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from socket import socketpair
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.encoding.errors import EncoderLostError
from training.models.encoder import TextEmbeddings

_START_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Order:
    """A batch for the process.

    Attributes:
        batch: Texts, or uint8 images (B, 3, S, S).
        threads: Of torch, for this pass.
    """

    batch: list[str] | NDArray[np.uint8]
    threads: int


class EncodingProcess:
    """One process; a thread at a time may ask it."""

    def __init__(self, bundle: Path) -> None:
        """Start it; its bundle is loaded meanwhile.

        Raises:
            EncoderLostError: There is no room for it.
        """
        try:
            self._process, self._connection = _started(bundle)
        except OSError as error:
            raise EncoderLostError("No process of the encoder can be started.") from error
        self._is_ready = False

    @property
    def pid(self) -> int:
        """Its number in the system."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it can take an order."""
        return self._process.poll() is None

    def wait_until_ready(self) -> None:
        """Wait until it has made its first pass.

        Raises:
            BundleError: The bundle cannot be used.
            EncoderLostError: It has ended, or takes too long.
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
            EncoderLostError: It has ended, or takes too long.
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
        self._process.kill()
        self._process.wait()
        with suppress(OSError):
            self._connection.close()

    def _answer(self, until: float) -> Any:
        try:
            if self._connection.poll(max(0.0, until - time.monotonic())):
                return self._connection.recv()
        except (OSError, EOFError) as error:
            raise EncoderLostError("The encoder's process has ended.") from error
        raise EncoderLostError("The encoder's process does not answer.")


def _started(bundle: Path) -> tuple[subprocess.Popen[bytes], Connection]:
    own, theirs = socketpair()
    numbers = (str(os.getpid()), str(theirs.fileno()))
    try:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "app.encoding.process_worker", *numbers, str(bundle)],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # Ctrl-C in a terminal is for the service.
                start_new_session=True,
            )
    except OSError:
        own.close()
        raise
    return process, Connection(own.detach())
