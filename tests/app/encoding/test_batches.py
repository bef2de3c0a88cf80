"""A failing batch: only the queries that fail get an error, in a bounded number of passes."""

import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from app.encoding.queue import (
    Batches,
    Encoded,
    EncoderMemoryError,
    EncodingError,
    EncodingFailedError,
    EncodingTimeoutError,
    InvalidTextError,
    Job,
    QueueLimits,
)
from tests.app.encoding.fakes import FakeEncoder, queue_of, vector_of
from training.models.embeddings import TextEmbeddings


class Passes(FakeEncoder):
    """An encoder that counts its passes."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def embed_texts(self, texts: Sequence[str]) -> TextEmbeddings:
        self.count += 1
        return super().embed_texts(texts)


def jobs_of(texts: Sequence[str], seconds: float = 30.0) -> list[Job]:
    jobs = [Job("text", text, time.monotonic() + seconds) for text in texts]
    for job in jobs:
        assert job.future.set_running_or_notify_cancel()
    return jobs


def outcome(job: Job) -> Encoded | BaseException:
    error = job.future.exception(0)
    return job.future.result(0) if error is None else error


def refusing(words: Callable[[Sequence[str]], bool], error: Exception) -> Passes:
    encoder = Passes()

    def before(texts: Sequence[str]) -> None:
        if words(texts):
            raise error

    encoder.before = before
    return encoder


@pytest.mark.parametrize("place", range(16))
def test_one_bad_query_alone_gets_the_error(place: int) -> None:
    texts = [f"good {number}" for number in range(16)]
    texts[place] = "bad"
    jobs = jobs_of(texts)
    passes = refusing(lambda seen: "bad" in seen, ValueError("a text that nobody may read in a log"))
    Batches(passes, 16, None).encode(jobs)
    for text, job in zip(texts, jobs, strict=True):
        found = outcome(job)
        if text == "bad":
            assert isinstance(found, EncodingFailedError)
            assert "nobody" not in str(found)
        else:
            assert isinstance(found, Encoded)
            np.testing.assert_array_equal(found.vector, vector_of(text))
    # The whole, and both halves on the way down: 16, 8, 4, 2, 1.
    assert passes.count == 9


def test_an_encoder_that_fails_always_is_tried_a_bounded_number_of_times() -> None:
    jobs = jobs_of([str(number) for number in range(16)])
    passes = refusing(lambda _: True, RuntimeError("CUDA error"))
    Batches(passes, 16, None).encode(jobs)
    errors = [outcome(job) for job in jobs]
    assert [type(error) for error in errors] == [EncodingFailedError] * 16
    assert len({id(error) for error in errors}) == 16
    assert passes.count == 31


def test_queries_past_their_deadline_take_no_further_pass() -> None:
    jobs = jobs_of(["a", "b", "c", "d"], seconds=0.2)

    def slow(_: Sequence[str]) -> bool:
        time.sleep(0.3)
        return True

    passes = refusing(slow, RuntimeError())
    Batches(passes, 16, None).encode(jobs)
    assert [type(outcome(job)) for job in jobs] == [EncodingTimeoutError] * 4
    assert passes.count == 1


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_a_batch_too_large_for_the_memory_is_halved_and_later_ones_stay_small_for_a_while(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = refusing(lambda seen: len(seen) > 3, error)
    batches, jobs = Batches(encoder, 8, None), jobs_of([str(number) for number in range(8)])
    batches.encode(jobs)
    assert all(isinstance(outcome(job), Encoded) for job in jobs)
    assert encoder.batches == [2, 2, 2, 2]
    assert batches.size == 2
    # A query that alone is too large is told so.
    alone = jobs_of(["small", "large"])
    Batches(refusing(lambda seen: "large" in seen, error), 8, None).encode(alone)
    assert [type(outcome(job)) for job in alone] == [Encoded, EncoderMemoryError]
    later = time.monotonic() + 61
    monkeypatch.setattr("app.encoding.queue.time.monotonic", lambda: later)
    assert batches.size == 8


def test_a_failure_keeps_nothing_of_its_pass_alive() -> None:
    jobs = jobs_of(["bad"])
    Batches(refusing(lambda _: True, ValueError()), 8, None).encode(jobs)
    error = jobs[0].future.exception(0)
    assert isinstance(error, EncodingError)
    cause = error.__cause__
    assert isinstance(cause, ValueError)
    assert cause.__traceback__ is None


def test_a_vector_that_is_not_finite_fails_its_own_query_only() -> None:
    class Broken(Passes):
        def embed_texts(self, texts: Sequence[str]) -> TextEmbeddings:
            found = super().embed_texts(texts)
            for vector, text in zip(found.vectors, texts, strict=True):
                if text == "bad":
                    vector[0] = np.nan
            return found

    jobs, passes = jobs_of(["good", "bad", "fine"]), Broken()
    Batches(passes, 8, None).encode(jobs)
    assert [type(outcome(job)) for job in jobs] == [Encoded, EncodingFailedError, Encoded]
    assert passes.count == 1


def test_half_of_a_surrogate_pair_is_refused_before_it_waits() -> None:
    encoder = FakeEncoder()
    with queue_of(encoder, QueueLimits()) as queue:
        with pytest.raises(InvalidTextError):
            queue.submit("text", "broken \ud800")
        assert queue.submit("text", "a whole pair \U0001f600").result(10).vector.shape == (2,)
    assert encoder.batches == [1]
