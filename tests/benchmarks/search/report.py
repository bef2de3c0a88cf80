"""Tables of what was measured."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Final

from tests.benchmarks.search.measuring import UNFILTERED, Point
from tests.benchmarks.search.runs import Result

# What a peer is compared with: a library with the view alone, a database with the whole engine.
_VIEW: Final = "recoquest view"
_ENGINE: Final = "recoquest"

Row = Sequence[str]
_FILTERED: Final = ("first with a filter: worst, median", "later: worst, median")
_SPEEDS: Final[Mapping[str, Callable[[Point], float]]] = {
    "one at a time": lambda point: point.single,
    "in batches": lambda point: point.batch,
}
_COSTS: Final[Mapping[str, Callable[[Result], float]]] = {
    "build": lambda result: result.build_seconds,
    "memory": lambda result: result.resident_bytes,
    "disk": lambda result: result.disk_bytes,
    "start": lambda result: result.start_seconds,
}


def overview(results: Mapping[str, Result], count: int, recall: float) -> str:
    """One row a contestant: recall, speed, build, memory, disk and start."""
    rows: list[Row] = [
        (
            "",
            "recall@10",
            "effort",
            "one at a time, q/s",
            "in batches, q/s",
            "build, s",
            "memory, MB",
            "disk, bytes a vector",
            "start, s",
        )
    ]
    for name, result in results.items():
        chosen = result.chosen
        rows.append(
            (
                name,
                f"{chosen.recall:.3f}" + ("" if chosen.recall >= recall else " (its best)"),
                f"{chosen.effort or '-'}",
                f"{chosen.single:,.0f}",
                f"{chosen.batch:,.0f}",
                f"{result.build_seconds:,.1f}",
                f"{result.resident_bytes / 1e6:,.0f}",
                f"{result.disk_bytes / count:,.0f}",
                f"{result.start_seconds:.2f}",
            )
        )
    return table(rows)


def filtered(results: Mapping[str, Result], recall: float) -> str:
    """Queries a second one at a time with filters: each for the first time, then each once more and again.

    Recall and hits a query stand beside where they fall short.
    """
    names = [name for name in _names(results) if not name.endswith("images")]
    rows: list[Row] = [("", *names)]
    rows += [
        (name, *(_filtered_cell(result.cases[case], recall) for case in names))
        for name, result in results.items()
        if result.cases
    ]
    return table(list(zip(*rows, strict=True)))


def cases(result: Result) -> str:
    """All cases of one contestant: recall, the lowest of a query, speeds and the slowest searches."""
    columns = ("recall@10", "lowest", "first, q/s", "later, q/s", "p99, ms", "longest, ms")
    rows: list[Row] = [("", *columns)]
    for name, point in {UNFILTERED: result.curve[0], **result.cases}.items():
        p99, longest = (1000 * seconds for seconds in point.slowest)
        first = f"{point.first:,.0f}" if point.first else "-"
        speeds = (first, f"{point.single:,.0f}", f"{p99:.2f}", f"{longest:.1f}")
        rows.append((name, f"{point.recall:.4f}", f"{point.lowest:.1f}", *speeds))
    return table(rows)


def _names(results: Mapping[str, Result]) -> list[str]:
    return list(dict.fromkeys(case for result in results.values() for case in result.cases))


def compared_with(name: str, carries_payload: bool) -> str | None:
    """Return which of ours a peer is compared with; None for one of ours."""
    if name.startswith(_ENGINE):
        return None
    return _ENGINE if carries_payload else _VIEW


def ratios(results: Mapping[str, Result], recall: float) -> str:
    """How many times better ours is than each peer, in everything; below 1 it is behind."""
    rows: list[Row] = [("", "beside", *_SPEEDS, *_COSTS, *_FILTERED)]
    for name, result, beside in _pairs(results):
        ours = results[beside]
        speeds = [figure(ours.chosen) / figure(result.chosen) for figure in _SPEEDS.values()]
        costs = [figure(result) / figure(ours) for figure in _COSTS.values()]
        enough = {case: point for case, point in result.cases.items() if point.recall >= recall}
        few = _worst_and_median(ours, enough)
        rows.append((name, beside, *(f"{value:.2f}" for value in (*speeds, *costs)), *few))
    return table(rows)


def ratios_at_our_recall(results: Mapping[str, Result]) -> str:
    """How many times as fast ours is where a peer finds no less, and with how many filters it does."""
    rows: list[Row] = [("", "beside", *_SPEEDS, *_FILTERED, "cases")]
    for name, result, beside in _pairs(results):
        ours, as_sure = results[beside], dict(result.as_sure)
        plain = as_sure.pop(UNFILTERED, None)
        speeds = ["-"] * len(_SPEEDS)
        if plain is not None:
            speeds = [f"{figure(ours.chosen) / figure(plain):.2f}" for figure in _SPEEDS.values()]
        few = _worst_and_median(ours, as_sure)
        texts = [case for case in ours.cases if not case.endswith("images")]
        rows.append((name, beside, *speeds, *few, f"{len(as_sure)} of {len(texts)}"))
    return table(rows)


def _pairs(results: Mapping[str, Result]) -> Iterator[tuple[str, Result, str]]:
    """Give each peer, and which of ours it is compared with."""
    for name, result in results.items():
        beside = compared_with(name, result.carries_payload)
        if beside is not None and beside in results:
            yield name, result, beside


def _worst_and_median(ours: Result, filtered: Mapping[str, Point]) -> Iterator[str]:
    """Give how many times as fast ours is with filters used for the first time, and with the same later."""
    speeds: list[Callable[[Point], float]] = [lambda point: point.first, lambda point: point.single]
    for speed in speeds:
        by_case = [speed(ours.cases[case]) / speed(point) for case, point in filtered.items()]
        yield f"{min(by_case):.2f}, {median(by_case):.2f}" if by_case else "-"


def table(rows: Sequence[Row]) -> str:
    """Set rows as a Markdown table, the first of them as its head, the first column to the left."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]

    def line(row: Row) -> str:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        return f"| {' | '.join(cells)} |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([line(rows[0]), line(rule), *map(line, rows[1:])])


def _filtered_cell(point: Point, recall: float) -> str:
    cell = f"{point.first:,.0f}, {point.single:,.0f}"
    return cell if point.recall >= recall else f"{cell} ({point.recall:.2f}, {point.hits:.1f} hits)"
