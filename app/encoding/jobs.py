"""Queries on their way through the queue, its bounds, and the interfaces of encoder and observer."""

from collections.abc import Collection, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image

from training.common.errors import RecoquestError
from training.models.bundle import BundleInfo
from training.models.config import ImagePreprocessingConfig
from training.models.embeddings import TextEmbeddings
from training.models.inputs.images import Pixels
from training.models.inputs.texts import Truncation

Kind = Literal["text", "image", "regions"]

# A pass that outlives the deadline has no caller left, but a paused machine is not yet a hanging encoder.
_DEADLINES_OF_A_PASS = 2.0
_SHORTEST_PASS_LIMIT_S = 10.0


class Priority(IntEnum):
    """Order of service; the lowest number goes first."""

    PROBE = 0
    SEARCH = 1
    UPLOAD = 2


class QueryEncoder(Protocol):
    """The interface of an encoder that the queue uses."""

    def embed_images(self, images: Pixels) -> NDArray[np.float32]:
        """Vectors (B, D) of prepared images (B, 3, S, S)."""

    def embed_regions(self, images: Pixels) -> NDArray[np.float32]:
        """Embeddings (B, K, D) of the regions of prepared images."""

    def embed_texts(self, texts: Sequence[str]) -> TextEmbeddings:
        """Vectors (B, D) of texts, with how each was cut."""


class ServedEncoder(QueryEncoder, Protocol):
    """An encoder as the service holds it; see `training.models.encoder.Encoder`."""

    @property
    def modalities(self) -> Collection[str]:
        """Kinds of input that it embeds."""

    @property
    def min_image_side(self) -> int | None:
        """Pixels that both sides of a decoded image must keep; None: full resolution."""

    @property
    def regions(self) -> bool:
        """True if the encoder embeds regions of images."""

    @property
    def info(self) -> BundleInfo | None:
        """The bundle it was loaded from."""

    @property
    def on_cpu(self) -> bool:
        """Whether it computes on the CPU."""

    @property
    def fixed_threads(self) -> bool:
        """Whether all its passes take the same number of threads."""

    @property
    def image_config(self) -> ImagePreprocessingConfig:
        """Preprocessing of images."""

    def prepare_image(self, image: Image) -> Pixels:
        """Make the input (3, S, S) of a decoded image; threads may share it."""


class QueueObserver(Protocol):
    """Receiver of a queue's figures."""

    def encoded(self, kind: Kind, size: int, seconds: float) -> None:
        """A batch has been through the encoder."""

    def restarted(self) -> None:
        """A worker died or hung and was replaced."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds of a queue: items, and seconds.

    Attributes:
        batch_size: Most queries of one forward pass.
        batch_wait_s: Seconds that a busy worker waits for a batch to fill.
        capacity: Most queries of each priority that wait.
        deadline_s: Longest a query waits for its vector.
        hang_s: Longest forward pass; None derives it from the deadline.
    """

    batch_size: int = 16
    batch_wait_s: float = 0.003
    capacity: int = 64
    deadline_s: float = 10.0
    hang_s: float | None = None

    @property
    def pass_limit_s(self) -> float:
        """Seconds after which a forward pass is taken to hang."""
        if self.hang_s is not None:
            return self.hang_s
        return max(_DEADLINES_OF_A_PASS * self.deadline_s, _SHORTEST_PASS_LIMIT_S)


@dataclass(frozen=True, slots=True)
class Encoded:
    """Vector (D,) of one query, how its text was cut, its tokens, and the seconds of its forward pass.

    Of the kind `regions` it is the embeddings (K, D) of an image's regions.
    """

    vector: NDArray[np.float32]
    truncation: Truncation | None = None
    tokens: int = 0
    pass_s: float = 0.0


@dataclass(slots=True)
class Job:
    """A query with its deadline (monotonic seconds) and the future of its vector."""

    kind: Kind
    payload: str | Pixels
    deadline: float
    priority: Priority = Priority.SEARCH
    future: Future[Encoded] = field(default_factory=Future)

    @property
    def length(self) -> int:
        """Characters of a text; 0 of an image, which all cost the same."""
        return len(self.payload) if isinstance(self.payload, str) else 0


def succeed(job: Job, result: Encoded) -> None:
    """Give a query its vector, unless it was answered meanwhile."""
    with suppress(InvalidStateError):
        job.future.set_result(result)


def fail(jobs: Sequence[Job], error: RecoquestError, cause: BaseException | None = None) -> None:
    """Give the queries that have no answer yet an error, each an object of its own."""
    for job in jobs:
        if job.future.running() or (not job.future.done() and job.future.set_running_or_notify_cancel()):
            # One error object for several waiting callers would gather all their tracebacks.
            own = type(error)(*error.args)
            # The frames of a traceback keep the tensors of a failed pass alive.
            own.__cause__ = None if cause is None else cause.with_traceback(None)
            with suppress(InvalidStateError):
                job.future.set_exception(own)
