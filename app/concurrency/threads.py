"""Threads for work that blocks: each kind of work has a pool of its own."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from app.concurrency.timings import timed
from index.errors import CatalogueBusyError

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
# Requests to the image archive: a person waits for each, and the archive is asked by few.
_ARCHIVE: Final = 4
# Following generations, loading their views, and loading one that is activated.
_BACKGROUND: Final = 3
_LOOK_S: Final = 0.02

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

    async def read(self, work: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """Call what reads the catalogue, the index or files; context variables are carried along."""
        with timed("catalogue"):
            return await asyncio.wrap_future(self._submit(self._reads, work, *args, **kwargs))

    async def write(self, work: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """Call what writes, and may wait for a lock that another process holds.

        Raises:
            CatalogueBusyError: Other writers have held the catalogue for some seconds.
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
        """Call what asks the image archive."""
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
