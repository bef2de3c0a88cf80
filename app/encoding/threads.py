"""Passes of an encoder on the CPU, the threads of each, and passes in a thread of the service."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import numpy as np
import structlog
from numpy.typing import NDArray
from PIL import Image

from app.encoding.queue import (
    FAILED,
    TOO_SLOW,
    EncodingFailedError,
    EncodingTimeoutError,
    QueryEncoder,
    QueueLimits,
)
from training.common.host import cores
from training.models.image_input import Pixels
from training.models.text_input import TextEmbeddings

if TYPE_CHECKING:
    # The import of torch takes seconds.
    from training.models.encoder import Encoder
    from training.models.onnx import OnnxEncoder

# Batches that wait in a full queue of the default size.
_MAX_LANES: Final = 4
# More threads of one pass wait for each other longer than they compute.
_MOST_ALONE: Final = 8
# With so many passes no other is begun.
_MOST_HANGING: Final = 2
_RESTART_PAUSE_S: Final = 0.05

LocalEncoder: TypeAlias = "Encoder | OnnxEncoder"
Call = Literal["embed_images", "embed_regions", "embed_texts"]
Result = TypeVar("Result")

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ComputeThreads:
    """Threads of the passes of one encoder.

    Threads of one pass wait for the slowest of them at each layer, threads of different passes for none:
    under load, passes side by side share the cores.

    Attributes:
        lanes: Concurrent passes.
        side_by_side: Threads of each of them.
        alone: Threads of a pass by torch that runs alone.
    """

    lanes: int
    side_by_side: int
    alone: int

    @classmethod
    def share(cls, count: int | None = None) -> "ComputeThreads":
        """Divide the threads that an operator gave to all lanes together; None: one for each core."""
        total = count or cores()
        lanes = min(total, _MAX_LANES)
        return cls(lanes, total // lanes, count or min(total, _MOST_ALONE))


def use_torch_threads(count: int) -> None:
    """Let torch compute on `count` threads in this thread, and on one in threads that come later."""
    # A service whose bundles have ONNX graphs needs no torch.
    import torch

    # A thread adopts the number that any thread set last when it first asks or computes.
    torch.get_num_threads()
    torch.set_num_threads(count)
    later = threading.Thread(target=torch.set_num_threads, args=(1,))
    later.start()
    later.join()


def warm_up(encoder: LocalEncoder) -> None:
    """Embed an image, and a text if the encoder reads any: a broken encoder fails before a query needs it."""
    encoder.embed_images(np.stack([encoder.prepare_image(Image.new("RGB", (8, 8)))]))
    if "text" in encoder.modalities:
        encoder.embed_texts(["ready"])


class IndirectEncoder(ABC):
    """An encoder whose passes run in another thread or process."""

    @abstractmethod
    def _run(self, call: Call, batch: Any) -> Any:
        """Have a method of the encoder called there."""

    def embed_images(self, images: Pixels) -> NDArray[np.float32]:
        """Vectors (B, D) of prepared images (B, 3, S, S).

        Raises:
            EncodingTimeoutError: The pass took longer than its limit, in a thread.
            EncodingFailedError: Its thread died.
            EncoderLostError: Its process has ended, or the pass took too long there.
        """
        vectors: NDArray[np.float32] = self._run("embed_images", images)
        return vectors

    def embed_regions(self, images: Pixels) -> NDArray[np.float32]:
        """Embeddings (B, K, D) of the regions of prepared images; raises as `embed_images` does."""
        regions: NDArray[np.float32] = self._run("embed_regions", images)
        return regions

    def embed_texts(self, texts: Sequence[str]) -> TextEmbeddings:
        """Vectors (B, D) of texts, with how each was cut; raises as `embed_images` does.

        Raises:
            MissingModalityError: The model was trained without texts.
        """
        embeddings: TextEmbeddings = self._run("embed_texts", list(texts))
        return embeddings


class ThreadedEncoder(IndirectEncoder):
    """An encoder whose passes run in a thread of their own, which is replaced when one of them hangs.

    Args:
        encoder: Computes in that thread only.
        give_up: Called when the replacement hangs too: the process has to end.
        set_up: Called in each such thread first.
    """

    def __init__(
        self,
        encoder: QueryEncoder,
        limits: QueueLimits,
        replaced: Callable[[], object] = lambda: None,
        give_up: Callable[[], object] = lambda: None,
        set_up: Callable[[], object] | None = None,
    ) -> None:
        self._encoder = encoder
        self._deadline_s = limits.deadline_s
        self._pass_limit_s = limits.pass_limit_s
        self._replaced = replaced
        self._give_up = give_up
        self._set_up = set_up
        self._hanging: list[Future[Any]] = []
        self._thread = self._new_thread()

    def call(self, work: Callable[[], object]) -> None:
        """Have the thread call something that may take any time."""
        self._submitted(work).result()

    def _run(self, call: Call, batch: Any) -> Any:
        outcome = self._submitted(partial(getattr(self._encoder, call), batch))
        try:
            return outcome.result(self._pass_limit_s)
        except Exception:
            if outcome.done():
                raise
        except BaseException as error:
            self._replaced()
            raise EncodingFailedError(FAILED) from error
        _log.error("a forward pass hangs", limit_s=self._pass_limit_s)
        self._replaced()
        self._thread = self._new_thread()
        self._hanging = [*wait(self._hanging, 0).not_done, outcome]
        if len(self._hanging) == _MOST_HANGING:
            _log.critical("the encoder hangs again after its thread was replaced: the process has to end")
            self._give_up()
        raise EncodingTimeoutError(TOO_SLOW)

    def _submitted(self, one_pass: Callable[[], Result]) -> "Future[Result]":
        """Have the thread make a pass, as soon as no more than one other hangs."""
        end = time.monotonic() + self._deadline_s
        if len(self._hanging) == _MOST_HANGING:
            self._hanging = [*wait(self._hanging, self._deadline_s, FIRST_COMPLETED).not_done]
            if len(self._hanging) == _MOST_HANGING:
                raise EncodingTimeoutError(TOO_SLOW)
        while True:
            try:
                return self._thread.submit(one_pass)
            except RuntimeError as error:
                # The system has no room for a thread now.
                if time.monotonic() > end:
                    raise EncodingFailedError(FAILED) from error
                self._thread = self._new_thread()
                time.sleep(_RESTART_PAUSE_S)

    def _new_thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "encoding-worker", initializer=self._set_up)
