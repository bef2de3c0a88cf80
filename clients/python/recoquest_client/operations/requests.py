"""Requests that operations are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import httpx2

from recoquest_client.call import LONG_TIMEOUT, Call, idempotency_key

COLLECTION = "/v1/collections/{collection}"
_T = TypeVar("_T")


def behind(call: Call[_T], cursor: str) -> Call[_T]:
    """Return the call of a list for the page behind."""
    return replace(call, params={**call.params, "cursor": cursor})


def get(
    operation: str,
    path: str,
    read: Callable[[httpx2.Response], _T],
    names: Mapping[str, str | int] | None = None,
    params: Mapping[str, Any] | None = None,
) -> Call[_T]:
    """Return a GET, which may be sent again."""
    return Call(operation, "GET", path, read, names or {}, params=params or {}, is_repeatable=True)


def ask(
    operation: str,
    path: str,
    read: Callable[[httpx2.Response], _T],
    names: Mapping[str, str | int],
    body: Any,
) -> Call[_T]:
    """Return a POST that changes nothing."""
    return Call(operation, "POST", path, read, names, body=body, is_repeatable=True)


def begin(
    operation: str,
    path: str,
    read: Callable[[httpx2.Response], _T],
    names: Mapping[str, str | int],
    body: Any = None,
) -> Call[_T]:
    """Return a POST that changes something, with a key."""
    return Call(
        operation,
        "POST",
        path,
        read,
        names,
        body=body,
        headers=idempotency_key(),
        is_repeatable=True,
        timeout=LONG_TIMEOUT,
    )


def condition(etag: str | None) -> dict[str, str]:
    """Return the header of a change that holds only for this ETag, if any."""
    return {} if etag is None else {"If-Match": etag}


def given(**values: Any) -> dict[str, Any]:
    """Return the values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def precondition(noun: str, etag: str | None, only_new: bool) -> dict[str, str]:
    """Return the header of a PUT that holds only for this ETag, or only where there is none.

    A condition holds once: a request with one is not sent again, as its own first attempt would fail it.

    Raises:
        ValueError: Both are given.
    """
    if etag is not None and only_new:
        raise ValueError(f"A new {noun} has no ETag: give either etag or only_new.")
    return {"If-None-Match": "*"} if only_new else condition(etag)
