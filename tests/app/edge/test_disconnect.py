"""Work for a caller that has gone is cancelled."""

import asyncio
import gc
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request

from app.concurrency import unless_disconnected


def request_of(*messages: dict[str, Any]) -> Request:
    """A request whose connection says these things and then nothing more."""
    waiting = list(messages)

    async def receive() -> dict[str, Any]:
        if waiting:
            return waiting.pop(0)
        await asyncio.Event().wait()
        raise AssertionError

    return Request({"type": "http"}, receive)


def test_work_is_cancelled_when_the_caller_goes() -> None:
    cancelled = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def run() -> None:
        with pytest.raises(ClientDisconnect):
            await unless_disconnected(request_of({"type": "http.disconnect"}), work())
        await asyncio.sleep(0)

    asyncio.run(run())
    assert cancelled


def test_work_that_fails_while_it_is_cancelled_leaves_no_error_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise KeyError("x")

    async def run() -> None:
        with pytest.raises(ClientDisconnect):
            await unless_disconnected(request_of({"type": "http.disconnect"}), work())
        await asyncio.sleep(0)
        gc.collect()

    asyncio.run(run())
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
