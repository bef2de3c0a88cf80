"""A connection's bytes arrive in their order, in few writes, and none is lost at the end."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from app.edge.protocol import LingeringTransport


class Recorded(asyncio.Transport):
    """A transport that notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[bytes | str] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Note bytes."""
        self.told.append(bytes(data))

    def write_eof(self) -> None:
        """Note an end."""
        self.told.append("eof")

    def is_closing(self) -> bool:
        """Whether that was noted."""
        return not {"close", "abort"}.isdisjoint(self.told)

    def close(self) -> None:
        """Note a close."""
        self.told.append("close")

    def abort(self) -> None:
        """Note an abort."""
        self.told.append("abort")


def told(use: Callable[[LingeringTransport], Any], *, may_close: bool = True) -> list[bytes | str]:
    recorded = Recorded()

    async def run() -> None:
        use(LingeringTransport(recorded, lambda: may_close))
        await asyncio.sleep(0)

    asyncio.run(run())
    return recorded.told


def writes(*parts: bytes) -> Callable[[LingeringTransport], None]:
    def use(transport: LingeringTransport) -> None:
        for part in parts:
            transport.write(part)

    return use


def test_head_and_body_are_sent_at_once() -> None:
    assert told(writes(b"head", b"body", b"")) == [b"headbody"]


def test_a_large_part_follows_the_small_ones_before_it_and_is_not_joined() -> None:
    large = bytes(1 << 20)
    assert told(writes(b"head", large, b"tail")) == [b"head", large, b"tail"]


def test_no_more_than_a_bound_is_held() -> None:
    parts = told(writes(*[bytes(10_000)] * 100))
    assert sum(len(part) for part in parts) == 1_000_000
    assert max(len(part) for part in parts) <= 64 << 10


@pytest.mark.parametrize(("name", "said"), [("close", "close"), ("write_eof", "eof")])
def test_all_is_sent_before_the_end(name: str, said: str) -> None:
    def use(transport: LingeringTransport) -> None:
        transport.write(b"answer")
        getattr(transport, name)()

    assert told(use) == [b"answer", said]


def test_a_connection_that_may_not_close_yet_still_sends() -> None:
    def use(transport: LingeringTransport) -> None:
        transport.write(b"answer")
        transport.close()

    assert told(use, may_close=False) == [b"answer"]


def test_what_is_held_is_lost_with_an_abort() -> None:
    def use(transport: LingeringTransport) -> None:
        transport.write(b"answer")
        transport.abort()

    assert told(use) == ["abort"]


def test_nothing_follows_the_end() -> None:
    def use(transport: LingeringTransport) -> None:
        transport.write(b"400")
        transport.write_eof()
        transport.write(b"100 Continue")

    assert told(use) == [b"400", "eof"]
