"""A plot of recall against speed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from tests.benchmarks.search.runs import Result

_LOWEST: Final = 0.8


def plot(results: Mapping[str, Result], title: str, recall: float, file: Path) -> None:
    """Draw queries a second, one at a time and in batches, against recall; up and to the right is better."""
    figure = Figure(figsize=(12, 5.5), layout="constrained")
    figure.suptitle(title)
    for place, kind in enumerate(("single", "batch"), start=1):
        axes = figure.add_subplot(1, 2, place)
        axes.set_title("one query at a time" if kind == "single" else "in batches")
        for name, result in results.items():
            points = [point for point in result.curve if point.recall >= _LOWEST] or list(result.curve[-1:])
            axes.plot(
                [point.recall for point in points],
                [getattr(point, kind) for point in points],
                marker="D" if name.startswith("recoquest") else "o",
                markersize=9 if name.startswith("recoquest") else 4,
                label=name,
            )
        axes.axvline(recall, color="grey", linewidth=0.8, linestyle="--")
        axes.set_xlim(_LOWEST, 1.005)
        axes.set_yscale("log")
        axes.set_xlabel("recall@10")
        axes.set_ylabel("queries a second")
        axes.grid(visible=True, which="both", alpha=0.25)
    figure.axes[0].legend(loc="lower left", fontsize="small")
    figure.savefig(file, dpi=110)
