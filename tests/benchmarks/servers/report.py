"""One table of everything that was measured, and the service and its targets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from tests.benchmarks.search.report import Row, table
from tests.benchmarks.servers.wrk import Load

OURS: Final = "recoquest"
ECHO: Final = "echo"
ENGINE: Final = "engine alone"
MANY: Final = 16
# What the service may take on top of what a bare server and the engine take.
_BESIDE_MS: Final = 1.0
_CPU_MS: Final = 1.2
_RATE: Final = 0.6


@dataclass(frozen=True, slots=True)
class Speed:
    """Searches of some callers at the same time.

    Attributes:
        p50: Median, in milliseconds.
        p99: 99th percentile, in milliseconds.
        rate: Searches a second.
        cpu_ms: Milliseconds of processor time of the server's processes for each.
        client_share: The callers' part of all processor time; none where they are in the server's process.
        refused: The part of the answers that is of no use.
    """

    p50: float
    p99: float
    rate: float
    cpu_ms: float
    client_share: float | None
    refused: float


@dataclass(frozen=True, slots=True)
class Measured:
    """One server in one case.

    Attributes:
        callers: Who asked under load.
        recall: Mean recall@10.
        lowest: The lowest of a query.
        first: Median milliseconds of the first search with each filter.
        one: Of one caller, with filters that were used before.
        many: The same of sixteen.
        memory: Bytes of its processes, pages that they share counted once.
    """

    callers: str
    recall: float | None
    lowest: float | None
    first: float | None
    one: Speed
    many: Speed
    memory: int


# By case, then by server.
Results = Mapping[str, Mapping[str, Measured]]


def speed_of(load: Load, server_cpu: float, *, same_process: bool = False) -> Speed:
    """Put the times of a load and the server's processor time in figures."""
    p50, p99 = np.percentile(load.times, (50, 99)).tolist()
    share = load.processor / max(1e-9, load.processor + server_cpu)
    return Speed(
        p50=p50,
        p99=p99,
        rate=load.good / load.seconds,
        cpu_ms=1000 * server_cpu / max(1, load.good),
        client_share=None if same_process else share,
        refused=load.refused / len(load.times),
    )


def overview(results: Results) -> str:
    """One row for each server in each case; ratios are of the median of one caller and the rate of many."""
    one = ("p50", "p99", "q/s", "CPU ms")
    rows: list[Row] = [
        (
            "case",
            "server",
            "recall",
            "lowest",
            "first",
            *one,
            *(f"{MANY}: {name}" for name in one),
            "callers",
            "their % of CPU",
            "MB",
            "x ours: p50",
            f"x ours: {MANY}, q/s",
            "x echo: p50",
            f"x echo: {MANY}, q/s",
        )
    ]
    for case, by_server in results.items():
        for name, found in by_server.items():
            ratios = [cell for other in (OURS, ECHO) for cell in _ratios(found, by_server.get(other))]
            rows.append(
                (
                    case,
                    name,
                    _cell(found.recall, ".4f"),
                    _cell(found.lowest, ".1f"),
                    _cell(found.first, ".2f"),
                    *_speed_cells(found.one),
                    *_speed_cells(found.many),
                    found.callers,
                    f"{_percent(found.one)}, {_percent(found.many)}",
                    f"{found.memory / 1e6:,.0f}",
                    *ratios,
                )
            )
    return table(rows)


def targets(results: Results) -> str:
    """The service and what it may take: each figure with its limit, and whether it is met."""
    limits = ("p50", f"echo + engine + {_BESIDE_MS:g} ms", "CPU ms", f"at most {_CPU_MS:g}")
    rows: list[Row] = [("", *limits, f"q/s of {MANY}, x echo", f"at least {_RATE:g}", "met")]
    for case, found in results.items():
        if not {OURS, ECHO, ENGINE} <= found.keys():
            continue
        ours, echo, engine = found[OURS], found[ECHO], found[ENGINE]
        allowed = echo.one.p50 + engine.one.p50 + _BESIDE_MS
        cpu = max(ours.one.cpu_ms, ours.many.cpu_ms)
        rate = ours.many.rate / echo.many.rate
        met = [ours.one.p50 <= allowed, cpu <= _CPU_MS, rate >= _RATE]
        cells = [f"{value:.2f}" for value in (ours.one.p50, allowed, cpu, _CPU_MS, rate, _RATE)]
        rows.append((case, *cells, ", ".join("yes" if one else "no" for one in met)))
    return table(rows)


def refusals(results: Results) -> list[str]:
    """A sentence for each load of which some answers were of no use."""
    return [
        f"{name}, {case}: {speed.refused:.1%} of the answers to {callers} refused the search."
        for case, by_server in results.items()
        for name, found in by_server.items()
        for callers, speed in (("one caller", found.one), (f"{MANY} callers", found.many))
        if speed.refused
    ]


def _ratios(found: Measured, other: Measured | None) -> tuple[str, str]:
    """How many times as long and as fast it is as another."""
    if other is None:
        return "-", "-"
    pairs = (found.one.p50, other.one.p50), (found.many.rate, other.many.rate)
    longer, faster = (f"{one / two:.2f}" if two else "-" for one, two in pairs)
    return longer, faster


def _speed_cells(speed: Speed) -> tuple[str, ...]:
    return f"{speed.p50:.2f}", f"{speed.p99:.2f}", f"{speed.rate:,.0f}", f"{speed.cpu_ms:.2f}"


def _percent(speed: Speed) -> str:
    return "-" if speed.client_share is None else f"{100 * speed.client_share:.0f}"


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
