"""Tables of what was measured."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tests.benchmarks.search.measuring import Point
from tests.benchmarks.search.runs import Result

# What a peer is compared with: a library with the view alone, a database with the whole engine.
_VIEW: Final = "recoquest view"
_ENGINE: Final = "recoquest"

Row = Sequence[str]
_Figure = Callable[[Result], float]
_SPEEDS: Final[Mapping[str, _Figure]] = {
    "one at a time": lambda result: result.chosen.single,
    "in batches": lambda result: result.chosen.batch,
}
_COSTS: Final[Mapping[str, _Figure]] = {
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
    """Queries a second one at a time with each filter; recall and hits a query where they fall short."""
    names = list(next(iter(results.values())).filtered)
    rows: list[Row] = [("", *names)]
    rows += [
        (name, *(_filtered_cell(result.filtered[case], recall) for case in names))
        for name, result in results.items()
    ]
    return table(list(zip(*rows, strict=True)))


def ratios(results: Mapping[str, Result], recall: float) -> str:
    """How many times better ours is than each peer, in everything; below 1 it is behind."""
    rows: list[Row] = [("", "beside", *_SPEEDS, *_COSTS, "filtered, worst", "filtered, median")]
    for name, result in results.items():
        beside = _ENGINE if result.carries_payload else _VIEW
        if name.startswith(_ENGINE) or beside not in results:
            continue
        ours = results[beside]
        speeds = [figure(ours) / figure(result) for figure in _SPEEDS.values()]
        costs = [figure(result) / figure(ours) for figure in _COSTS.values()]
        pairs = [(ours.filtered[case], point) for case, point in result.filtered.items()]
        by_filter = sorted(mine.single / theirs.single for mine, theirs in pairs if theirs.recall >= recall)
        few = [f"{by_filter[0]:.2f}", f"{by_filter[len(by_filter) // 2]:.2f}"] if by_filter else ["-", "-"]
        rows.append((name, beside, *(f"{value:.2f}" for value in (*speeds, *costs)), *few))
    return table(rows)


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
    cell = f"{point.single:,.0f}"
    return cell if point.recall >= recall else f"{cell} ({point.recall:.2f}, {point.hits:.1f} hits)"
