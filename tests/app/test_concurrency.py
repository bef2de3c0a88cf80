"""Times of the parts of a request, pools of threads, and work for a caller that has gone."""

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
import structlog
from starlette.requests import ClientDisconnect, Request

from app.concurrency import (
    Part,
    Threads,
    Timings,
    collected_timings,
    record,
    record_waited,
    timed,
    unless_disconnected,
)
from index.errors import CatalogueBusyError

MS = 1_000_000
Result = TypeVar("Result")


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        (
            [("decode", 0, 10), ("decode", 5, 20), ("decode", 30, 31), ("encode", 10, 12)],
            {"decode": 21.0, "encode": 2.0},
        ),
        # The time of a search is not counted again as the catalogue's.
        ([("catalogue", 0, 4), ("catalogue", 10, 20), ("search", 11, 19)], {"search": 8.0, "catalogue": 6.0}),
    ],
)
def test_parts_that_run_side_by_side_count_once(
    spans: list[tuple[Part, int, int]], expected: dict[str, float]
) -> None:
    timings = Timings([(name, begin * MS, end * MS) for name, begin, end in spans])
    assert timings.milliseconds() == expected


def test_a_wait_ends_where_the_work_begins() -> None:
    with collected_timings() as timings:
        record_waited("encode", 0.5, 0.2)
    (queue, start, middle), (encode, begin, end) = timings.spans
    assert (queue, encode) == ("queue", "encode")
    assert middle - start == pytest.approx(300 * MS, abs=MS)
    assert end - begin == pytest.approx(200 * MS, abs=MS)
    assert abs(begin - middle) < 50 * MS


def test_work_longer_than_the_whole_leaves_no_wait() -> None:
    with collected_timings() as timings:
        record_waited("decode", 0.1, 0.3)
    assert [name for name, _, _ in timings.spans] == ["decode"]
    assert timings.milliseconds()["decode"] == pytest.approx(100, abs=1)


def test_tasks_that_a_block_begins_are_collected_and_nothing_outside_is() -> None:
    async def work() -> None:
        with timed("catalogue"):
            await asyncio.sleep(0.01)

    async def run() -> Timings:
        with collected_timings() as timings:
            await asyncio.gather(asyncio.create_task(work()), work())
        await work()
        return timings

    assert len(asyncio.run(run()).spans) == 2
    record("search", 1.0)


def test_so_many_parts_are_kept_and_no_more() -> None:
    with collected_timings() as timings:
        for _ in range(2000):
            record("encode", 0.001)
    assert len(timings.spans) == 1000
    assert timings.spans[0][2] <= time.time_ns()


# Longer than anything takes on a busy machine; a test that passes waits for none of it.
PATIENCE = 30.0


def run_gated(run: Callable[[Threads, threading.Event], Coroutine[Any, Any, Result]]) -> Result:
    """Run with threads, and with an event that work waits for; no thread outlives it."""
    opened = threading.Event()

    async def whole() -> Result:
        threads = Threads()
        result = await run(threads, opened)
        threads.close()
        return result

    try:
        return asyncio.run(whole())
    finally:
        opened.set()


def test_writes_that_wait_for_a_lock_starve_no_read_and_no_check_of_health() -> None:
    async def run(threads: Threads, opened: threading.Event) -> None:
        waiting = [asyncio.create_task(threads.write(opened.wait, PATIENCE)) for _ in range(50)]
        await asyncio.sleep(0)
        assert await asyncio.wait_for(threads.read(lambda: 5), PATIENCE / 2) == 5
        assert await asyncio.wait_for(threads.health(lambda: 6), PATIENCE / 2) == 6
        assert await asyncio.wait_for(threads.background(lambda: 7), PATIENCE / 2) == 7
        opened.set()
        assert await asyncio.gather(*waiting) == [True] * 50

    run_gated(run)


def test_a_cancelled_caller_returns_at_once_and_its_thread_takes_nothing_before_it_is_done() -> None:
    at_work, most = 0, 0
    lock = threading.Lock()

    def work(opened: threading.Event) -> None:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        opened.wait(PATIENCE)
        with lock:
            at_work -= 1

    async def run(threads: Threads, opened: threading.Event) -> None:
        for _ in range(40):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(threads.write(work, opened), 0.01)
        # Those that had begun are at work still, and no more than there are threads.
        assert 0 < at_work <= 3
        opened.set()
        await asyncio.wait_for(threads.finish(PATIENCE), PATIENCE)

    run_gated(run)
    assert at_work == 0
    assert most <= 4


