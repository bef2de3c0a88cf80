"""A connection's bytes arrive in their order, in few writes, and none is lost at the end."""

import asyncio

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


def told(*steps: bytes | str, may_close: bool = True) -> list[bytes | str]:
    """What the transport below is told of writes and other calls, one after another."""
    recorded = Recorded()

    async def run() -> None:
        transport = LingeringTransport(recorded, lambda: may_close)
        for step in steps:
            if isinstance(step, bytes):
                transport.write(step)
            else:
                getattr(transport, step)()
        await asyncio.sleep(0)

    asyncio.run(run())
    return recorded.told


LARGE = bytes(1 << 20)


@pytest.mark.parametrize(
    ("steps", "may_close", "expected"),
    [
        ([b"head", b"body", b""], True, [b"headbody"]),
        ([b"head", LARGE, b"tail"], True, [b"head", LARGE, b"tail"]),
        ([b"answer", "close"], True, [b"answer", "close"]),
        ([b"answer", "write_eof"], True, [b"answer", "eof"]),
        ([b"answer", "close"], False, [b"answer"]),
        ([b"answer", "abort"], True, ["abort"]),
        ([b"400", "write_eof", b"100 Continue"], True, [b"400", "eof"]),
    ],
    ids=["joined", "large", "close", "end", "may not close", "abort", "after the end"],
)
def test_bytes_arrive_in_few_writes_and_all_before_the_end_but_for_an_abort(
    steps: list[bytes | str], may_close: bool, expected: list[bytes | str]
) -> None:
    assert told(*steps, may_close=may_close) == expected


def test_no_more_than_a_bound_is_held() -> None:
    parts = told(*[bytes(10_000)] * 100)
    assert sum(len(part) for part in parts) == 1_000_000
    assert max(len(part) for part in parts) <= 64 << 10
