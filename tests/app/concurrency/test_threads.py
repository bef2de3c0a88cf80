"""Pools of threads: one that is stuck starves no other, and a slot is free when its thread is done."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import structlog

from app.concurrency import Threads
from index.errors import CatalogueBusyError

# Longer than anything takes on a busy machine; a test that passes waits for none of it.
PATIENCE = 30.0


@contextmanager
def gate() -> Iterator[threading.Event]:
    """An event that work waits for; it is set in the end, so that no thread outlives a test."""
    opened = threading.Event()
    try:
        yield opened
    finally:
        opened.set()


def test_writes_that_wait_for_a_lock_starve_no_read_and_no_check_of_health() -> None:
    async def run(opened: threading.Event) -> None:
        threads = Threads()
        waiting = [asyncio.create_task(threads.write(opened.wait, PATIENCE)) for _ in range(50)]
        await asyncio.sleep(0)
        assert await asyncio.wait_for(threads.read(lambda: 5), PATIENCE / 2) == 5
        assert await asyncio.wait_for(threads.health(lambda: 6), PATIENCE / 2) == 6
        assert await asyncio.wait_for(threads.background(lambda: 7), PATIENCE / 2) == 7
        opened.set()
        assert await asyncio.gather(*waiting) == [True] * 50
        threads.close()

    with gate() as opened:
        asyncio.run(run(opened))


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

    async def run(opened: threading.Event) -> None:
        threads = Threads()
        for _ in range(40):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(threads.write(work, opened), 0.01)
        # Those that had begun are at work still, and no more than there are threads.
        assert 0 < at_work <= 4
        opened.set()
        await asyncio.wait_for(threads.finish(PATIENCE), PATIENCE)
        threads.close()

    with gate() as opened:
        asyncio.run(run(opened))
    assert at_work == 0
    assert most <= 4


def test_no_second_check_of_health_begins_while_one_is_stuck() -> None:
    begun = []

    async def run(opened: threading.Event) -> None:
        threads = Threads()

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
        threads.close()

    with gate() as opened:
        asyncio.run(run(opened))
    assert len(begun) == 2


def test_context_variables_are_carried_into_a_thread() -> None:
    async def run() -> dict[str, object]:
        threads = Threads()
        with structlog.contextvars.bound_contextvars(request_id="abc"):
            found = await threads.read(structlog.contextvars.get_contextvars)
        threads.close()
        return dict(found)

    assert asyncio.run(run()) == {"request_id": "abc"}


def test_a_write_that_waits_long_for_its_thread_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.concurrency._MAX_WAIT_S", 0.1)
    written: list[int] = []

    async def run(opened: threading.Event) -> None:
        threads = Threads()
        at_work = [asyncio.create_task(threads.write(opened.wait, PATIENCE)) for _ in range(3)]
        await asyncio.sleep(0)
        late = asyncio.create_task(threads.write(written.append, 1))
        await asyncio.sleep(0.3)
        opened.set()
        assert await asyncio.gather(*at_work) == [True] * 3
        with pytest.raises(CatalogueBusyError):
            await late
        await threads.write(written.append, 2)
        threads.close()

    with gate() as opened:
        asyncio.run(run(opened))
    assert written == [2]


def test_the_end_waits_for_a_stuck_thread_for_a_while_only() -> None:
    async def run(opened: threading.Event) -> tuple[bool, bool]:
        threads = Threads()
        stuck = asyncio.create_task(threads.read(opened.wait, PATIENCE))
        await asyncio.sleep(0)
        early = await threads.finish(0.1)
        opened.set()
        await stuck
        late = await threads.finish(PATIENCE)
        threads.close()
        return early, late

    with gate() as opened:
        assert asyncio.run(run(opened)) == (False, True)
