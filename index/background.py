"""The background of a collection's scores: what is usual there, so that a score can be called unusual."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from index.catalogue.tables import EmbeddingRow, TextEmbeddingRow, TextRow
from index.generations import Generation, Target
from index.vectors.blade import oriented_bases
from index.vectors.codec import decode_vectors
from index.vectors.protocol import Keys, Vectors, VectorView
from training.evaluation.similarity import as_blades, similarity

# What a query is: scores of texts and of images lie in different ranges.
QueryKind = Literal["text", "image"]
QUERY_KINDS: Final[tuple[QueryKind, ...]] = ("text", "image")
Scores = NDArray[np.float32]

_SAMPLE: Final = 2000
_OWN_QUERIES: Final = 256
# Fewer of the collection's own queries than this say nothing of how near best hits usually are.
_MIN_OWN_QUERIES: Final = 20
# A query is confident unless its best hit is as far as those of this share of the collection's own queries.
_DOUBTED: Final = 0.05
# A background is measured again when the view has grown or shrunk by this factor.
_GROWTH: Final = 1.5


@dataclass(frozen=True, slots=True)
class OwnQueries:
    """Queries that the collection itself holds: `vectors` (Q, D), and for each the keys that are its own."""

    vectors: Vectors
    left_out: Sequence[Keys]


@dataclass(frozen=True)
class ScoreScale:
    """One query's scores against the background.

    Attributes:
        sample: The query's scores with the background's vectors (N,), rising.
        threshold: The z value from which a best hit is confident; None where it is not known.
    """

    sample: Scores
    threshold: float | None

    @cached_property
    def mean(self) -> float:
        """Mean of the query's scores with the background."""
        return float(self.sample.mean(dtype=np.float64))

    @cached_property
    def spread(self) -> float:
        """Standard deviation of the query's scores with the background; never zero."""
        return max(float(self.sample.std(dtype=np.float64)), 1e-6)

    def unusual(self, scores: Scores) -> Scores:
        """Return by how many standard deviations scores (K,) lie above the background's mean."""
        values: Scores = ((scores - self.mean) / self.spread).astype(np.float32)
        return values

    def share_above(self, scores: Scores) -> Scores:
        """Return the share (K,) of the background that scores higher, for scores (K,)."""
        places = np.searchsorted(self.sample, scores, side="right")
        shares: Scores = (1 - places / len(self.sample)).astype(np.float32)
        return shares

    def confident(self, best: float) -> bool | None:
        """Tell whether a best hit is as near as best hits usually are; None where that is not known."""
        if self.threshold is None:
            return None
        return bool((best - self.mean) / self.spread >= self.threshold)


class Background:
    """A sample of a generation's vectors, and how near the best hits of its own queries are.

    Args:
        sample: Vectors (N, D) of a view; at least one.
        count: How many vectors the view held.
        blades: k of a k-blade model, else 1.
        unsigned: Whether a vector and its opposite are the same.
    """

    def __init__(self, sample: Vectors, count: int, *, blades: int = 1, unsigned: bool = False) -> None:
        self.sample = sample
        self.count = count
        self.blades = blades
        self.unsigned = unsigned
        self.thresholds: Mapping[QueryKind, float] = {}

    @property
    def memory_bytes(self) -> int:
        """Memory that the sample holds."""
        return self.sample.nbytes

    @cached_property
    def mean(self) -> Vectors:
        """Mean (D,) of the sample."""
        mean: Vectors = self.sample.mean(axis=0, dtype=np.float64).astype(np.float32)
        return mean

    def scale(self, query: Vectors, kind: QueryKind | None) -> ScoreScale:
        """Return what a query (D,) of length one scores with the background.

        Args:
            query: What is searched for.
            kind: What it was made of; None where it is of both kinds or of neither.
        """
        threshold = None if kind is None else self.thresholds.get(kind)
        return ScoreScale(np.sort(self.scores(query)), threshold)

    def scores(self, query: Vectors) -> Scores:
        """Return the scores (N,) of a query (D,) with the sample."""
        single = query[None] if self.blades == 1 else oriented_bases(query[None], self.blades)
        scores: Scores = similarity(self._shaped(single), self._shaped(self.sample))[0]
        return scores

    def _shaped(self, vectors: Vectors) -> Vectors:
        return as_blades(vectors, self.blades, unsigned=self.unsigned)


