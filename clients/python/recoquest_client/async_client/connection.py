"""Requests of the client on asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import httpx2

from recoquest_client import operations
from recoquest_client.call import Call, client_headers
from recoquest_client.retry import Attempts, Retry

if TYPE_CHECKING:
    from typing_extensions import Self


_T = TypeVar("_T")


class AsyncConnection:
    """Sends calls to one service, again where that may help."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = 60.0,
        retry: Retry | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """Set up; nothing is sent yet.

        Args:
            url: Address of the service, such as `http://127.0.0.1:8000`.
            key: API key or token; None: that of the environment, `RECOQUEST_KEY`, if any.
            timeout: Seconds to wait for a part of an answer.
            retry: How often and when requests are sent again.
            transport: Sends requests; None: over the network.
        """
        self._timeout = timeout
        self._retry = retry or Retry()
        self._http = httpx2.AsyncClient(base_url=url, headers=client_headers(key), transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _pages(self, call: Call[_T], cursor_of: Callable[[_T], str | None]) -> AsyncIterator[_T]:
        cursor: str | None = ""
        while cursor is not None:
            page = await self._send(operations.behind(call, cursor) if cursor else call)
            yield page
            cursor = cursor_of(page)

    async def _send(self, call: Call[_T]) -> _T:
        attempts = Attempts(call, self._retry)
        while True:
            try:
                with call.opened() as files:
                    request = self._http.build_request(**call.arguments(files, self._timeout))
                    response = await self._http.send(request)
            except httpx2.TransportError as error:
                pause: float | None = attempts.after_error(error)
            else:
                pause = attempts.after_answer(response)
                if pause is None:
                    return call.result(response)
            assert pause is not None
            await asyncio.sleep(pause)
