"""A plot of recall against speed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from tests.benchmarks.search.measuring import Point
from tests.benchmarks.search.runs import Result

_LOWEST: Final = 0.8


def plot(results: Mapping[str, Result], title: str, recall: float, file: Path) -> None:
    """Draw queries a second, one at a time and in batches, against recall; up and to the right is better."""
    lowest = min(point.recall for result in results.values() for point in _points(result))
    figure = Figure(figsize=(12, 5.5), layout="constrained")
    figure.suptitle(title)
    for place, kind in enumerate(("single", "batch"), start=1):
        axes = figure.add_subplot(1, 2, place)
        axes.set_title("one query at a time" if kind == "single" else "in batches")
        for name, result in results.items():
            points = _points(result)
            axes.plot(
                [point.recall for point in points],
                [getattr(point, kind) for point in points],
                marker="D" if name.startswith("recoquest") else "o",
                markersize=9 if name.startswith("recoquest") else 4,
                label=name,
            )
        axes.axvline(recall, color="grey", linewidth=0.8, linestyle="--")
        axes.set_xlim(lowest - 0.005, 1.005)
        axes.set_yscale("log")
        axes.set_xlabel("recall@10")
        axes.set_ylabel("queries a second")
        axes.grid(visible=True, which="both", alpha=0.25)
    lines, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=4, fontsize="small")
    figure.savefig(file, dpi=110)


def _points(result: Result) -> list[Point]:
    """Return the curve from the lowest recall that is drawn, with the point that was measured longest."""
    curve = [result.chosen if point.effort == result.chosen.effort else point for point in result.curve]
    return [point for point in curve if point.recall >= _LOWEST] or curve[-1:]
