"""A sample of a collection's vectors: z-scores of hits, and from which score on a query is confident."""

import math
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from index.catalogue import Reading
from index.catalogue.collections import Generation, Target
from index.catalogue.full_text import pieces
from index.catalogue.tables import ImageRow, TextRow
from index.vectors.flat_view import oriented_bases
from index.vectors.protocol import Keys, Vectors
from index.vectors.vector_view import VectorView
from training.evaluation.similarity import as_blades, similarity

# A text is out of vocabulary below this quantile of the token coverage of the collection's own texts.
_COVERAGE_QUANTILE: Final = 0.05
Scores = NDArray[np.float32]
_SAMPLE: Final = 2000
_EPSILON: Final = 1e-6
_MEASURED_QUERIES: Final = 256
# For longer vectors the covariance is larger than half of the sample.
_MAX_DIM: Final = 1024
# A background is measured again when the view has grown or shrunk by this factor.
_GROWTH: Final = 1.5


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The words of the texts and labels of some images.

    Attributes:
        weights: Inverse document frequency of each word.
        unknown: Weight of an unknown word: the mean weight of the texts' words.
        coverage_threshold: 5 % quantile of the token coverage of texts, by words of other images.
    """

    weights: Mapping[str, float]
    unknown: float
    coverage_threshold: float

    @classmethod
    def of(cls, texts: Sequence[Sequence[str]]) -> "Vocabulary":
        """Return the vocabulary of the texts of each image."""
        words = [[_words(text) for text in of_image] for of_image in texts]
        counts = Counter(word for of_image in words for word in set().union(*of_image))
        weights = {word: log((len(texts) + 1) / count) for word, count in counts.items()}
        uses = max(counts.total(), 1)
        unknown = sum(count * weights[word] for word, count in counts.items()) / uses
        others = {word: weight for word, weight in weights.items() if counts[word] > 1}
        shares = [_coverage(text, others, unknown) for of_image in words for text in of_image]
        coverage_threshold = float(np.quantile(shares, _COVERAGE_QUANTILE, method="lower")) if shares else 0.0
        return cls(weights, unknown, coverage_threshold)

    def knows(self, text: str) -> bool:
        """Tell whether no larger share of a text's words is unknown than of the collection's own texts."""
        return _coverage(_words(text), self.weights, self.unknown) >= self.coverage_threshold


def _words(text: str) -> list[str]:
    """Return the different words of a text; pairs of characters where a script has no spaces."""
    return list(dict.fromkeys(pieces(text)))


def _coverage(words: Sequence[str], weights: Mapping[str, float], unknown: float) -> float:
    """Return the token coverage: the share of words with a weight, by weight; 0 for a text without words."""
    known = sum(weights.get(word, 0.0) for word in words)
    weight = known + unknown * sum(word not in weights for word in words)
    return known / weight if weight else 0.0


def read_vocabulary(session: Session, images: Sequence[int]) -> Vocabulary:
    """Read the vocabulary of the texts and labels of images, by key."""
    labels = select(ImageRow.id, ImageRow.labels).where(ImageRow.id.in_(images))
    texts: dict[int, list[str]] = {image: list(named) for image, named in session.execute(labels)}
    for image, text in session.execute(
        select(TextRow.image_id, TextRow.text).where(TextRow.image_id.in_(images))
    ):
        texts[image].append(text)
    return Vocabulary.of(list(texts.values()))


class ScoreScale(NamedTuple):
    """One query's scores against the background.

    Attributes:
        mean: Mean of the query's scores with the background.
        spread: Standard deviation of these scores; never zero.
        least: Lowest best score that makes the query confident; None where nobody can know.
    """

    mean: float
    spread: float
    least: float | None = None

    def z_scores(self, scores: Iterable[float]) -> list[float]:
        """Return the z-scores of scores, by the background's mean and standard deviation."""
        return [(score - self.mean) / self.spread for score in scores]

    def confident(self, scores: Iterable[float]) -> bool | None:
        """Tell whether held-out queries with such a best score find what they ask for; None if unknown.

        Args:
            scores: Scores of the first hits, at least one.
        """
        return None if self.least is None else max(scores) >= self.least


class Background:
    """A sample of a generation's vectors, and the words of its images.

    Args:
        sample: Vectors (N, D) of a view; at least one.
        count: How many vectors the view held.
        blades: k of a k-blade model, else 1.
        unsigned: Whether a vector and its opposite are the same.
        vocabulary: The words of the collection's texts and labels, where images are searched.
    """

    def __init__(
        self,
        sample: Vectors,
        count: int,
        *,
        blades: int = 1,
        unsigned: bool = False,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        self.sample = sample
        self.count = count
        self.blades = blades
        self.unsigned = unsigned
        self.vocabulary = vocabulary

    def fits(self, count: int) -> bool:
        """Tell whether the sample still fits a view of `count` vectors: within a factor of 1.5 of its own."""
        return self.count / _GROWTH <= count <= self.count * _GROWTH

    def knows(self, text: str) -> bool:
        """Tell whether the collection's texts and labels have the words of a text; see `Vocabulary`."""
        return self.vocabulary is not None and self.vocabulary.knows(text)

    @property
    def memory_bytes(self) -> int:
        """Memory that the vectors hold."""
        return self.sample.nbytes

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

    def scale(self, query: Vectors) -> ScoreScale:
        """Return what a query (D,) of length one scores with the background."""
        if self._is_linear and len(query) <= _MAX_DIM:
            # Four times as fast as from all scores.
            mean = float(np.vecdot(self.mean, query))
            spread = math.sqrt(max(0.0, float(np.vecdot(np.vecdot(self.covariance, query), query))))
        else:
            scores = self.similarity(query[None], self.sample)[0]
            mean, spread = float(scores.mean(dtype=np.float64)), float(scores.std(dtype=np.float64))
        return ScoreScale(mean, max(spread, _EPSILON))

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


def draw(keys: Keys, count: int, seed: int) -> Keys:
    """Return at most `count` of these keys, rising; the same ones for the same seed."""
    if len(keys) <= count:
        return keys
    drawn: Keys = np.sort(np.random.default_rng(seed).choice(keys, count, replace=False))
    return drawn


def measure_background(
    view: VectorView, *, blades: int = 1, unsigned: bool = False, seed: int = 0
) -> Background | None:
    """Draw a sample of a view.

    Args:
        view: View to search.
        blades: k of a k-blade model, else 1.
        unsigned: Whether a vector and its opposite are the same.
        seed: Seed of the sample.

    Returns:
        None where the view is empty.
    """
    drawn, sample = view.held_vectors(draw(view.keys(), _SAMPLE, seed))
    if not len(drawn):
        return None
    background = Background(sample, len(view), blades=blades, unsigned=unsigned)
    # Cached properties are computed here, so that the first query need not wait.
    background.scale(sample[0])
    return background


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
                measured = measure_background(view, blades=generation.blades, unsigned=generation.unsigned)
                if measured is not None and target == "images":
                    images = draw(view.keys(), _SAMPLE, 0).tolist()
                    measured.vocabulary = read_vocabulary(reading.session, images)
                held.background = measured
            return held.background
        finally:
            held.lock.release()

    def keep(self, generations: Collection[int]) -> None:
        """Forget the backgrounds of all other generations."""
        with self._lock:
            for place in [place for place in self._held if place[0] not in generations]:
                del self._held[place]
