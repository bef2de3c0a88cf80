"""A picture of the cosines of pairs and of non-pairs."""

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from training.common.atomic import atomic_file
from training.evaluation.geometry import CosineCounts

_COLOURS = ("#1b6ca8", "#c2571a")
_MARGIN_BINS = 3
_HEADROOM = 1.12


def save_histogram(
    cosines: CosineCounts, path: Path, *, title: str, paired: str = "paired", unpaired: str = "unpaired"
) -> None:
    """Draw both distributions, each with an area of one, into a PNG that appears whole or not at all."""
    figure = Figure(figsize=(7.0, 4.0), dpi=120, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    width = float(cosines.edges[1] - cosines.edges[0])
    sides = (
        (paired, cosines.paired, cosines.paired_mean),
        (unpaired, cosines.unpaired, cosines.unpaired_mean),
    )
    for (name, counts, mean), colour in zip(sides, _COLOURS, strict=True):
        total = int(counts.sum())
        if not total:
            continue
        density = counts / (total * width)
        label = f"{name}: {total:,}, mean {round(mean, 3) + 0.0:.3f}"
        axes.stairs(density, cosines.edges, fill=True, alpha=0.35, color=colour)
        axes.stairs(density, cosines.edges, color=colour, label=label)
        axes.axvline(mean, color=colour, linestyle="--", linewidth=1)
    axes.set(title=title, xlabel="cosine", ylabel="density", xlim=_limits(cosines))
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_ylim(top=_HEADROOM * axes.get_ylim()[1])
    axes.legend(ncols=2, loc="upper center", framealpha=1, edgecolor="none")
    with atomic_file(path) as file:
        canvas.print_figure(file, format="png")


def _limits(cosines: CosineCounts) -> tuple[float, float]:
    """The part of the axis where anything was counted."""
    filled = (cosines.paired + cosines.unpaired).nonzero()[0]
    if not filled.size:
        return -1.0, 1.0
    last = len(cosines.edges) - 1
    return (
        float(cosines.edges[max(0, int(filled[0]) - _MARGIN_BINS)]),
        float(cosines.edges[min(last, int(filled[-1]) + 1 + _MARGIN_BINS)]),
    )
