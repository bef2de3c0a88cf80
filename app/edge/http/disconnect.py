"""Stop working for callers that have gone."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

Result = TypeVar("Result")


async def unless_disconnected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Await work, but cancel it when the caller closes the connection.

    The body must have been read before, since what arrives after it is taken for the end.

    Raises:
        ClientDisconnect: The caller has gone; nobody will see an answer.
    """
    working = asyncio.create_task(work)
    # Work that fails while it is cancelled has nobody to tell.
    working.add_done_callback(_look_at_error)
    watching = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        working.cancel()
        watching.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _look_at_error(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
