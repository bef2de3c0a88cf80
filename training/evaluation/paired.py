"""Compare two encoders on the same held-out images with a paired bootstrap, and with chance."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from training.evaluation.embedding import EmbeddedManifest
from training.evaluation.retrieval import caption_ranks, label_hits, labelled_vectors

_DRAWS: Final = 2000
_DRAWS_AT_ONCE: Final = 100
# Queries share candidates, so samples vary by a quarter more than bootstrap draws: of 200 models that are as
# good as another, 12 would pass with a 95 % interval of the draws, and 1 passes with 99 %.
_TAIL: Final = 0.5
_RECALLS: Final = (1, 5, 10)
_PRECISIONS: Final = (5, 10, 50)
_Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric that is a sum of P percentages, broken down by image.

    Attributes:
        right: (P, N), correct answers to each image's queries.
        queries: (P, N), number of these queries.
        chance: Value for random vectors.
    """

    right: _Numbers
    queries: _Numbers
    chance: float

    def of(self, weights: _Numbers) -> _Numbers:
        """The metric (B,) for image weights (B, N)."""
        shares: _Numbers = (weights @ self.right.T) / np.maximum(weights @ self.queries.T, 1e-9)
        total: _Numbers = 100 * shares.sum(axis=1)
        return total

    @property
    def images(self) -> int:
        """Images with a query in every percentage."""
        return int(np.count_nonzero(self.queries.all(axis=0)))


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """A metric before and after, and the 99 % bootstrap interval of the difference, from low to high.

    `above_chance` is whether all but 0.5 % of the draws of `after` exceed chance.
    """

    before: float
    after: float
    low: float
    high: float
    above_chance: bool


def figures_by_image(embedded: EmbeddedManifest) -> dict[str, Figure]:
    """Metrics that are means over images, by their names in `EvaluationReport.metrics`."""
    figures = _recalls(embedded) if embedded.texts else {}
    return figures | _precisions(embedded)


def compare_figures(
    before: Figure, after: Figure, groups: NDArray[np.int64], seed: int = 0
) -> PairedComparison:
    """Compare two encoders on the same images with a bootstrap of 2,000 draws.

    `groups` (N,) numbers the group of each image, such as the patient; groups are drawn as a whole.
    """
    random = np.random.default_rng(seed)
    count = int(groups.max()) + 1
    draws = []
    for _ in range(_DRAWS // _DRAWS_AT_ONCE):
        drawn = random.multinomial(count, np.full(count, 1 / count), _DRAWS_AT_ONCE)
        weights = drawn[:, groups].astype(np.float64)
        draws.append((before.of(weights), after.of(weights)))
    old, new = (np.concatenate(column) for column in zip(*draws, strict=True))
    low, high = np.percentile(new - old, (_TAIL, 100 - _TAIL))
    whole = np.ones((1, len(groups)))
    return PairedComparison(
        before=float(before.of(whole)[0]),
        after=float(after.of(whole)[0]),
        low=float(low),
        high=float(high),
        above_chance=bool(np.percentile(new, _TAIL) > after.chance),
    )


def _recalls(embedded: EmbeddedManifest) -> dict[str, Figure]:
    described, owner, matches = embedded.described()
    ranks = caption_ranks(embedded.image_vectors[described], embedded.text_vectors, matches)
    texts = np.bincount(owner)
    of_texts = np.array([len(rows) for rows in matches])
    of_images = np.bincount(np.concatenate([np.array(rows) for rows in matches]))
    # Per direction: ranks of queries, their images, matches and candidates.
    directions = {
        "image": (ranks[0], owner, of_texts, len(described)),
        "text": (ranks[1], np.arange(len(described)), of_images, len(owner)),
    }
    figures: dict[str, Figure] = {}
    for name, (best, images, matching, candidates) in directions.items():
        queries = texts.astype(np.float64) if name == "image" else np.ones(len(described))
        for k in _RECALLS:
            right = np.bincount(images, weights=best < k, minlength=len(described)).astype(np.float64)
            chance = _chance(matching, candidates, k)
            figures[f"{name}_recall_at_{k}"] = _spread(right, queries, described, embedded, chance)
    every = list(figures.values())
    total = Figure(
        np.concatenate([one.right for one in every]),
        np.concatenate([one.queries for one in every]),
        sum(one.chance for one in every),
    )
    return {"rsum": total, **figures}


def _precisions(embedded: EmbeddedManifest) -> dict[str, Figure]:
    rows = [row for row, record in enumerate(embedded.records) if record.labels]
    if not rows:
        return {}
    images = labelled_vectors(embedded.image_vectors, embedded.records, rows)
    counts, totals, matching = label_hits(images, images, _PRECISIONS)
    figures = {}
    for column, k in enumerate(_PRECISIONS):
        usable = totals >= k
        if usable.any():
            chance = 100 * float(np.mean(matching[usable] / totals[usable]))
            right = np.where(usable, counts[:, column] / k, 0)
            name = f"image_precision_at_{k}"
            figures[name] = _spread(right, usable.astype(np.float64), rows, embedded, chance)
    return figures


def _spread(
    right: _Numbers,
    queries: _Numbers,
    rows: Sequence[int] | NDArray[np.int64],
    embedded: EmbeddedManifest,
    chance: float,
) -> Figure:
    """Extend a metric of some images to all; the others have no queries."""
    both = np.zeros((2, len(embedded.records)))
    both[0, rows], both[1, rows] = right, queries
    return Figure(both[:1], both[1:], chance)


def _chance(matching: NDArray[np.int64], candidates: int, k: int) -> float:
    """Percentage of queries, given their numbers of matches, that find one among the first k at random."""
    missed = np.ones(len(matching))
    for left in range(candidates, max(0, candidates - k), -1):
        missed *= np.maximum(left - matching, 0) / left
    return 100 * float(np.mean(1 - missed))
