"""Results of threads reach coroutines, together and each its own."""

import asyncio
import threading
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any

import pytest

from app.concurrency.handover import Handover

PATIENCE = 30.0


async def begun(handover: Handover, future: Future[int]) -> asyncio.Task[int]:
    task = asyncio.create_task(handover.result_of(future))
    await asyncio.sleep(0)
    return task


def test_futures_that_end_together_wake_the_loop_once_and_reach_each_its_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handover, futures = Handover(), [Future[int]() for _ in range(16)]
    loop = asyncio.new_event_loop()
    wake, wakes = loop.call_soon_threadsafe, []

    def counted(*args: Any) -> asyncio.Handle:
        wakes.append(args)
        return wake(*args)

    def end() -> None:
        for number, future in enumerate(futures):
            future.set_result(number)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)

    async def run() -> list[int]:
        waiting = asyncio.gather(*(handover.result_of(future) for future in futures))
        await asyncio.sleep(0)
        # They end while the loop cannot run.
        thread = threading.Thread(target=end)
        thread.start()
        thread.join()
        async with asyncio.timeout(PATIENCE):
            return await waiting

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        assert runner.run(run()) == list(range(16))
    assert len(wakes) == 1


def test_errors_reach_their_own_callers_only() -> None:
    handover = Handover()

    def work(number: int) -> int:
        if number == 1:
            raise ValueError("broken")
        if number == 2:
            raise StopIteration
        return number

    async def run() -> list[int | BaseException]:
        with ThreadPoolExecutor(2) as pool:
            waiting = [handover.result_of(pool.submit(work, number)) for number in range(5)]
            async with asyncio.timeout(PATIENCE):
                return await asyncio.gather(*waiting, return_exceptions=True)

    zero, broken, stopped, *rest = asyncio.run(run())
    assert [zero, *rest] == [0, 3, 4]
    assert isinstance(broken, ValueError)
    assert isinstance(stopped, RuntimeError)


def test_a_caller_that_is_cancelled_cancels_work_that_has_not_begun() -> None:
    handover, future = Handover(), Future[int]()

    async def run() -> None:
        task = await begun(handover, future)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert future.cancelled()
    with pytest.raises(CancelledError):
        future.result(0)


def test_a_future_that_is_cancelled_by_others_cancels_its_caller() -> None:
    handover, future = Handover(), Future[int]()

    async def run() -> None:
        task = await begun(handover, future)
        future.cancel()
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())


def test_it_serves_one_loop_after_another_though_work_outlives_the_first() -> None:
    handover, late = Handover(), Future[int]()

    async def leave() -> None:
        await begun(handover, late)

    async def stay(future: Future[int]) -> int:
        async with asyncio.timeout(PATIENCE):
            return await handover.result_of(future)

    asyncio.run(leave())
    assert late.cancelled()
    kept = Future[int]()
    kept.set_running_or_notify_cancel()

    async def leave_running() -> None:
        (await begun(handover, kept)).cancel()

    asyncio.run(leave_running())
    kept.set_result(1)
    with ThreadPoolExecutor(1) as pool:
        assert asyncio.run(stay(pool.submit(int, "7"))) == 7
