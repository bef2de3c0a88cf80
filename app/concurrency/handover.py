"""Results of threads for coroutines: many come back to the event loop with one wake."""

import asyncio
import threading
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

Result = TypeVar("Result")


class Handover:
    """Gives coroutines what threads have done.

    `asyncio.wrap_future` wakes the event loop for every future. Here futures that end together, as those of
    a batch do, are handed over together.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Pairs that wait to be handed over, by the event loop of their callers.
        self._ended: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Future[Any]]]] = {}

    async def result_of(self, future: Future[Result]) -> Result:
        """Wait for a future's result; a caller that is cancelled cancels the future, if it has not begun."""
        loop = asyncio.get_running_loop()
        awaited: asyncio.Future[Result] = loop.create_future()
        future.add_done_callback(partial(self._note, loop, awaited))
        try:
            return await awaited
        except asyncio.CancelledError:
            future.cancel()
            raise

    def _note(
        self, loop: asyncio.AbstractEventLoop, awaited: asyncio.Future[Any], future: Future[Any]
    ) -> None:
        with self._lock:
            ended = self._ended.setdefault(loop, [])
            ended.append((awaited, future))
            if len(ended) > 1:
                return
        try:
            loop.call_soon_threadsafe(self._hand_over, loop)
        except RuntimeError:
            # The loop is closed, and nobody waits any more.
            self._take(loop)

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        for awaited, future in self._take(loop):
            if not awaited.done():
                _copy(future, awaited)

    def _take(self, loop: asyncio.AbstractEventLoop) -> list[tuple[asyncio.Future[Any], Future[Any]]]:
        with self._lock:
            return self._ended.pop(loop, [])


def _copy(future: Future[Any], awaited: asyncio.Future[Any]) -> None:
    if future.cancelled():
        awaited.cancel()
        return
    error = future.exception()
    if error is None:
        awaited.set_result(future.result())
    elif isinstance(error, StopIteration):
        # asyncio takes it for the end of a coroutine.
        awaited.set_exception(RuntimeError("Work in a thread raised StopIteration."))
    else:
        awaited.set_exception(error)
