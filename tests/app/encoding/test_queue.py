"""The encoding queue: order, batching, overload, deadlines, failures, and the death of its worker."""

import asyncio
import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from app.encoding.queue import (
    EncodingFailedError,
    EncodingQueue,
    EncodingTimeoutError,
    Priority,
    QueueClosedError,
    QueueFullError,
    QueueLimits,
)
from tests.app.encoding.fakes import FakeEncoder, Observer, queue_of, vector_of
from training.models.embeddings import TextEmbeddings


async def _hold(queue: EncodingQueue, encoder: FakeEncoder) -> "asyncio.Task[object]":
    """Let the worker get stuck in a batch of one."""
    encoder.gate.clear()
    encoder.started.clear()
    held = asyncio.create_task(queue.encode_text("held"))
    await asyncio.to_thread(encoder.started.wait, 5)
    return held


def test_each_caller_gets_the_vector_of_its_own_query() -> None:
    encoder = FakeEncoder()

    async def ask(queue: EncodingQueue) -> None:
        texts = [f"text {n}" for n in range(40)]
        answers = await asyncio.gather(*(queue.encode_text(text) for text in texts))
        for text, answer in zip(texts, answers, strict=True):
            np.testing.assert_array_equal(answer.vector, vector_of(text))

    with queue_of(encoder, QueueLimits(batch_size=7, capacity=64)) as queue:
        asyncio.run(ask(queue))
    assert max(encoder.batches) <= 7
    assert sum(encoder.batches) == 40


def test_what_waits_is_encoded_together_and_in_order() -> None:
    encoder = FakeEncoder()
    observer = Observer()

    async def ask(queue: EncodingQueue) -> None:
        held = await _hold(queue, encoder)
        waiting = [asyncio.create_task(queue.encode_text(f"{n}")) for n in range(5)]
        await asyncio.sleep(0.02)
        assert queue.depth == 5
        encoder.gate.set()
        await asyncio.gather(held, *waiting)

    with queue_of(encoder, QueueLimits(batch_size=3, batch_wait_s=0), observer) as queue:
        asyncio.run(ask(queue))
    assert encoder.texts == ["held", "0", "1", "2", "3", "4"]
    assert observer.sizes == [("text", 1), ("text", 3), ("text", 2)]


def test_texts_and_images_never_share_a_batch() -> None:
    encoder = FakeEncoder()
    image = np.full((3, 4, 4), 7, np.uint8)

    async def ask(queue: EncodingQueue) -> None:
        held = await _hold(queue, encoder)
        texts = [asyncio.create_task(queue.encode_text("a")) for _ in range(2)]
        images = [asyncio.create_task(queue.encode_image(image)) for _ in range(3)]
        await asyncio.sleep(0.02)
        encoder.gate.set()
        await asyncio.gather(held, *texts)
        for answer in await asyncio.gather(*images):
            np.testing.assert_array_equal(answer.vector, [7, 7, 7])

    with queue_of(encoder) as queue:
        asyncio.run(ask(queue))
    assert encoder.batches == [1, 2, 3]


def test_regions_come_in_batches_of_their_own() -> None:
    async def encode() -> None:
        encoder = FakeEncoder()
        with queue_of(encoder) as queue:
            image = np.arange(3 * 4 * 4, dtype=np.uint8).reshape(3, 4, 4)
            regions, whole = await asyncio.gather(queue.encode_regions(image), queue.encode_image(image))
        np.testing.assert_array_equal(regions, image.mean(2, dtype=np.float32))
        np.testing.assert_array_equal(whole.vector, image.mean((1, 2), dtype=np.float32))
        assert encoder.batches == [1, 1]

    asyncio.run(encode())


def test_a_lone_query_does_not_wait_for_a_batch() -> None:
    async def ask(queue: EncodingQueue) -> float:
        started = time.perf_counter()
        for _ in range(3):
            await queue.encode_text("alone")
        return time.perf_counter() - started

    with queue_of(FakeEncoder(), QueueLimits(batch_wait_s=9.0)) as queue:
        assert asyncio.run(ask(queue)) < 8


def test_a_busy_worker_waits_a_moment_for_more() -> None:
    encoder = FakeEncoder()

    async def ask(queue: EncodingQueue) -> None:
        held = await _hold(queue, encoder)
        first = [asyncio.create_task(queue.encode_text("a")) for _ in range(2)]
        await asyncio.sleep(0.02)
        encoder.gate.set()
        await asyncio.gather(held, *first)
        early = asyncio.create_task(queue.encode_text("b"))
        await asyncio.sleep(0.02)
        await asyncio.gather(early, queue.encode_text("c"))

    with queue_of(encoder, QueueLimits(batch_size=2, batch_wait_s=2.0)) as queue:
        asyncio.run(ask(queue))
    assert encoder.batches == [1, 2, 2]


def test_a_full_queue_refuses_at_once_and_takes_queries_again_later() -> None:
    encoder = FakeEncoder()

    async def ask(queue: EncodingQueue) -> None:
        held = await _hold(queue, encoder)
        waiting = [asyncio.create_task(queue.encode_text("x")) for _ in range(2)]
        await asyncio.sleep(0.02)
        started = time.perf_counter()
        with pytest.raises(QueueFullError):
            await queue.encode_text("one too many")
        assert time.perf_counter() - started < 5
        encoder.gate.set()
        await asyncio.gather(held, *waiting)
        await queue.encode_text("again")

    with queue_of(encoder, QueueLimits(capacity=2)) as queue:
        asyncio.run(ask(queue))
    assert "one too many" not in encoder.texts


