"""Reference statistics of a collection's scores: z-scores of hits, and in-domain tests of queries."""

import math
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from index.catalogue import Reading
from index.catalogue.collections import Generation, Target
from index.scoring.sample_queries import (
    QueryKind,
    ReferenceQueries,
    draw,
    reference_images,
    reference_queries,
)
from index.scoring.vocabulary import Vocabulary, read_vocabulary
from index.vectors.flat_view import oriented_bases
from index.vectors.protocol import Vectors
from index.vectors.vector_view import VectorView
from training.evaluation.similarity import as_blades, similarity

Scores = NDArray[np.float32]

_SAMPLE: Final = 2000
_EPSILON: Final = 1e-6
# Reference statistics need at least this number of queries.
_MIN_REFERENCE_QUERIES: Final = 20
_MEASURED_QUERIES: Final = 256
# Budget of comparisons for reference queries, of which at least and at most so many are searched.
_COMPARED: Final = 20_000_000
_MIN_SEARCHED: Final = 16
_MAX_SEARCHED: Final = 128
# Rank of the reference query whose score measures nearness: the first may be a copy by chance.
_NEIGHBOUR: Final = 5
# A query is out of domain if its similarity to the reference queries is below this quantile of theirs, ...
_DOMAIN_QUANTILE: Final = 0.05
# ... unless its best score is above this quantile of the reference queries' best.
_CONFIDENT_QUANTILE: Final = 0.5
# For longer vectors the covariance is larger than half of the sample.
_MAX_DIM: Final = 1024
# A background is measured again when the view has grown or shrunk by this factor.
_GROWTH: Final = 1.5


@dataclass(frozen=True, slots=True)
class ReferenceStatistics:
    """Reference statistics of queries of one kind.

    Attributes:
        vectors: Reference queries (Q, D).
        domain_threshold: In-domain threshold of a query's score with its fifth nearest reference query.
        best: Median best score of the reference queries.
    """

    vectors: Vectors
    domain_threshold: float
    best: float


class ScoreScale(NamedTuple):
    """One query's scores against the background.

    Attributes:
        mean: Mean of the query's scores with the background.
        spread: Standard deviation of these scores; never zero.
        in_domain: Whether the query is in domain, by the reference queries of its kind; None if unknown.
        confident_score: Best score that makes a query confident by itself; unused where `in_domain` is None.
        readable: Whether the encoder can read the query; None where it can read a part.
    """

    mean: float
    spread: float
    in_domain: bool | None = None
    confident_score: float = 0.0
    readable: bool | None = True

    def z_scores(self, scores: Iterable[float]) -> list[float]:
        """Return the z-scores of scores, by the background's mean and standard deviation."""
        return [(score - self.mean) / self.spread for score in scores]

    def confident(self, scores: Iterable[float]) -> bool | None:
        """Tell whether the collection has what the query means; None where that cannot be known.

        The query is in domain, or its best hit reaches the median best score of reference queries. Neither
        holds for a text that the encoder cannot read.

        Args:
            scores: Scores of the first hits, at least one.
        """
        if self.in_domain is None:
            return None
        return (self.in_domain or max(scores) >= self.confident_score) and self.readable


