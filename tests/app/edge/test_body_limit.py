"""Bodies over the limit are refused, by their declared length and by what arrives."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from app.edge.middleware import BodyLimit, BodyTooLargeError

FORM = b"multipart/form-data; boundary=x"


class Reader:
    """An application that reads its body to the end."""

    def __init__(self) -> None:
        self.read: int | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.read = 0
        more = True
        while more:
            message = await receive()
            self.read += len(message["body"])
            more = message["more_body"]


def ask(reader: Reader, chunks: list[bytes], *headers: tuple[bytes, bytes]) -> list[Message]:
    """Send a body in chunks and return what was answered."""
    waiting: Iterator[bytes] = iter(chunks)
    left = len(chunks)
    sent: list[Message] = []

    async def receive() -> dict[str, Any]:
        nonlocal left
        left -= 1
        return {"type": "http.request", "body": next(waiting), "more_body": left > 0}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "path": "/", "headers": list(headers), "state": {}}
    asyncio.run(BodyLimit(reader, max_form_bytes=100, max_other_bytes=10)(scope, receive, send))
    return sent


def test_a_declared_length_over_the_limit_is_refused_before_anything_is_read() -> None:
    reader = Reader()
    sent = ask(reader, [b"x" * 11], (b"content-length", b"11"))
    assert sent[0]["status"] == 413
    assert (b"connection", b"close") in sent[0]["headers"]
    assert reader.read is None


@pytest.mark.parametrize("headers", [[], [(b"content-length", b"5")], [(b"content-length", b"many")]])
def test_what_arrives_is_counted_whatever_was_declared(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(BodyTooLargeError) as caught:
        ask(Reader(), [b"x" * 6, b"x" * 5], *headers)
    assert caught.value.status_code == 413


def test_a_body_of_exactly_the_limit_passes() -> None:
    reader = Reader()
    assert ask(reader, [b"x" * 4, b"x" * 6], (b"content-length", b"10")) == []
    assert reader.read == 10


def test_forms_have_a_limit_of_their_own() -> None:
    reader = Reader()
    ask(reader, [b"x" * 100], (b"content-type", FORM), (b"content-length", b"100"))
    assert reader.read == 100
    sent = ask(reader, [b""], (b"content-type", FORM), (b"content-length", b"101"))
    assert sent[0]["status"] == 413


def test_a_declared_length_of_thousands_of_digits_is_refused() -> None:
    reader = Reader()
    sent = ask(reader, [b"{}"], (b"content-length", b"9" * 5000))
    assert sent[0]["status"] == 413
    assert reader.read is None