def test_an_encoder_that_hangs_keeps_no_caller_past_the_deadline() -> None:
    encoder = FakeEncoder()

    async def ask(queue: EncodingQueue) -> None:
        held = await _hold(queue, encoder)
        started = time.perf_counter()
        with pytest.raises(EncodingTimeoutError):
            await queue.encode_text("waits behind it")
        with pytest.raises(EncodingTimeoutError):
            await held
        assert time.perf_counter() - started < 5
        encoder.gate.set()
        assert (await queue.encode_text("after")).vector.shape == (2,)

    with queue_of(encoder, QueueLimits(deadline_s=1.0)) as queue:
        asyncio.run(ask(queue))
    assert "waits behind it" not in encoder.texts


def test_a_query_that_expired_in_the_queue_is_failed_for_callers_in_threads_too() -> None:
    encoder = FakeEncoder()
    with queue_of(encoder, QueueLimits(deadline_s=0.1)) as queue:
        encoder.gate.clear()
        queue.submit("text", "held")
        encoder.started.wait(5)
        late = queue.submit("text", "late")
        time.sleep(0.15)
        encoder.gate.set()
        with pytest.raises(EncodingTimeoutError):
            late.result(5)


def test_a_query_whose_caller_has_gone_is_skipped() -> None:
    encoder = FakeEncoder()

    async def ask(queue: EncodingQueue) -> None:
        held = await _hold(queue, encoder)
        gone = asyncio.create_task(queue.encode_text("gone"))
        stays = asyncio.create_task(queue.encode_text("stays"))
        await asyncio.sleep(0.02)
        gone.cancel()
        await asyncio.sleep(0.02)
        encoder.gate.set()
        await asyncio.gather(held, stays)
        assert gone.cancelled()

    with queue_of(encoder) as queue:
        asyncio.run(ask(queue))
    assert encoder.texts == ["held", "stays"]


def test_queries_whose_callers_have_gone_make_room_in_a_full_queue() -> None:
    encoder = FakeEncoder()

    async def ask(queue: EncodingQueue) -> None:
        held = await _hold(queue, encoder)
        gone = asyncio.create_task(queue.encode_text("gone"))
        await asyncio.sleep(0.02)
        gone.cancel()
        await asyncio.sleep(0.02)
        follows = asyncio.create_task(queue.encode_text("follows"))
        await asyncio.sleep(0.02)
        encoder.gate.set()
        await asyncio.gather(held, follows)

    with queue_of(encoder, QueueLimits(capacity=1)) as queue:
        asyncio.run(ask(queue))


@pytest.mark.parametrize("broken", [np.full((1, 2), np.nan, np.float32), np.zeros((0, 2), np.float32)])
def test_vectors_that_cannot_be_searched_are_a_failure(broken: NDArray[np.float32]) -> None:
    class Broken(FakeEncoder):
        def embed_texts(self, texts: Sequence[str]) -> TextEmbeddings:
            return TextEmbeddings(broken, (None,) * len(texts), (1,) * len(texts))

    with queue_of(Broken()) as queue, pytest.raises(EncodingFailedError):
        asyncio.run(queue.encode_text("x"))


def test_a_worker_that_dies_is_replaced_and_its_callers_are_told() -> None:
    encoder = FakeEncoder()
    observer = Observer()

    def die(texts: Sequence[str]) -> None:
        if "deadly" in texts:
            raise SystemExit

    encoder.before = die

    async def ask(queue: EncodingQueue) -> None:
        started = time.perf_counter()
        for _ in range(2):
            with pytest.raises(EncodingFailedError):
                await queue.encode_text("deadly")
            await queue.encode_text("harmless")
        assert time.perf_counter() - started < 20

    with queue_of(encoder, QueueLimits(deadline_s=30), observer) as queue:
        asyncio.run(ask(queue))
    assert observer.restarts == 2


def test_an_urgent_query_goes_first() -> None:
    encoder = FakeEncoder()

    async def ask(queue: EncodingQueue) -> None:
        held = await _hold(queue, encoder)
        waiting = [asyncio.create_task(queue.encode_text("patient")) for _ in range(2)]
        await asyncio.sleep(0.02)
        urgent = asyncio.create_task(queue.encode_text("urgent", priority=Priority.PROBE))
        await asyncio.sleep(0.02)
        encoder.gate.set()
        await asyncio.gather(held, urgent, *waiting)

    with queue_of(encoder, QueueLimits(batch_size=1)) as queue:
        asyncio.run(ask(queue))
    assert encoder.texts == ["held", "urgent", "patient", "patient"]


def test_closing_fails_what_waits_finishes_what_runs_and_refuses_the_rest() -> None:
    encoder = FakeEncoder()

    async def ask(queue: EncodingQueue) -> None:
        held = await _hold(queue, encoder)
        waits = asyncio.create_task(queue.encode_text("waits"))
        await asyncio.sleep(0.02)
        closing = asyncio.create_task(asyncio.to_thread(queue.close))
        with pytest.raises(QueueClosedError):
            await waits
        encoder.gate.set()
        await closing
        await held
        with pytest.raises(QueueClosedError):
            await queue.encode_text("late")

    queue = EncodingQueue(encoder)
    asyncio.run(ask(queue))
    assert not [thread for thread in threading.enumerate() if thread in queue._threads]


def test_the_time_since_the_last_success_starts_infinite_and_is_reset_by_a_batch() -> None:
    with queue_of(FakeEncoder()) as queue:
        assert queue.seconds_since_success == float("inf")
        asyncio.run(queue.encode_text("x"))
        assert queue.seconds_since_success < 1