class Background:
    """A sample of a generation's vectors, and reference statistics of each kind of query.

    Args:
        sample: Vectors (N, D) of a view; at least one.
        count: How many vectors the view held.
        blades: k of a k-blade model, else 1.
        unsigned: Whether a vector and its opposite are the same.
        references: Reference statistics by kind of query.
        vocabulary: The words of the collection's texts, where they are known.
    """

    def __init__(
        self,
        sample: Vectors,
        count: int,
        *,
        blades: int = 1,
        unsigned: bool = False,
        references: Mapping[QueryKind, ReferenceStatistics] | None = None,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        self.sample = sample
        self.count = count
        self.blades = blades
        self.unsigned = unsigned
        self.references = {} if references is None else dict(references)
        self.vocabulary = vocabulary

    def fits(self, count: int) -> bool:
        """Tell whether the sample still fits a view of `count` vectors: within a factor of 1.5 of its own."""
        return self.count / _GROWTH <= count <= self.count * _GROWTH

    @property
    def memory_bytes(self) -> int:
        """Memory that the vectors hold."""
        return self.sample.nbytes + sum(reference.vectors.nbytes for reference in self.references.values())

    @cached_property
    def mean(self) -> Vectors:
        """Mean (D,) of the sample."""
        mean: Vectors = self.sample.mean(axis=0, dtype=np.float64).astype(np.float32)
        return mean

    @cached_property
    def covariance(self) -> Vectors:
        """Covariance matrix (D, D) of the sample."""
        return np.atleast_2d(np.cov(self.sample, rowvar=False, bias=True)).astype(np.float32)

    @cached_property
    def median_spread(self) -> float:
        """Median standard deviation of the scores of the sample's vectors."""
        return float(np.median(self.spreads(self.sample[:_MEASURED_QUERIES])))

    def spreads(self, queries: Vectors) -> NDArray[np.float64]:
        """Return the standard deviations (Q,) of the scores of queries (Q, D); never zero."""
        spreads: NDArray[np.float64] = self.similarity(queries, self.sample).std(axis=1, dtype=np.float64)
        return np.maximum(spreads, _EPSILON)

    def scale(self, query: Vectors, kind: QueryKind | None, text: str | None = None) -> ScoreScale:
        """Return what a query (D,) of length one scores with the background.

        Args:
            query: Query vector.
            kind: Kind of the query; None for a mixture of both kinds, or neither.
            text: Text of the query, if the encoder may not be able to read it.
        """
        mean, spread = self._scores(query)
        reference = None if kind is None else self.references.get(kind)
        if reference is None:
            return ScoreScale(mean, spread)
        near = _fifth(self.similarity(query[None], reference.vectors))[0]
        readable: bool | None = True
        if text is not None and self.vocabulary is not None:
            readable = self.vocabulary.readable(text)
        return ScoreScale(mean, spread, bool(near >= reference.domain_threshold), reference.best, readable)

    def _scores(self, query: Vectors) -> tuple[float, float]:
        """Return mean and standard deviation of a query's (D,) scores with the sample."""
        if self._is_linear and len(query) <= _MAX_DIM:
            # Four times as fast as from all scores.
            mean = float(np.vecdot(self.mean, query))
            spread = math.sqrt(max(0.0, float(np.vecdot(np.vecdot(self.covariance, query), query))))
        else:
            scores = self.similarity(query[None], self.sample)[0]
            mean, spread = float(scores.mean(dtype=np.float64)), float(scores.std(dtype=np.float64))
        return mean, max(spread, _EPSILON)

    def similarity(self, first: Vectors, second: Vectors) -> Scores:
        """Return how the model compares vectors (N, D) with vectors (M, D), (N, M); see `VectorView`."""
        if self._is_linear and len(first) == 1:
            # BLAS would wake a thread on each core, and wait for the slowest beside other work.
            alone: Scores = np.vecdot(second, first)[None]
            return alone
        scores: Scores = similarity(self._shaped(first), self._shaped(second))
        return scores

    @property
    def _is_linear(self) -> bool:
        """Whether scores are inner products."""
        return self.blades == 1 and not self.unsigned

    def _shaped(self, vectors: Vectors) -> Vectors:
        bases = vectors if self.blades == 1 else oriented_bases(vectors, self.blades)
        return as_blades(bases, self.blades, unsigned=self.unsigned)


def measure_background(
    view: VectorView,
    own: Mapping[QueryKind, ReferenceQueries],
    *,
    blades: int = 1,
    unsigned: bool = False,
    vocabulary: Vocabulary | None = None,
    seed: int = 0,
) -> Background | None:
    """Draw a sample of a view, and measure the statistics of its reference queries.

    Args:
        view: View to search.
        own: Reference queries by kind.
        blades: k of a k-blade model, else 1.
        unsigned: Whether a vector and its opposite are the same.
        vocabulary: The words of the collection's texts, where they are known.
        seed: Seed of the sample.

    Returns:
        None where the view is empty.
    """
    drawn, sample = view.held_vectors(draw(view.keys(), _SAMPLE, seed))
    if not len(drawn):
        return None
    background = Background(sample, len(view), blades=blades, unsigned=unsigned, vocabulary=vocabulary)
    for kind, queries in own.items():
        if len(queries.vectors) >= _MIN_REFERENCE_QUERIES:
            background.references[kind] = ReferenceStatistics(
                queries.vectors, _domain_threshold(background, queries), _median_best(view, queries)
            )
    # Cached properties are computed here, so that the first query need not wait.
    background.scale(sample[0], None)
    return background


def _domain_threshold(background: Background, own: ReferenceQueries) -> float:
    measured = slice(None, None, -(-len(own.vectors) // _MEASURED_QUERIES))
    alike = background.similarity(own.vectors[measured], own.vectors)
    alike[own.owners[measured, None] == own.owners] = -np.inf
    return float(np.quantile(_fifth(alike), _DOMAIN_QUANTILE, method="lower"))


def _median_best(view: VectorView, own: ReferenceQueries) -> float:
    searched = min(max(_COMPARED // max(len(view), 1), _MIN_SEARCHED), _MAX_SEARCHED, len(own.vectors))
    best = []
    for place in np.linspace(0, len(own.vectors) - 1, searched).astype(np.int64).tolist():
        left_out = own.left_out[place]
        found = view.search(own.vectors[place], len(left_out) + 1)
        best.extend(found.scores[~np.isin(found.keys, left_out)][:1].tolist())
    return float(np.quantile(best, _CONFIDENT_QUANTILE)) if best else np.inf


def _fifth(scores: Scores) -> Scores:
    """Return the fifth largest (N,) of every row of scores (N, M), or the smallest of fewer."""
    place = max(scores.shape[1] - _NEIGHBOUR, 0)
    fifth: Scores = np.partition(scores, place, axis=1)[:, place]
    return fifth


@dataclass(slots=True)
class _Held:
    lock: threading.Lock
    background: Background | None = None


class Backgrounds:
    """The backgrounds of this process, one for each generation and target; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[tuple[int, Target], _Held] = {}

    def of(
        self, reading: Reading, generation: Generation, view: VectorView, target: Target = "images"
    ) -> Background | None:
        """Return the background of a view, measured if there is none or the view has grown or shrunk much.

        Args:
            reading: Read transaction of the catalogue.
            generation: Generation of the view.
            view: View to search.
            target: Whether it holds the generation's images or their texts.

        Returns:
            None where the view is empty.
        """
        with self._lock:
            held = self._held.get((generation.id, target))
            if held is None:
                held = self._held[generation.id, target] = _Held(threading.Lock())
        count = len(view)
        known = held.background
        if count == 0 or (known is not None and known.fits(count)):
            return known if count else None
        # While one measures again, the others go on with what was measured before.
        if not held.lock.acquire(blocking=known is None):
            return known
        try:
            if held.background is None or not held.background.fits(count):
                images = reference_images(reading.session, view.keys(), target)
                held.background = measure_background(
                    view,
                    reference_queries(reading.session, generation, images, target),
                    blades=generation.blades,
                    unsigned=generation.unsigned,
                    vocabulary=read_vocabulary(reading.session, images),
                )
            return held.background
        finally:
            held.lock.release()

    def keep(self, generations: Collection[int]) -> None:
        """Forget the backgrounds of all other generations."""
        with self._lock:
            for place in [place for place in self._held if place[0] not in generations]:
                del self._held[place]
