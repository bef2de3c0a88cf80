"""A zip file that is sent while it is made."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import structlog
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from app.edge.admission import Budget, BusyError
from training.common.errors import RecoquestError

_PIECE: Final = 256 << 10
# Tries at room for a picture that other callers have not left yet.
_TRIES: Final = 10
_PAUSE_S: Final = 0.5

_log = structlog.stdlib.get_logger(__name__)


class ZipResponse(StreamingResponse):
    """A file on its way; one that cannot be finished breaks the connection, which tells the caller so."""

    def __init__(self, first: bytes, rest: AsyncGenerator[bytes]) -> None:
        self._rest = rest
        headers = {
            "Content-Disposition": 'attachment; filename="teaching-file.zip"',
            "Cache-Control": "no-store",
        }
        super().__init__(_whole(first, rest), media_type="application/zip", headers=headers)

    @classmethod
    async def begin(cls, contents: AsyncGenerator[bytes], budget: Budget) -> "ZipResponse":
        """Make the first bytes, so that what fails at once is answered as a problem.

        Args:
            contents: Bytes of the file, as they are made.
            budget: Bytes that callers may leave untaken.

        Raises:
            RecoquestError: The first bytes cannot be made now.
            BusyError: Other callers have not taken theirs.
        """
        pieces = _within(contents, budget)
        return cls(await anext(pieces), pieces)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file; its making ends also when the caller goes away."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._rest.aclose()


async def _within(contents: AsyncGenerator[bytes], budget: Budget) -> AsyncGenerator[bytes]:
    """Yield small pieces; more is made when they are taken."""
    async with aclosing(contents):
        async for content in contents:
            await _reserve(budget, len(content))
            try:
                for start in range(0, len(content), _PIECE):
                    yield content[start : start + _PIECE]
            finally:
                budget.free(len(content))


async def _reserve(budget: Budget, size: int) -> None:
    for _ in range(_TRIES):
        if budget.reserve(size):
            return
        await asyncio.sleep(_PAUSE_S)
    raise BusyError


async def _whole(first: bytes, rest: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    yield first
    try:
        async for piece in rest:
            yield piece
    except (RecoquestError, BusyError) as error:
        _log.warning("a teaching file was not finished", reason=type(error).__name__)
        raise ClientDisconnect from None