def measure_background(
    view: VectorView,
    own: Mapping[QueryKind, OwnQueries],
    *,
    blades: int = 1,
    unsigned: bool = False,
    seed: int = 0,
) -> Background:
    """Draw a sample of a view that holds something, and search it by the collection's own queries.

    Args:
        view: What is searched.
        own: The collection's own queries, by kind.
        blades: k of a k-blade model, else 1.
        unsigned: Whether a vector and its opposite are the same.
        seed: Of the sample.
    """
    keys = draw(view.keys(), _SAMPLE, seed)
    background = Background(view.vectors(keys), len(view), blades=blades, unsigned=unsigned)
    thresholds: dict[QueryKind, float] = {}
    for kind, queries in own.items():
        best = [
            value
            for vector, left_out in zip(queries.vectors, queries.left_out, strict=True)
            if (value := _best(view, background, vector, left_out)) is not None
        ]
        if len(best) >= _MIN_OWN_QUERIES:
            thresholds[kind] = float(np.quantile(best, _DOUBTED))
    background.thresholds = thresholds
    return background


def draw(keys: Keys, count: int, seed: int) -> Keys:
    """Return at most `count` of these keys, rising; the same ones for the same seed."""
    if len(keys) <= count:
        return keys
    drawn: Keys = np.sort(np.random.default_rng(seed).choice(keys, count, replace=False))
    return drawn


def _best(view: VectorView, background: Background, query: Vectors, left_out: Keys) -> float | None:
    found = view.search(query, len(left_out) + 1)
    scores = found.scores[~np.isin(found.keys, left_out)]
    if not len(scores):
        return None
    return float(background.scale(query, None).unusual(scores[:1])[0])


class Backgrounds:
    """The backgrounds of this process, one for each generation and target; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[tuple[int, int, Target], Background] = {}

    def of(
        self, session: Session, generation: Generation, view: VectorView, target: Target = "images"
    ) -> Background | None:
        """Return the background of a view, measured if there is none or the view has grown or shrunk much.

        Args:
            session: A read of the catalogue.
            generation: What the view holds.
            view: What is searched.
            target: Whether it holds the generation's images or their texts.

        Returns:
            None where the view is empty.
        """
        place = (generation.collection_id, generation.id, target)
        with self._lock:
            held = self._held.get(place)
            count = len(view)
            if held is not None and held.count / _GROWTH <= count <= held.count * _GROWTH:
                return held
            if not count:
                return None
            own = own_queries(session, generation, view.keys(), target)
            measured = measure_background(view, own, blades=generation.blades, unsigned=generation.unsigned)
            self._held[place] = measured
            return measured

    def retire(self, collection_id: int, active: int) -> None:
        """Forget the backgrounds of every generation of a collection but the active one."""
        with self._lock:
            for place in [place for place in self._held if place[0] == collection_id and place[1] != active]:
                del self._held[place]


def own_queries(
    session: Session, generation: Generation, keys: Keys, target: Target, seed: int = 1
) -> dict[QueryKind, OwnQueries]:
    """Read stored images and texts as queries; what belongs to the same image is left out of their hits.

    Args:
        session: A read of the catalogue.
        generation: Whose vectors are read.
        keys: Those of all images, or of all texts.
        target: What the keys are of.
        seed: Of the choice.
    """
    chosen = draw(keys, _OWN_QUERIES, seed).tolist()
    of_texts = select(TextRow.image_id, TextRow.id)
    images = chosen
    if target == "texts":
        images = sorted({image for image, _ in session.execute(of_texts.where(TextRow.id.in_(chosen)))})
    texts: dict[int, list[int]] = {image: [] for image in images}
    for image, text in session.execute(of_texts.where(TextRow.image_id.in_(images)).order_by(TextRow.id)):
        texts[image].append(text)
    own = {image: [image] if target == "images" else texts[image] for image in images}
    first = {texts[image][0]: image for image in images if texts[image]}
    by_image = (
        select(EmbeddingRow.image_id, EmbeddingRow.vector)
        .where(EmbeddingRow.generation_id == generation.id, EmbeddingRow.image_id.in_(images))
        .order_by(EmbeddingRow.image_id)
    )
    by_text = (
        select(TextEmbeddingRow.text_id, TextEmbeddingRow.vector)
        .where(TextEmbeddingRow.generation_id == generation.id, TextEmbeddingRow.text_id.in_(list(first)))
        .order_by(TextEmbeddingRow.text_id)
    )
    found: dict[QueryKind, OwnQueries] = {}
    sources: dict[QueryKind, tuple[Any, dict[int, int]]] = {
        "image": (by_image, {image: image for image in images}),
        "text": (by_text, first),
    }
    for kind, (query, image_of) in sources.items():
        rows = session.execute(query).all()
        found[kind] = OwnQueries(
            decode_vectors([vector for _, vector in rows], generation.dim),
            [np.array(own[image_of[key]], dtype=np.int64) for key, _ in rows],
        )
    return found
