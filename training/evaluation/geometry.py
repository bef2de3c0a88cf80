"""Geometry of an embedding: cosines of pairs and of non-pairs, alignment and uniformity."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.evaluation.retrieval import Matches, row_chunks
from training.evaluation.similarity import Vectors, similarity

_BINS = 200


@dataclass(frozen=True)
class CosineCounts:
    """Cosines counted in equal bins from -1 to 1.

    Attributes:
        edges: (bins + 1,) limits of the bins.
        paired: (bins,) counts of pairs that belong together.
        unpaired: (bins,) counts of all others.
        paired_mean: Mean cosine of pairs that belong together.
        unpaired_mean: Mean cosine of all others.
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
        alignment: Mean squared distance of an image and a text that belong together.
        image_uniformity: Log of the mean of exp(-2 d^2) over pairs of different images; None for one image.
        text_uniformity: Log of the mean of exp(-2 d^2) over pairs of different texts; None for one text.
        paired_cosine: Mean cosine of an image and a text that belong together.
        unpaired_cosine: Mean cosine of all others; None when every text belongs to every image.
    """

    alignment: float
    image_uniformity: float | None
    text_uniformity: float | None
    paired_cosine: float
    unpaired_cosine: float | None


def geometry(image_vectors: Vectors, text_vectors: Vectors, relevant: Matches) -> Geometry:
    """Alignment, uniformity and mean cosines of L2-normalised images (N, D) and texts (M, D).

    Args:
        image_vectors: (N, D).
        text_vectors: (M, D).
        relevant: For each text, the rows of all images that it belongs to.

    Raises:
        ValueError: When nothing belongs together.
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


def uniformity(vectors: Vectors, t: float = 2.0) -> float | None:
    """Log of the mean of exp(-t d^2) over all pairs of different rows (Wang and Isola, 2020, equation 2)."""
    count = len(vectors)
    if count < 2:
        return None
    total = 0.0
    for start, stop in row_chunks(count, count):
        cosines = similarity(vectors[start:stop], vectors).astype(np.float64)
        kernel = np.exp(2 * t * (cosines - 1))
        kernel[np.arange(stop - start), np.arange(start, stop)] = 0
        total += float(kernel.sum())
    return float(np.log(total / (count * (count - 1))))


def text_image_cosines(image_vectors: Vectors, text_vectors: Vectors, relevant: Matches) -> CosineCounts:
    """Cosines of every text with every image, apart for those that belong together."""

    def chunks() -> Iterator[tuple[Vectors, NDArray[np.bool_], NDArray[np.bool_]]]:
        for start, stop in row_chunks(len(text_vectors), len(image_vectors)):
            scores = similarity(text_vectors[start:stop], image_vectors)
            paired = np.zeros(scores.shape, dtype=bool)
            for position, row in enumerate(range(start, stop)):
                paired[position, list(relevant[row])] = True
            yield scores, paired, ~paired

    return _counted(chunks())


def label_cosines(vectors: Vectors, labels: Sequence[Collection[str]]) -> CosineCounts:
    """Cosines of all pairs of labelled images, apart for the pairs that share a label."""
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
