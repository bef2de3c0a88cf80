"""How requests run: timings of their parts, threads for blocking work, and cancellation on disconnect."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, ParamSpec, TypeVar

from starlette.requests import ClientDisconnect, Request

from index.errors import CatalogueBusyError

Part = Literal["queue", "load", "decode", "encode", "search", "catalogue"]
PARTS: Final[tuple[Part, ...]] = ("queue", "load", "decode", "encode", "search", "catalogue")
# Limit for a request with thousands of texts; further ones are left out.
_MOST: Final = 1000
_NS: Final = 1_000_000_000


@dataclass(slots=True)
class Timings:
    """Spans of time of one request, on the clock of `time.time_ns`; parts may run side by side."""

    spans: list[tuple[Part, int, int]] = field(default_factory=list)

    def milliseconds(self) -> dict[Part, float]:
        """Return the time in which each part was at work, once where it was several times at once.

        A search also reads the catalogue: that time isn't counted twice.
        """
        spans_of: dict[Part, list[tuple[int, int]]] = {}
        for part, start, end in self.spans:
            spans_of.setdefault(part, []).append((start, end))
        total = {part: _covered(spans_of[part]) / 1e6 for part in PARTS if part in spans_of}
        if "search" in total and "catalogue" in total:
            total["catalogue"] = _covered(spans_of["search"] + spans_of["catalogue"]) / 1e6 - total["search"]
        return total

    def header(self) -> str:
        """Return the times as the header Server-Timing has them."""
        return ", ".join(f"{part};dur={ms:.2f}" for part, ms in self.milliseconds().items())


_current: ContextVar[Timings | None] = ContextVar("timings", default=None)


@contextmanager
def collected_timings() -> Iterator[Timings]:
    """Collect the times of what is done in the block, also by tasks that it begins."""
    timings = Timings()
    token = _current.set(timings)
    try:
        yield timings
    finally:
        _current.reset(token)


def record(part: Part, seconds: float, *, before_s: float = 0.0) -> None:
    """Note that a part took so long and ended now, or some seconds before."""
    timings = _current.get()
    if timings is not None and len(timings.spans) < _MOST and seconds > 0:
        ended = time.time_ns() - int(before_s * _NS)
        timings.spans.append((part, ended - int(seconds * _NS), ended))


@contextmanager
def timed(part: Part) -> Iterator[None]:
    """Note how long the block takes, if it ends well."""
    started = time.perf_counter()
    yield
    record(part, time.perf_counter() - started)


def record_waited(part: Part, whole_s: float, work_s: float) -> None:
    """Note a wait in a queue and the work behind it, which has just ended; `whole_s` is both together."""
    work_s = min(work_s, whole_s)
    record("queue", whole_s - work_s, before_s=work_s)
    record(part, work_s)


def _covered(spans: list[tuple[int, int]]) -> int:
    """Return how many nanoseconds are in at least one of the spans."""
    total = reached = 0
    for start, end in sorted(spans):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


P = ParamSpec("P")
Result = TypeVar("Result")

# Together no more than the 15 connections of SQLAlchemy's pool, so that no thread waits for another's.
_READS: Final = 8
# SQLite takes one writer at a time; the others wait for its lock.
_WRITES: Final = 3
# A write that has waited so long for its thread is refused: those before it wait for a lock.
_MAX_WAIT_S: Final = 5.0
# Threads for thumbnails: each waits for a decoding process, behind searches and uploads.
_THUMBNAILS: Final = 4
# Requests to the image archive: a person waits for each, and there are few.
_ARCHIVE: Final = 4
# Following generations, loading their views, and loading one that is activated.
_BACKGROUND: Final = 3
_LOOK_S: Final = 0.02
# What took at most so much, all but one of the last times, runs on the event loop.
_QUICK_S: Final = 0.003
_LATELY: Final = 8
# Kinds of work whose times are remembered.
_KINDS: Final = 1000

_LATE: Final = f"Others have been writing for {_MAX_WAIT_S:g} seconds: nothing was written, try again."


class Threads:
    """Pools of fixed size.

    A caller that is cancelled returns at once. Its thread works on, and takes the next work when it is done:
    a pool never does more at a time than it has threads. Work that has not begun is dropped with its caller.
    """

    def __init__(self) -> None:
        self._reads = ThreadPoolExecutor(_READS, "read")
        self._writes = ThreadPoolExecutor(_WRITES, "write")
        self._thumbnails = ThreadPoolExecutor(_THUMBNAILS, "thumbnail")
        self._archive = ThreadPoolExecutor(_ARCHIVE, "archive-write")
        self._background = ThreadPoolExecutor(_BACKGROUND, "background")
        self._health = ThreadPoolExecutor(1, "health")
        self._checking: Future[Any] | None = None
        self._unfinished: set[Future[Any]] = set()
        self._lately: dict[Hashable, deque[float]] = {}
        self._turn = asyncio.Lock()

    async def read(self, work: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """Call what reads the catalogue, the index or files; context variables are carried along."""
        with timed("catalogue"):
            return await asyncio.wrap_future(self._submit(self._reads, work, *args, **kwargs))

    async def read_by_cost(
        self, kind: Hashable, work: Callable[P, Result], *args: P.args, **kwargs: P.kwargs
    ) -> Result:
        """Call what reads files of this machine: on the event loop where work of its kind was quick lately.

        Elsewhere a thread does it, which under load waits up to 5 ms for the interpreter's lock after each
        call of NumPy, FAISS or SQLite.
        """
        if len(self._lately) >= _KINDS:
            self._lately.clear()
        lately = self._lately.setdefault(kind, deque(maxlen=_LATELY))
        with timed("catalogue"):
            if len(lately) == _LATELY and sorted(lately)[-2] <= _QUICK_S:
                async with self._turn:
                    # One a turn of the loop, which accepts and reads connections in between.
                    await asyncio.sleep(0)
                    started = time.perf_counter()
                    result = work(*args, **kwargs)
                    lately.append(time.perf_counter() - started)
                    return result
            clocked = self._submit(self._reads, partial(_clocked, partial(work, *args, **kwargs)))
            result, seconds = await asyncio.wrap_future(clocked)
            lately.append(seconds)
            return result

    async def write(self, work: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """Call what writes, and may wait for a lock that another process holds.

        Raises:
            CatalogueBusyError: Other writers have locked the catalogue for some seconds.
        """
        arrived = time.monotonic()

        def unless_late() -> Result:
            if time.monotonic() - arrived > _MAX_WAIT_S:
                raise CatalogueBusyError(_LATE)
            return work(*args, **kwargs)

        with timed("catalogue"):
            return await asyncio.wrap_future(self._submit(self._writes, unless_late))

    async def thumbnail(self, work: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """Call the maker of a thumbnail."""
        return await asyncio.wrap_future(self._submit(self._thumbnails, work, *args, **kwargs))

    async def archive(self, work: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """Call work that requests the image archive."""
        return await asyncio.wrap_future(self._submit(self._archive, work, *args, **kwargs))

    async def background(self, work: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """Call what no request waits for."""
        return await asyncio.wrap_future(self._submit(self._background, work, *args, **kwargs))

    async def health(self, work: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """Call a check of health, in a thread that nothing else uses.

        Raises:
            TimeoutError: The check before has not come back; no other is begun.
        """
        if self._checking is not None and not self._checking.done():
            raise TimeoutError("The check before has not come back.")
        self._checking = self._submit(self._health, work, *args, **kwargs)
        return await asyncio.wrap_future(self._checking)

    async def finish(self, within_s: float) -> bool:
        """Wait for all work that was begun or is waiting; False: some has not ended in time."""
        end = time.monotonic() + within_s
        while self._unfinished and time.monotonic() < end:
            await asyncio.sleep(_LOOK_S)
        return not self._unfinished

    def close(self) -> None:
        """Take no more work; nothing is waited for."""
        pools = (self._reads, self._writes, self._thumbnails, self._archive, self._background, self._health)
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)

    def _submit(
        self, pool: ThreadPoolExecutor, work: Callable[P, Result], *args: P.args, **kwargs: P.kwargs
    ) -> Future[Result]:
        future = pool.submit(partial(copy_context().run, partial(work, *args, **kwargs)))
        self._unfinished.add(future)
        future.add_done_callback(self._unfinished.discard)
        return future


def _clocked(work: Callable[[], Result]) -> tuple[Result, float]:
    """Call work, and return its processor time as well, in which no waiting for other threads counts."""
    started = time.thread_time()
    return work(), time.thread_time() - started


async def side_by_side(
    works: Sequence[Coroutine[Any, Any, Result]], slots: asyncio.Semaphore
) -> list[Result]:
    """Await works concurrently, as many at once as there are slots; the first error cancels the others."""

    async def one(work: Coroutine[Any, Any, Result]) -> Result:
        async with slots:
            return await work

    try:
        if len(works) == 1:
            return [await one(works[0])]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(work)) for work in works]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    finally:
        for work in works:
            # One that is cancelled before its turn was never awaited, and would warn.
            work.close()
    return [task.result() for task in tasks]


async def unless_disconnected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Await work, but cancel it when the caller closes the connection.

    The body must have been read before, since what arrives after it is taken for the end.

    Raises:
        ClientDisconnect: The caller is gone; nobody would see an answer.
    """
    working = asyncio.create_task(work)
    watching = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        if not working.done():
            # The error of work that fails while it is cancelled is retrieved here.
            working.add_done_callback(lambda task: task.cancelled() or task.exception())
            working.cancel()
        watching.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
