"""The encoding queue: order, batching, lanes, overload, deadlines, failures, and the end of its worker."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from structlog.testing import capture_logs

from app.encoding.queue import (
    Batches,
    Encoded,
    EncoderMemoryError,
    EncodingError,
    EncodingFailedError,
    EncodingQueue,
    EncodingTimeoutError,
    InvalidTextError,
    Job,
    Kind,
    Priority,
    PriorityQueue,
    QueueClosedError,
    QueueFullError,
    QueueLimits,
)
from tests.app.encoding.fakes import FakeEncoder, Observer, queue_of, vector_of
from tests.training.imaging.processes.decoding import wait_until
from training.models.text_input import TextEmbeddings

pytestmark = pytest.mark.anyio


async def _hold(queue: EncodingQueue, encoder: FakeEncoder) -> "asyncio.Task[Any]":
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


@asynccontextmanager
async def _behind(
    limits: QueueLimits | None = None, observer: Observer | None = None
) -> AsyncIterator[tuple[EncodingQueue, FakeEncoder, list["asyncio.Task[Any]"]]]:
    """A queue whose worker is stuck until the block ends, and a list of tasks to wait for after that."""
    encoder = FakeEncoder()
    with queue_of(encoder, limits, observer) as queue:
        waiting = [await _hold(queue, encoder)]
        yield queue, encoder, waiting
        encoder.gate.set()
        await asyncio.gather(*waiting)


async def test_each_caller_gets_the_vector_of_its_own_query() -> None:
    encoder, texts = FakeEncoder(), [f"text {n}" for n in range(40)]
    with queue_of(encoder, QueueLimits(batch_size=7, capacity=64)) as queue:
        answers = await asyncio.gather(*(queue.encode_text(text) for text in texts))
    for text, answer in zip(texts, answers, strict=True):
        np.testing.assert_array_equal(answer.vector, vector_of(text))
        assert (answer.truncation, answer.tokens) == (None, len(text))
    assert max(encoder.batches) <= 7
    assert sum(encoder.batches) == 40


async def test_what_waits_is_encoded_together_and_in_order() -> None:
    observer, limits = Observer(), QueueLimits(batch_size=3, batch_wait_s=0)
    async with _behind(limits, observer) as (queue, encoder, waiting):
        waiting += await _wait(queue, *"01234")
        assert queue.depth == 5
    assert encoder.texts == ["held", "0", "1", "2", "3", "4"]
    assert observer.sizes == [("text", 1), ("text", 3), ("text", 2)]


async def test_texts_images_and_regions_never_share_a_batch() -> None:
    image = np.arange(3 * 4 * 4, dtype=np.uint8).reshape(3, 4, 4)
    async with _behind() as (queue, encoder, waiting):
        waiting += await _wait(queue, "a", "a")

        async def same_image() -> None:
            vectors = await asyncio.gather(*(queue.encode_image(image) for _ in range(3)))
            for vector in vectors:
                np.testing.assert_array_equal(vector.vector, image.mean((1, 2), dtype=np.float32))

        async def regions() -> None:
            np.testing.assert_array_equal(await queue.encode_regions(image), image.mean(2, dtype=np.float32))

        waiting += [asyncio.create_task(part()) for part in (regions, same_image)]
        await asyncio.sleep(0.02)
    assert encoder.batches == [1, 2, 1, 3]


async def test_a_lone_query_does_not_wait_for_a_batch() -> None:
    with queue_of(FakeEncoder(), QueueLimits(batch_wait_s=9.0)) as queue:
        assert queue.seconds_since_success == float("inf")
        started = time.perf_counter()
        for _ in range(3):
            await queue.encode_text("alone")
        assert queue.seconds_since_success < 1
        assert time.perf_counter() - started < 8


async def test_a_busy_worker_waits_a_moment_for_more() -> None:
    async with _behind(QueueLimits(batch_size=2, batch_wait_s=2.0)) as (queue, encoder, waiting):
        first = await _wait(queue, "a", "a")

        async def more() -> None:
            await asyncio.gather(*first)
            (early,) = await _wait(queue, "b")
            await asyncio.gather(early, queue.encode_text("c"))

        waiting.append(asyncio.create_task(more()))
    assert encoder.batches == [1, 2, 2]


async def test_a_full_queue_refuses_at_once_and_takes_queries_again_later() -> None:
    async with _behind(QueueLimits(capacity=2)) as (queue, encoder, waiting):
        leaves, stays = await _wait(queue, "x", "x")
        started = time.perf_counter()
        with pytest.raises(QueueFullError):
            await queue.encode_text("one too many")
        assert time.perf_counter() - started < 5
        # One whose caller has gone makes room, and is skipped.
        leaves.cancel()
        await asyncio.sleep(0.02)
        waiting += [stays, *await _wait(queue, "follows")]
    assert encoder.texts == ["held", "x", "follows"]


async def test_an_encoder_that_hangs_keeps_no_caller_past_the_deadline() -> None:
    encoder = FakeEncoder()
    with queue_of(encoder, QueueLimits(deadline_s=1.0)) as queue:
        held = await _hold(queue, encoder)
        started = time.perf_counter()
        with pytest.raises(EncodingTimeoutError):
            await queue.encode_text("waits behind it")
        with pytest.raises(EncodingTimeoutError):
            await held
        assert time.perf_counter() - started < 5
        encoder.gate.set()
        assert (await queue.encode_text("after")).vector.shape == (2,)
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
async def test_vectors_that_cannot_be_searched_are_a_failure(broken: NDArray[np.float32]) -> None:
    class Broken(FakeEncoder):
        def embed_texts(self, texts: Sequence[str]) -> TextEmbeddings:
            return TextEmbeddings(broken, (None,) * len(texts), (1,) * len(texts))

    with queue_of(Broken()) as queue, pytest.raises(EncodingFailedError):
        await queue.encode_text("x")


async def test_a_worker_that_dies_is_replaced_and_its_callers_are_told() -> None:
    encoder, observer = FakeEncoder(), Observer()

    def die(texts: Sequence[str]) -> None:
        if "deadly" in texts:
            raise SystemExit

    encoder.before = die
    with queue_of(encoder, QueueLimits(deadline_s=30), observer) as queue:
        started = time.perf_counter()
        for _ in range(2):
            with pytest.raises(EncodingFailedError):
                await queue.encode_text("deadly")
            await queue.encode_text("harmless")
        assert time.perf_counter() - started < 20
    assert observer.restarts == 2


async def test_an_urgent_query_goes_first() -> None:
    async with _behind(QueueLimits(batch_size=1)) as (queue, encoder, waiting):
        waiting += await _wait(queue, "patient", "patient")
        waiting += await _wait(queue, "urgent", priority=Priority.PROBE)
    assert encoder.texts == ["held", "urgent", "patient", "patient"]


async def test_closing_fails_what_waits_finishes_what_runs_and_refuses_the_rest() -> None:
    encoder = FakeEncoder()
    queue = EncodingQueue(encoder)
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
    assert not [thread for thread in threading.enumerate() if thread in queue._threads]


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
    with pytest.raises(QueueFullError, match="Too many uploads are waiting; try again in a moment"):
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


@pytest.mark.parametrize("position", range(16))
def test_one_bad_query_alone_gets_the_error(position: int) -> None:
    texts = [f"good {number}" for number in range(16)]
    texts[position] = "bad"
    jobs = jobs_of(texts)
    passes = refusing(lambda seen: "bad" in seen, ValueError("a text that nobody may read in a log"))
    Batches(passes, 16, None).encode(jobs)
    for text, job in zip(texts, jobs, strict=True):
        result = outcome(job)
        if text == "bad":
            assert isinstance(result, EncodingFailedError)
            assert "nobody" not in str(result)
        else:
            assert isinstance(result, Encoded)
            np.testing.assert_array_equal(result.vector, vector_of(text))
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
    # A query that is too large by itself gets an error.
    alone = jobs_of(["small", "large"])
    Batches(refusing(lambda seen: "large" in seen, error), 8, None).encode(alone)
    assert [type(outcome(job)) for job in alone] == [Encoded, EncoderMemoryError]
    later = time.monotonic() + 61
    monkeypatch.setattr("app.encoding.queue.time.monotonic", lambda: later)
    assert batches.size == 8


def test_a_failure_keeps_nothing_of_its_pass_alive() -> None:
    jobs = jobs_of(["bad"])
    with capture_logs() as lines:
        Batches(refusing(lambda _: True, ValueError()), 8, None).encode(jobs)
    told = {"event": "encoding failed", "kind": "text", "size": 1, "error": "ValueError"}
    assert {**told, "log_level": "error"} in lines
    error = jobs[0].future.exception(0)
    assert isinstance(error, EncodingError)
    cause = error.__cause__
    assert isinstance(cause, ValueError)
    assert cause.__traceback__ is None


def test_a_vector_that_is_not_finite_fails_its_own_query_only() -> None:
    class Broken(Passes):
        def embed_texts(self, texts: Sequence[str]) -> TextEmbeddings:
            result = super().embed_texts(texts)
            for vector, text in zip(result.vectors, texts, strict=True):
                if text == "bad":
                    vector[0] = np.nan
            return result

    jobs, passes = jobs_of(["good", "bad", "fine"]), Broken()
    with capture_logs() as lines:
        Batches(passes, 8, None).encode(jobs)
    assert {"event": "a vector is not finite", "kind": "text", "log_level": "error"} in lines
    assert [type(outcome(job)) for job in jobs] == [Encoded, EncodingFailedError, Encoded]
    assert passes.count == 1


def test_half_of_a_surrogate_pair_is_refused_before_it_waits() -> None:
    encoder = FakeEncoder()
    with queue_of(encoder, QueueLimits()) as queue:
        with pytest.raises(InvalidTextError):
            queue.submit("text", "broken \ud800")
        assert queue.submit("text", "a whole pair \U0001f600").result(10).vector.shape == (2,)
    assert encoder.batches == [1]


PATIENCE = 30.0


class Gated(FakeEncoder):
    """Passes that note their thread and wait until the gate of their first text opens."""

    def __init__(self) -> None:
        super().__init__()
        self.gates: dict[str, threading.Event] = {}
        self.at_work: set[str] = set()
        self.threads: dict[str, str] = {}
        self.max_at_once = 0
        self._lock = threading.Lock()

    def embed_texts(self, texts: Sequence[str]) -> TextEmbeddings:
        with self._lock:
            self.at_work.add(texts[0])
            self.max_at_once = max(self.max_at_once, len(self.at_work))
            self.threads[texts[0]] = str(threading.get_ident())
        if texts[0] in self.gates:
            assert self.gates[texts[0]].wait(PATIENCE)
        result = super().embed_texts(texts)
        with self._lock:
            self.at_work.remove(texts[0])
        return result


@pytest.fixture
def encoder() -> Gated:
    return Gated()


@pytest.fixture
def queue(encoder: Gated, monkeypatch: pytest.MonkeyPatch) -> Iterator[EncodingQueue]:
    # However slow the machine is, no pass seems to hang.
    monkeypatch.setattr("app.encoding.queue._SLOW_PASS_S", 1000.0)
    made = EncodingQueue(encoder, QueueLimits(batch_size=4), lanes=2)
    yield made
    for gate in encoder.gates.values():
        gate.set()
    made.close()


def wait_until_at_work(encoder: Gated, *texts: str) -> None:
    wait_until(lambda: encoder.at_work >= set(texts))


def hold(encoder: Gated, queue: EncodingQueue, text: str) -> None:
    """Have a pass begin that lasts until its gate opens."""
    encoder.gates[text] = threading.Event()
    queue.submit("text", text)
    wait_until_at_work(encoder, text)


def test_a_few_texts_wait_to_be_encoded_together(encoder: Gated, queue: EncodingQueue) -> None:
    hold(encoder, queue, "first")
    late = queue.submit("text", "late")
    time.sleep(0.2)
    assert not late.done()
    encoder.gates["first"].set()
    late.result(PATIENCE)
    assert encoder.max_at_once == 1
    assert len(set(encoder.threads.values())) == 1


def test_enough_texts_are_encoded_beside_the_pass_in_work(encoder: Gated, queue: EncodingQueue) -> None:
    hold(encoder, queue, "first")
    more = [queue.submit("text", text) for text in ("a", "b")]
    assert [future.result(PATIENCE).vector.shape for future in more] == [(2,), (2,)]
    assert encoder.at_work == {"first"}
    assert encoder.batches == [2]


def test_an_image_and_a_probe_do_not_wait_for_a_pass_of_texts(encoder: Gated, queue: EncodingQueue) -> None:
    hold(encoder, queue, "first")
    image = np.full((3, 4, 4), 7, np.uint8)
    assert queue.submit("image", image).result(PATIENCE).vector.shape == (3,)
    assert queue.submit("text", "probe", priority=Priority.PROBE).result(PATIENCE).vector.shape == (2,)
    assert encoder.at_work == {"first"}


def test_a_text_does_not_wait_for_a_pass_that_seems_to_hang(
    encoder: Gated, queue: EncodingQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.encoding.queue._SLOW_PASS_S", 0.01)
    hold(encoder, queue, "first")
    time.sleep(0.05)
    assert queue.submit("text", "late").result(PATIENCE).vector.shape == (2,)
    assert encoder.at_work == {"first"}


def test_texts_that_came_while_both_lanes_worked_are_not_forgotten(
    encoder: Gated, queue: EncodingQueue
) -> None:
    encoder.gates["a"] = threading.Event()
    hold(encoder, queue, "first")
    concurrent = [queue.submit("text", text) for text in ("a", "b")]
    wait_until_at_work(encoder, "first", "a")
    late = queue.submit("text", "late")
    encoder.gates["first"].set()
    time.sleep(0.2)
    # For one text a second pass next to the other lane's would not pay.
    assert not late.done()
    encoder.gates["a"].set()
    late.result(PATIENCE)
    for future in concurrent:
        future.result(PATIENCE)


def test_a_text_leaves_the_place_behind_a_pass_that_becomes_slow(
    encoder: Gated, queue: EncodingQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(encoder, queue, "first")
    late = queue.submit("text", "late")
    time.sleep(0.1)
    assert not late.done()
    # Nothing else is sent or ends: the pass alone grows old.
    monkeypatch.setattr("app.encoding.queue._SLOW_PASS_S", 0.05)
    late.result(PATIENCE)
    assert "first" in encoder.at_work
