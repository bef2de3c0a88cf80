"""Times of the parts of a request: what it waited for, loaded, decoded, encoded, searched and read."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, Literal

Part = Literal["queue", "load", "decode", "encode", "search", "catalogue"]
PARTS: Final[tuple[Part, ...]] = ("queue", "load", "decode", "encode", "search", "catalogue")
# Of a request with thousands of texts; further ones are not told.
_MOST: Final = 1000
_NS: Final = 1_000_000_000


@dataclass(slots=True)
class Timings:
    """Spans of time of one request, on the clock of `time.time_ns`; parts may run side by side."""

    spans: list[tuple[Part, int, int]] = field(default_factory=list)

    def milliseconds(self) -> dict[Part, float]:
        """Return the time in which each part was at work, once where it was several times at once.

        A search reads the catalogue, too: its time is not counted again there.
        """
        found = {part: _merged([(a, b) for name, a, b in self.spans if name == part]) for part in PARTS}
        total = {part: _length(spans) for part, spans in found.items() if spans}
        if "search" in total and "catalogue" in total:
            both = _length(_merged([*found["search"], *found["catalogue"]]))
            total["catalogue"] = both - total["search"]
        return {part: length / 1e6 for part, length in total.items()}


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
    """Note a wait in a queue and the work behind it, which has just ended.

    Args:
        part: The part that the work is of.
        whole_s: Seconds of both.
        work_s: Seconds of the work.
    """
    work_s = min(work_s, whole_s)
    record("queue", whole_s - work_s, before_s=work_s)
    record(part, work_s)


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _length(spans: list[tuple[int, int]]) -> int:
    return sum(end - start for start, end in spans)
