"""Geometry of an embedding: alignment, uniformity, and histograms of the cosines of pairs and non-pairs."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from training.common.atomic import atomic_file
from training.evaluation.retrieval import Matches, row_chunks
from training.evaluation.similarity import Vectors, similarity

_BINS = 200
_COLOURS = ("#1b6ca8", "#c2571a")
_MARGIN_BINS = 3
_HEADROOM = 1.12


@dataclass(frozen=True)
class CosineCounts:
    """Histograms of the cosines of matching and other pairs, in equal bins from -1 to 1.

    `edges` (bins + 1,) are the limits of the bins.
    """

    edges: NDArray[np.float64]
    paired: NDArray[np.int64]
    unpaired: NDArray[np.int64]
    paired_mean: float
    unpaired_mean: float


@dataclass(frozen=True, slots=True)
class Geometry:
    """Alignment and uniformity on the unit sphere (Wang and Isola, 2020); lower is better for both.

    Attributes:
        alignment: Mean squared distance of matching images and texts.
        image_uniformity: Log of the mean of exp(-2 d^2) over pairs of different images; None for one image.
        text_uniformity: The same for texts.
        paired_cosine: Mean cosine of matching images and texts.
        unpaired_cosine: Mean cosine of all others; None if every text matches every image.
    """

    alignment: float
    image_uniformity: float | None
    text_uniformity: float | None
    paired_cosine: float
    unpaired_cosine: float | None


def geometry(image_vectors: Vectors, text_vectors: Vectors, relevant: Matches) -> Geometry:
    """Alignment, uniformity and mean cosines of L2-normalised images (N, D) and texts (M, D).

    `relevant` has the rows of all images of each text.

    Raises:
        ValueError: Nothing matches.
    """
    cosines = text_image_cosines(image_vectors, text_vectors, relevant)
    if not cosines.paired.sum():
        raise ValueError("no text belongs to any image")
    return Geometry(
        # |u - v|^2 = 2 - 2 <u, v> for unit vectors.
        alignment=2 - 2 * cosines.paired_mean,
        image_uniformity=uniformity(image_vectors),
        text_uniformity=uniformity(text_vectors),
        paired_cosine=cosines.paired_mean,
        unpaired_cosine=cosines.unpaired_mean if cosines.unpaired.sum() else None,
    )


def uniformity(vectors: Vectors) -> float | None:
    """Log of the mean of exp(-2 d^2) over all pairs of different rows (Wang and Isola, 2020, equation 2)."""
    count = len(vectors)
    if count < 2:
        return None
    total = 0.0
    for start, stop in row_chunks(count, count):
        cosines = similarity(vectors[start:stop], vectors).astype(np.float64)
        kernel = np.exp(4 * (cosines - 1))
        kernel[np.arange(stop - start), np.arange(start, stop)] = 0
        total += float(kernel.sum())
    return float(np.log(total / (count * (count - 1))))


def text_image_cosines(image_vectors: Vectors, text_vectors: Vectors, relevant: Matches) -> CosineCounts:
    """Cosines of every text with every image, counted separately for matches."""

    def chunks() -> Iterator[tuple[Vectors, NDArray[np.bool_], NDArray[np.bool_]]]:
        for start, stop in row_chunks(len(text_vectors), len(image_vectors)):
            scores = similarity(text_vectors[start:stop], image_vectors)
            paired = np.zeros(scores.shape, dtype=bool)
            for position, row in enumerate(range(start, stop)):
                paired[position, list(relevant[row])] = True
            yield scores, paired, ~paired

    return _counted(chunks())


def label_cosines(vectors: Vectors, labels: Sequence[Collection[str]]) -> CosineCounts:
    """Cosines of all pairs of labelled images, counted separately for pairs that share a label."""
    rows = [row for row, names in enumerate(labels) if names]
    column = {
        name: number for number, name in enumerate(sorted({name for names in labels for name in names}))
    }
    marks = np.zeros((len(rows), len(column)), dtype=np.float32)
    for position, row in enumerate(rows):
        marks[position, [column[name] for name in labels[row]]] = 1
    labelled = vectors[rows]

    def chunks() -> Iterator[tuple[Vectors, NDArray[np.bool_], NDArray[np.bool_]]]:
        for start, stop in row_chunks(len(rows), len(rows)):
            sharing = (marks[start:stop] @ marks.T) > 0
            later = np.arange(len(rows))[None, :] > np.arange(start, stop)[:, None]
            yield similarity(labelled[start:stop], labelled), sharing & later, ~sharing & later

    return _counted(chunks())


def _counted(chunks: Iterator[tuple[Vectors, NDArray[np.bool_], NDArray[np.bool_]]]) -> CosineCounts:
    edges = np.linspace(-1.0, 1.0, _BINS + 1)
    counts = np.zeros((2, _BINS), dtype=np.int64)
    sums = np.zeros(2)
    for scores, *masks in chunks:
        for side, mask in enumerate(masks):
            chosen = scores[mask].clip(-1.0, 1.0)
            counts[side] += np.histogram(chosen, edges)[0]
            sums[side] += float(chosen.sum(dtype=np.float64))
    means = sums / np.maximum(1, counts.sum(axis=1))
    return CosineCounts(edges, counts[0], counts[1], float(means[0]), float(means[1]))


def save_histogram(
    cosines: CosineCounts, path: Path, *, title: str, paired: str = "paired", unpaired: str = "unpaired"
) -> None:
    """Plot both distributions, each with an area of 1, to a PNG file, atomically."""
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
    """The non-empty part of the axis."""
    filled = (cosines.paired + cosines.unpaired).nonzero()[0]
    if not filled.size:
        return -1.0, 1.0
    last = len(cosines.edges) - 1
    return (
        float(cosines.edges[max(0, int(filled[0]) - _MARGIN_BINS)]),
        float(cosines.edges[min(last, int(filled[-1]) + 1 + _MARGIN_BINS)]),
    )