def test_no_second_check_of_health_begins_while_one_is_stuck() -> None:
    begun = []

    async def run(threads: Threads, opened: threading.Event) -> None:
        def check() -> None:
            begun.append(True)
            opened.wait(PATIENCE)

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(threads.health(check), 0.05)
        for _ in range(5):
            with pytest.raises(TimeoutError, match="has not come back"):
                await threads.health(check)
        opened.set()
        await threads.finish(PATIENCE)
        await threads.health(check)

    run_gated(run)
    assert len(begun) == 2


def test_context_variables_are_carried_into_a_thread() -> None:
    async def run(threads: Threads, _: threading.Event) -> dict[str, object]:
        with structlog.contextvars.bound_contextvars(request_id="abc"):
            return dict(await threads.read(structlog.contextvars.get_contextvars))

    assert run_gated(run) == {"request_id": "abc"}


def test_a_write_that_waits_long_for_its_thread_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.concurrency._MAX_WAIT_S", 0.1)
    written: list[int] = []

    async def run(threads: Threads, opened: threading.Event) -> None:
        at_work = [asyncio.create_task(threads.write(opened.wait, PATIENCE)) for _ in range(3)]
        await asyncio.sleep(0)
        late = asyncio.create_task(threads.write(written.append, 1))
        await asyncio.sleep(0.3)
        opened.set()
        assert await asyncio.gather(*at_work) == [True] * 3
        with pytest.raises(CatalogueBusyError):
            await late
        await threads.write(written.append, 2)

    run_gated(run)
    assert written == [2]


def test_the_end_waits_for_a_stuck_thread_for_a_while_only() -> None:
    async def run(threads: Threads, opened: threading.Event) -> tuple[bool, bool]:
        stuck = asyncio.create_task(threads.read(opened.wait, PATIENCE))
        await asyncio.sleep(0)
        early = await threads.finish(0.1)
        opened.set()
        await stuck
        return early, await threads.finish(PATIENCE)

    assert run_gated(run) == (False, True)


def request_of(*messages: dict[str, Any]) -> Request:
    """A request whose connection says these things and then nothing more."""
    waiting = list(messages)

    async def receive() -> dict[str, Any]:
        if waiting:
            return waiting.pop(0)
        await asyncio.Event().wait()
        raise AssertionError

    return Request({"type": "http"}, receive)


@pytest.mark.parametrize("fails", [False, True])
def test_work_is_cancelled_when_the_caller_goes_and_leaves_no_error_in_the_log(
    caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    cancelled = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            if fails:
                raise KeyError("x") from None
            raise

    async def run() -> None:
        with pytest.raises(ClientDisconnect):
            await unless_disconnected(request_of({"type": "http.disconnect"}), work())
        await asyncio.sleep(0)
        gc.collect()

    asyncio.run(run())
    assert cancelled
    assert not caplog.records


def test_work_is_finished_for_a_caller_that_stays() -> None:
    async def work() -> int:
        await asyncio.sleep(0.01)
        return 5

    empty = {"type": "http.request", "body": b"", "more_body": False}
    assert asyncio.run(unless_disconnected(request_of(empty), work())) == 5


def test_an_error_of_the_work_reaches_the_route_and_nothing_is_left_running() -> None:
    async def work() -> None:
        raise KeyError("x")

    async def run() -> int:
        with pytest.raises(KeyError):
            await unless_disconnected(request_of(), work())
        await asyncio.sleep(0)
        return len(asyncio.all_tasks())

    assert asyncio.run(run()) == 1


def work_of(seconds: float) -> int:
    """Keep the processor busy, and return the thread that did."""
    ended = time.thread_time() + seconds
    while time.thread_time() < ended:
        pass
    return threading.get_ident()


def test_work_of_a_kind_that_was_quick_lately_runs_on_the_event_loop() -> None:
    async def run(threads: Threads, _: threading.Event) -> None:
        async def places(kind: str, *seconds: float) -> list[bool]:
            loop = threading.get_ident()
            return [await threads.read_by_cost(kind, work_of, each) == loop for each in seconds]

        assert await places("quick", *[0.0] * 9) == [False] * 8 + [True]
        assert await places("slow", *[0.01] * 20) == [False] * 20
        # One slow call among eight may be an accident; after two, threads take it until eight were quick.
        assert await places("quick", 0.01, 0.0, 0.01, 0.0) == [True, True, True, False]
        assert not any(await places("quick", *[0.0] * 4))
        assert (await places("quick", *[0.0] * 4))[-1]

    run_gated(run)


def test_times_of_so_many_kinds_are_remembered_and_no_more() -> None:
    async def run(threads: Threads, _: threading.Event) -> None:
        for kind in range(3000):
            await threads.read_by_cost(kind, int)
        assert len(threads._lately) <= 1000

    run_gated(run)
