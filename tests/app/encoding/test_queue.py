"""The encoding queue: order, batching, overload, deadlines, failures, threads, and the end of its worker."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from app.encoding.queue import (
    EncodingFailedError,
    EncodingQueue,
    EncodingTimeoutError,
    Job,
    Kind,
    Priority,
    PriorityQueue,
    QueueClosedError,
    QueueFullError,
    QueueLimits,
)
from app.encoding.threads import ComputeThreads, use_torch_threads
from tests.app.encoding.fakes import FakeEncoder, Observer, queue_of, vector_of
from training.common.host import cores
from training.models.embeddings import TextEmbeddings


async def _hold(queue: EncodingQueue, encoder: FakeEncoder) -> "asyncio.Task[object]":
    """Let the worker get stuck in a batch of one."""
    encoder.gate.clear()
    encoder.started.clear()
    held = asyncio.create_task(queue.encode_text("held"))
    await asyncio.to_thread(encoder.started.wait, 5)
    return held


async def _wait(
    queue: EncodingQueue, *texts: str, priority: Priority = Priority.SEARCH
) -> list["asyncio.Task[Any]"]:
    """Ask for texts that wait behind the batch."""
    waiting = [asyncio.create_task(queue.encode_text(text, priority=priority)) for text in texts]
    await asyncio.sleep(0.02)
    return waiting


def _behind(
    ask: Callable[[EncodingQueue], Awaitable[Sequence[Awaitable[object]]]],
    limits: QueueLimits | None = None,
    observer: Observer | None = None,
) -> FakeEncoder:
    """Ask while the worker is stuck, and wait for what `ask` gives."""
    encoder = FakeEncoder()

    async def run(queue: EncodingQueue) -> None:
        held = await _hold(queue, encoder)
        waiting = await ask(queue)
        encoder.gate.set()
        await asyncio.gather(held, *waiting)

    with queue_of(encoder, limits, observer) as queue:
        asyncio.run(run(queue))
    return encoder


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
    observer = Observer()

    async def ask(queue: EncodingQueue) -> Sequence[Awaitable[object]]:
        waiting = await _wait(queue, *"01234")
        assert queue.depth == 5
        return waiting

    encoder = _behind(ask, QueueLimits(batch_size=3, batch_wait_s=0), observer)
    assert encoder.texts == ["held", "0", "1", "2", "3", "4"]
    assert observer.sizes == [("text", 1), ("text", 3), ("text", 2)]


def test_texts_images_and_regions_never_share_a_batch() -> None:
    image = np.arange(3 * 4 * 4, dtype=np.uint8).reshape(3, 4, 4)

    async def ask(queue: EncodingQueue) -> Sequence[Awaitable[object]]:
        asked = await _wait(queue, "a", "a")

        async def same_image() -> None:
            vectors = await asyncio.gather(*(queue.encode_image(image) for _ in range(3)))
            for vector in vectors:
                np.testing.assert_array_equal(vector.vector, image.mean((1, 2), dtype=np.float32))

        async def regions() -> None:
            np.testing.assert_array_equal(await queue.encode_regions(image), image.mean(2, dtype=np.float32))

        others = [asyncio.create_task(part()) for part in (regions, same_image)]
        await asyncio.sleep(0.02)
        return [*asked, *others]

    assert _behind(ask).batches == [1, 2, 1, 3]


def test_a_lone_query_does_not_wait_for_a_batch() -> None:
    async def ask(queue: EncodingQueue) -> float:
        assert queue.seconds_since_success == float("inf")
        started = time.perf_counter()
        for _ in range(3):
            await queue.encode_text("alone")
        assert queue.seconds_since_success < 1
        return time.perf_counter() - started

    with queue_of(FakeEncoder(), QueueLimits(batch_wait_s=9.0)) as queue:
        assert asyncio.run(ask(queue)) < 8


def test_a_busy_worker_waits_a_moment_for_more() -> None:
    async def ask(queue: EncodingQueue) -> Sequence[Awaitable[object]]:
        first = await _wait(queue, "a", "a")

        async def more() -> None:
            await asyncio.gather(*first)
            (early,) = await _wait(queue, "b")
            await asyncio.gather(early, queue.encode_text("c"))

        return [asyncio.create_task(more())]

    assert _behind(ask, QueueLimits(batch_size=2, batch_wait_s=2.0)).batches == [1, 2, 2]


def test_a_full_queue_refuses_at_once_and_takes_queries_again_later() -> None:
    async def ask(queue: EncodingQueue) -> Sequence[Awaitable[object]]:
        waiting = await _wait(queue, "x", "x")
        started = time.perf_counter()
        with pytest.raises(QueueFullError):
            await queue.encode_text("one too many")
        assert time.perf_counter() - started < 5
        # One whose caller has gone makes room, and is skipped.
        waiting[0].cancel()
        await asyncio.sleep(0.02)
        return [*waiting[1:], *await _wait(queue, "follows")]

    encoder = _behind(ask, QueueLimits(capacity=2))
    assert encoder.texts == ["held", "x", "follows"]


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
    async def ask(queue: EncodingQueue) -> Sequence[Awaitable[object]]:
        patient = await _wait(queue, "patient", "patient")
        return [*patient, *await _wait(queue, "urgent", priority=Priority.PROBE)]

    assert _behind(ask, QueueLimits(batch_size=1)).texts == ["held", "urgent", "patient", "patient"]


def test_closing_fails_what_waits_finishes_what_runs_and_refuses_the_rest() -> None:
    encoder = FakeEncoder()

    async def ask(queue: EncodingQueue) -> None:
        held = await _hold(queue, encoder)
        (waits,) = await _wait(queue, "waits")
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


@pytest.fixture(autouse=True)
def _own_count() -> object:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_passes_side_by_side_share_the_given_number_or_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ComputeThreads.of(6) == ComputeThreads(lanes=4, side_by_side=1, alone=6)
    assert ComputeThreads.of(9) == ComputeThreads(lanes=4, side_by_side=2, alone=9)
    assert ComputeThreads.of(1) == ComputeThreads(lanes=1, side_by_side=1, alone=1)
    assert ComputeThreads.of().lanes == min(cores(), 4)
    monkeypatch.setattr("app.encoding.threads.cores", lambda: 64)
    assert ComputeThreads.of() == ComputeThreads(lanes=4, side_by_side=16, alone=8)


def test_a_number_holds_in_the_encoders_thread_only() -> None:
    torch.set_num_threads(1)
    found: list[int] = []
    for number in (3, None):

        def encode(number: int | None = number) -> None:
            if number is not None:
                use_torch_threads(number)
            found.append(torch.get_num_threads())

        thread = threading.Thread(target=encode)
        thread.start()
        thread.join()
    assert found == [3, 1]


Name = Literal["probe", "search", "upload"]
_PRIORITIES = {"probe": Priority.PROBE, "search": Priority.SEARCH, "upload": Priority.UPLOAD}


def put(
    line: PriorityQueue, *names: Name, kind: Kind = "text", seconds: float = 60.0, times: int = 1
) -> list[Job]:
    return put_jobs(line, *(Job(kind, name, seconds, _PRIORITIES[name]) for name in names * times))


def put_jobs(line: PriorityQueue, *jobs: Job) -> list[Job]:
    """Add jobs, whose deadlines are given in seconds from now."""
    now = time.monotonic()
    for job in jobs:
        job.deadline += now
        line.add(job, now)
    return [*jobs]


def take(line: PriorityQueue, count: int) -> list[object]:
    return [job.payload for job in line.take(count)]


def test_searches_go_before_uploads_that_came_first_and_probes_before_both() -> None:
    line = PriorityQueue(8)
    put(line, "upload", "upload", "search", "probe", "search")
    assert take(line, 16) == ["probe", "search", "search"]
    assert take(line, 16) == ["upload", "upload"]
    assert line.take(16) == []
    assert len(line) == 0
    # Without searches uploads get whole batches.
    put(line, "upload", times=8)
    assert len(line.take(8)) == 8


def test_uploads_are_served_in_part_while_searches_never_end() -> None:
    line = PriorityQueue(64)
    put(line, "upload", times=8)
    served: list[object] = []
    for _ in range(15):
        put(line, "search", times=4)
        served += take(line, 4)
    assert served.count("upload") == 3
    assert served[:17] == ["search"] * 16 + ["upload"]


def test_uploads_fill_only_places_of_their_own() -> None:
    line = PriorityQueue(2)
    put(line, "upload", "upload")
    with pytest.raises(QueueFullError, match="uploads"):
        put(line, "upload")
    put(line, "search", "search", "probe")
    with pytest.raises(QueueFullError, match="searches"):
        put(line, "search")


def test_one_kind_makes_a_batch_and_the_others_keep_their_order() -> None:
    line = PriorityQueue(8)
    first = put(line, "search", kind="image") + put(line, "search") + put(line, "search", kind="image")
    head = line.head()
    assert head is first[0]
    assert line.count(head) == 2
    assert line.take(16) == [first[0], first[2]]
    assert line.take(16) == [first[1]]


def test_queries_past_their_deadline_are_failed_and_forgotten() -> None:
    line = PriorityQueue(8)
    (late,) = put(line, "upload", seconds=0.0)
    (waits,) = put(line, "search")
    line.drop_stale(time.monotonic() + 1)
    with pytest.raises(EncodingTimeoutError):
        late.future.result(0)
    assert line.take(16) == [waits]


def test_the_oldest_text_takes_with_it_those_of_about_its_length() -> None:
    line = PriorityQueue(16)
    put_jobs(line, *(Job("text", "x" * length, 60.0) for length in (50, 10, 90, 48, 12, 53, 88, 11)))
    for lengths in ([50, 48, 53], [10, 11, 12], [90, 88]):
        assert [len(str(text)) for text in take(line, 3)] == lengths
    # Fewer than a batch holds keep their order.
    jobs = put_jobs(line, *(Job("text", "x" * length, 60.0) for length in (9, 1, 5)))
    assert line.take(3) == jobs
    # The latest do not overtake: a batch chooses from twice as many as it holds.
    put_jobs(line, *(Job("text", "x" * length, 60.0) for length in (5, 90, 91, 92, 5)))
    assert [len(str(text)) for text in take(line, 2)] == [5, 90]


def test_no_text_waits_longer_than_those_before_it_take_passes() -> None:
    line = PriorityQueue(64)
    put(line, "search", times=20)
    (odd,) = put_jobs(line, Job("text", "x" * 5_000, 60.0))
    passes = 0
    while odd not in line.take(4):
        passes += 1
        assert passes < 20
        # As many of the usual length come as have gone.
        put(line, "search", times=4)
    assert passes == 5
