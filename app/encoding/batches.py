"""Batches through an encoder: a failing batch is halved until each failing query stands alone."""

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import structlog

from app.encoding.errors import (
    FAILED,
    NO_MEMORY,
    TOO_SLOW,
    EncoderLostError,
    EncoderMemoryError,
    EncodingFailedError,
    EncodingTimeoutError,
    is_out_of_memory,
)
from app.encoding.jobs import Encoded, Job, QueryEncoder, QueueObserver, fail, succeed
from training.common.errors import MissingModalityError
from training.models.inputs.texts import Truncation

_SMALLER_BATCHES_S = 60.0

_log = structlog.stdlib.get_logger(__name__)


class AbandonedError(Exception):
    """The thread was given up while its pass hung; its queries have their answers."""


class PassTimer(Protocol):
    """The thread of a pass, as the supervisor watches it."""

    def begin_pass(self) -> None:
        """A forward pass begins.

        Raises:
            AbandonedError: The thread was given up.
        """

    def end_pass(self) -> None:
        """The forward pass is over; raises as `begin_pass` does."""


class Batches:
    """Passes batches of one kind through an encoder and answers every query of them.

    A batch of n queries takes at most 2n - 1 passes, and queries whose deadline has passed take none.
    """

    def __init__(self, encoder: QueryEncoder, size: int, observer: QueueObserver | None) -> None:
        self._encoder = encoder
        self._size = size
        self._observer = observer
        self._smaller = size
        self._smaller_until = float("-inf")
        self.last_success = float("-inf")

    @property
    def size(self) -> int:
        """Most queries of a batch: fewer for a minute after memory was short."""
        return self._smaller if time.monotonic() < self._smaller_until else self._size

    def encode(self, batch: list[Job], thread: PassTimer) -> None:
        """Answer all queries of a batch.

        Raises:
            AbandonedError: A pass outlived its limit and its thread was given up.
        """
        parts = [batch]
        while parts:
            part = _in_time(parts.pop())
            if part and not self._answered(part, thread):
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]

    def _answered(self, part: list[Job], thread: PassTimer) -> bool:
        """Pass a part of a batch through the encoder; False asks for its halves."""
        started = time.perf_counter()
        thread.begin_pass()
        try:
            results = self._vectors(part)
        except MissingModalityError as error:
            fail(part, error)
            return True
        except Exception as error:  # noqa: BLE001 - whatever the encoder raises must reach the callers
            return self._failed(part, error)
        finally:
            thread.end_pass()
        seconds = time.perf_counter() - started
        self._deliver(part, results, seconds)
        if self._observer is not None:
            self._observer.encoded(part[0].kind, len(part), seconds)
        return True

    def _failed(self, part: list[Job], error: Exception) -> bool:
        short = is_out_of_memory(error)
        # The replacement of a lost process is an error in the log; its end with the service is none.
        level = logging.WARNING if isinstance(error, EncoderLostError) else logging.ERROR
        _log.log(level, "encoding failed", kind=part[0].kind, size=len(part), error=type(error).__name__)
        if short and len(part) > 1:
            self._smaller, self._smaller_until = len(part) // 2, time.monotonic() + _SMALLER_BATCHES_S
        if len(part) == 1:
            reason = EncoderMemoryError(NO_MEMORY) if short else EncodingFailedError(FAILED)
            fail(part, error if isinstance(error, EncoderLostError) else reason, cause=error)
        return len(part) == 1

    def _deliver(self, part: list[Job], results: Sequence[Encoded | None], pass_s: float) -> None:
        for job, result in zip(part, results, strict=True):
            if result is None:
                _log.error("a vector is not finite", kind=job.kind)
                fail([job], EncodingFailedError(FAILED))
            else:
                self.last_success = time.monotonic()
                succeed(job, replace(result, pass_s=pass_s))

    def _vectors(self, batch: list[Job]) -> list[Encoded | None]:
        """The vector of each query; None where it is not finite."""
        truncations: Sequence[Truncation | None] = [None] * len(batch)
        tokens: Sequence[int] = [0] * len(batch)
        if batch[0].kind == "text":
            embeddings = self._encoder.embed_texts(
                [job.payload for job in batch if isinstance(job.payload, str)]
            )
            vectors, truncations, tokens = embeddings.vectors, embeddings.truncations, embeddings.tokens
        else:
            images = [job.payload for job in batch if not isinstance(job.payload, str)]
            embed = self._encoder.embed_images if batch[0].kind == "image" else self._encoder.embed_regions
            vectors = embed(np.stack(images))
        if len(vectors) != len(batch):
            raise EncodingFailedError(FAILED)
        return [
            Encoded(vector, cut, count) if np.isfinite(vector).all() else None
            for vector, cut, count in zip(vectors, truncations, tokens, strict=True)
        ]


def _in_time(jobs: list[Job]) -> list[Job]:
    """The queries that still have time; the others are failed."""
    now = time.monotonic()
    fail([job for job in jobs if job.deadline <= now], EncodingTimeoutError(TOO_SLOW))
    return [job for job in jobs if not job.future.done()]
