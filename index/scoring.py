"""Which scores count: z-scores by a sample of the collection's vectors, and the score that is confident.

The score from which a query is confident is measured: it is the one from which held-out queries find what
they name. These queries are texts of held-out images, the collection's labels, and phrases that no text of
the collection has the words of.
"""

import math
import random
import threading
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import inf, log
from statistics import NormalDist
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from index.catalogue import Reading
from index.catalogue.collections import Generation, Target
from index.catalogue.lookup import rows_among
from index.catalogue.tables import GenerationRow, ImageRow, TextEmbeddingRow, TextRow
from index.catalogue.words import pieces
from index.vectors.protocol import Keys, Scores, Vectors, decode_vectors
from index.vectors.view import VectorView, oriented_bases
from training.evaluation.similarity import as_blades, similarity
from training.models.text_input import TextEmbeddings

# A text is out of vocabulary below this quantile of the token coverage of the collection's own texts.
_COVERAGE_QUANTILE: Final = 0.05
_EPSILON: Final = 1e-6
_MEASURED_QUERIES: Final = 256
# For longer vectors the covariance is larger than half of the sample.
_MAX_DIM: Final = 1024
# A background is measured again when the view has grown or shrunk by this factor.
_GROWTH: Final = 1.5
# English and German, everyday life and medicine; those whose words the collection's texts use are left out.
PHRASES: Final = tuple(
    phrase.strip()
    for phrase in """
    a tabby cat in a basket; two horses in a meadow; a parrot; an elephant at a water hole
    a shark under water; a butterfly on a flower; a herd of sheep; a penguin on the ice
    a red bus in the rain; a steam locomotive; an airliner at the gate; a sailing boat in a harbor
    a motorcycle race; a bicycle; a tractor in a field; a bowl of noodle soup; a birthday cake with candles
    a cup of coffee; apples in a basket; a hamburger; a wedding couple; children in a playground
    a man playing the guitar; a football match; a woman skiing; a surfer on a wave; a chess board
    an orchestra on stage; a crowded market; a bridge over a river; a skyline at night; a lighthouse
    a church tower; a desert with sand dunes; a waterfall in the jungle; snowy mountains; a full moon
    the Milky Way; a volcano; a rainbow over a village; a living room with a sofa; a kitchen; a bookshelf
    a computer keyboard; a mobile phone; a bar chart of sales; a handwritten letter; a road map
    a circuit diagram; a tax return; a chemical formula; a comic strip; an oil painting; a statue
    a hammer and nails; a pair of shoes; a wristwatch; a robot; a satellite in orbit; a fire engine
    a police car; a hip fracture; a broken wrist; an ankle sprain; a torn knee ligament; a herniated disc
    osteoarthritis; a tibial plateau fracture; a hand with rheumatoid arthritis; a shoulder replacement
    a dislocated elbow; a stroke on brain CT; a brain tumor; an aneurysm; multiple sclerosis lesions
    a skull base fracture; sinusitis; a thyroid nodule; a breast mass; dense breast tissue on mammography
    an ultrasound of the bladder; gallbladder stones; a liver metastasis; pancreatitis; a renal cyst
    hydronephrosis; an enlarged prostate; diverticulitis; small bowel obstruction; a polyp on colonoscopy
    a gastric ulcer; an ovarian cyst; a fetus; a dental implant; a wisdom tooth; a cataract
    diabetic retinopathy; glaucoma; psoriasis; a suspicious mole; a chronic wound; an electrocardiogram
    a blood smear; bacteria under the microscope; kidney biopsy; leukemia; ein Hund im Garten
    eine Katze auf dem Dach; ein altes Schloss; Kinder am Strand; ein Teller Spaghetti; ein Sportwagen
    ein Zug im Bahnhof; eine Rechnung; ein Oberschenkelbruch; eine Knieprothese; ein Hirntumor; Nierensteine
    eine Blinddarmentzündung; ein Leberfleck; ein Bandscheibenvorfall; Karies
    """.replace("\n", ";").split(";")
    if phrase.strip()
)
# Fewer held-out images are too few to know: each test needs texts of ten kinds, and there should be several.
MIN_IMAGES: Final = 50
MIN_KINDS: Final = 10
_STEPS: Final = 10
_LEVEL: Final = 0.05
# Share of unanswerable phrases that may score as high as a query with unknown words must.
_FALSE_ALARMS: Final = 0.025
_DEPTH: Final = 10
_IMAGES: Final = 1000
_QUERIES: Final = 2000
_LABELS: Final = 200
# Comparisons of all queries, where a view scans.
_COMPARED: Final = 200_000_000
_SAMPLE: Final = 2000
_BATCH: Final = 32
# It is measured again when the collection has grown or shrunk by this factor.
_MEASURED_GROWTH: Final = 1.2


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
    def from_texts(cls, texts: Sequence[Sequence[str]]) -> "Vocabulary":
        """Return the vocabulary of the texts of each image."""
        words = [[list(dict.fromkeys(pieces(text))) for text in of_image] for of_image in texts]
        counts = Counter(word for of_image in words for word in set().union(*of_image))
        weights = {word: log((len(texts) + 1) / count) for word, count in counts.items()}
        uses = max(counts.total(), 1)
        unknown = sum(count * weights[word] for word, count in counts.items()) / uses
        others = {word: weight for word, weight in weights.items() if counts[word] > 1}
        shares = [_coverage(text, others, unknown) for of_image in words for text in of_image]
        coverage_threshold = float(np.quantile(shares, _COVERAGE_QUANTILE, method="lower")) if shares else 0.0
        return cls(weights, unknown, coverage_threshold)

    def knows(self, text: str) -> bool:
        """Return whether no larger share of a text's words is unknown than of the collection's own texts."""
        words = dict.fromkeys(pieces(text))
        return _coverage(words, self.weights, self.unknown) >= self.coverage_threshold


def _coverage(words: Collection[str], weights: Mapping[str, float], unknown: float) -> float:
    """Return the token coverage of different words: the share with a weight, by weight; 0 without words."""
    covered, missing = 0.0, 0
    for word in words:
        weight = weights.get(word)
        if weight is None:
            missing += 1
        else:
            covered += weight
    every = covered + unknown * missing
    return covered / every if every else 0.0


def read_vocabulary(session: Session, images: Sequence[int]) -> Vocabulary:
    """Read the vocabulary of the texts and labels of images, by key."""
    labels = select(ImageRow.id, ImageRow.labels).where(ImageRow.id.in_(images))
    texts: dict[int, list[str]] = {image: list(named) for image, named in session.execute(labels)}
    for image, text in session.execute(
        select(TextRow.image_id, TextRow.text).where(TextRow.image_id.in_(images))
    ):
        texts[image].append(text)
    return Vocabulary.from_texts(list(texts.values()))


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


@dataclass(eq=False)
class Background:
    """A sample of a generation's vectors, and the words of its images.

    Attributes:
        sample: Vectors (N, D) of a view; at least one.
        count: How many vectors the view had.
        blades: k of a k-blade model, otherwise 1.
        unsigned: Whether a vector and its opposite are the same.
        vocabulary: The words of the collection's texts and labels, where images are searched.
    """

    sample: Vectors
    count: int
    blades: int = 1
    unsigned: bool = False
    vocabulary: Vocabulary | None = None

    def fits(self, count: int) -> bool:
        """Return whether the sample fits a view of `count` vectors: within a factor of 1.5 of its own."""
        return self.count / _GROWTH <= count <= self.count * _GROWTH

    def knows(self, text: str) -> bool:
        """Return whether the collection's texts and labels have the words of a text; see `Vocabulary`."""
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
            # BLAS would wake a thread on each core, and wait for the slowest of them.
            alone: Scores = np.vecdot(second, first)[None]
            return alone
        scores: Scores = similarity(self._shaped(first), self._shaped(second))
        return scores

    @cached_property
    def _is_linear(self) -> bool:
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


def measure_background(view: VectorView, *, blades: int = 1, unsigned: bool = False) -> Background | None:
    """Draw a sample of a view; None where it is empty."""
    drawn, sample = view.stored_vectors(draw(view.keys(), _SAMPLE, 0))
    if not len(drawn):
        return None
    background = Background(sample, len(view), blades=blades, unsigned=unsigned)
    # Cached properties are computed here, so that the first query need not wait.
    background.scale(sample[0])
    return background


class KeptBackground:
    """The background of one view; threads may share it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._background: Background | None = None

    def get(
        self, reading: Reading, generation: Generation, view: VectorView, target: Target = "images"
    ) -> Background | None:
        """Return the background of a view, measured again where none fits; None where the view is empty."""
        count, background = len(view), self._background
        if count == 0 or (background is not None and background.fits(count)):
            return background if count else None
        # While one thread measures again, the others use the earlier background.
        if not self.lock.acquire(blocking=background is None):
            return background
        try:
            if self._background is None or not self._background.fits(count):
                measured = measure_background(view, blades=generation.blades, unsigned=generation.unsigned)
                if measured is not None and target == "images":
                    images = draw(view.keys(), _SAMPLE, 0).tolist()
                    measured.vocabulary = read_vocabulary(reading.session, images)
                self._background = measured
            return self._background
        finally:
            self.lock.release()


class _Kept(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FlagCounts(_Kept):
    """How often the flag was right on queries that had no part in its thresholds.

    Attributes:
        true: Held-out queries for which it was true.
        true_right: Those of them with more right hits among the first ten than chance gives.
        false: Held-out queries for which it was false.
        false_right: Those of them with no more right hits than chance gives.
        unanswerable: Phrases that nothing in the collection answers.
        unanswerable_right: Those of them for which it was false.
    """

    true: int
    true_right: int
    false: int
    false_right: int
    unanswerable: int
    unanswerable_right: int


class Confidence(_Kept):
    """Measured confidence of a generation, stored with it.

    Attributes:
        count: Images of the collection at that time.
        held_out: Held-out images with texts.
        kinds: Different sets of labels among these; an image without labels is a kind of its own.
        known: Lowest confident score of a query of known words; None if there is none.
        unknown: The same for a query with words that aren't in the collection's texts and labels.
        counts: How often the flag was right; None where there are too few pairs to know.
    """

    count: int
    held_out: int
    kinds: int
    known: float | None = None
    unknown: float | None = None
    counts: FlagCounts | None = None

    def fits(self, count: int) -> bool:
        """Return whether it still holds for a collection of `count` images: within a factor of 1.2."""
        return self.count / _MEASURED_GROWTH <= count <= self.count * _MEASURED_GROWTH

    def least(self, *, known: bool) -> float | None:
        """Return the lowest best score that is confident; infinite if none is, None if unknown."""
        if self.counts is None:
            return None
        score = self.known if known else self.unknown
        return inf if score is None else score


class _Image(NamedTuple):
    labels: frozenset[str]
    group: str | None


class _Query(NamedTuple):
    text: str
    labels: frozenset[str]
    image: int | None
    kind: Hashable


class _Facts(NamedTuple):
    labels: frozenset[str]
    texts: frozenset[str]


class Outcomes(NamedTuple):
    """Results of held-out queries.

    Attributes:
        scores: Best score of each query (Q,).
        excess: Its precision among the first ten, less that of chance (Q,).
        kinds: Number of its kind (Q,): queries of one kind are no independent evidence.
    """

    scores: NDArray[np.float64]
    excess: NDArray[np.float64]
    kinds: NDArray[np.int64]

    def take(self, chosen: NDArray[np.bool_]) -> "Outcomes":
        """Return some of them."""
        return Outcomes(self.scores[chosen], self.excess[chosen], self.kinds[chosen])


class TextEncoder(Protocol):
    """Encoder of a generation's texts."""

    @property
    def modalities(self) -> Collection[str]:
        """Modalities that it embeds."""

    def embed_texts(self, texts: Sequence[str]) -> TextEmbeddings:
        """Return vectors (B, D) of length one for texts, if it has a text encoder."""


def least_known(outcomes: Outcomes) -> float | None:
    """Return the lowest score down to which queries find what they ask for significantly above chance.

    From the highest score downwards, queries are tested in up to ten steps of equal numbers, each of ten
    kinds or more: one-sided Student's t over the means of kinds, at 5 %. The first step that fails ends it,
    so that all steps together are wrong in at most 5 % of encoders at chance (fixed-sequence testing).

    Returns:
        None where the first step fails already, or there are too few kinds.
    """
    order = np.argsort(-outcomes.scores, kind="stable")
    lowest = None
    for start, stop in pairwise(_steps(outcomes.kinds[order])):
        step = order[start:stop]
        if not _above_chance(outcomes.excess[step], outcomes.kinds[step]):
            break
        lowest = float(outcomes.scores[step[-1]])
    return lowest


def _steps(kinds: NDArray[np.int64]) -> list[int]:
    bounds, seen = [0], set[int]()
    for position, kind in enumerate(kinds.tolist(), 1):
        seen.add(kind)
        if position - bounds[-1] >= len(kinds) / _STEPS and len(seen) >= MIN_KINDS:
            bounds.append(position)
            seen = set()
    bounds[-1] = len(kinds) if len(bounds) > 1 else 0
    return bounds


def _above_chance(excess: NDArray[np.float64], kinds: NDArray[np.int64]) -> bool:
    _, kind_index, counts = np.unique(kinds, return_inverse=True, return_counts=True)
    means = np.bincount(kind_index, weights=excess) / counts
    error = means.std(ddof=1) / np.sqrt(len(means))
    return bool(means.mean() > _student(1 - _LEVEL, len(means) - 1) * error)


def _student(probability: float, degrees: int) -> float:
    """Return the quantile of Student's t: Cornish-Fisher, right to .002 from nine degrees of freedom."""
    z = NormalDist().inv_cdf(probability)
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def least_unknown(known: float | None, unanswerable: NDArray[np.float64]) -> float | None:
    """Return the lowest score of a query with unknown words: above all but 1 in 40 unanswerable phrases."""
    allowed = int(_FALSE_ALARMS * (len(unanswerable) + 1))
    if known is None or not allowed:
        return None
    return max(known, float(np.nextafter(np.sort(unanswerable)[-allowed], inf)))


def measure_confidence(
    session: Session,
    generation: Generation,
    view: VectorView,
    knows: Callable[[str], bool],
    encoder: TextEncoder,
) -> Confidence:
    """Measure from which score on a text query finds what it asks for.

    A hit is right if it is the text's own image, has an equal text, or has the same labels; for a label, if
    it has that label. Chance is the share of right images in a sample of the collection.
    """
    count = len(view)
    images = _held_out(session, generation, random.Random(0))
    queries = _texts(session, generation, images, max(_COMPARED // max(count, 1), 200))
    answerable = [query for query, _ in queries]
    kinds = {kind: number for number, kind in enumerate(dict.fromkeys(query.kind for query in answerable))}
    if len(images) < MIN_IMAGES or len(kinds) < MIN_KINDS:
        return Confidence(count=count, held_out=len(images), kinds=len(kinds))
    names = sorted({label for image in images.values() for label in image.labels})[:_LABELS]
    answerable += [_Query(name, frozenset([name]), None, frozenset([name])) for name in names]
    kinds |= {
        query.kind: len(kinds) + index for index, query in enumerate(answerable) if query.kind not in kinds
    }
    phrases = [phrase for phrase in PHRASES if not knows(phrase)]
    unembedded = [*names, *phrases]
    batches = [unembedded[start : start + _BATCH] for start in range(0, len(unembedded), _BATCH)]
    vectors = np.concatenate(
        [
            decode_vectors([vector for _, vector in queries], generation.dim),
            *(encoder.embed_texts(batch).vectors for batch in batches),
        ]
    )
    neighbours = view.search_many(vectors, _DEPTH)
    best = np.array([one.scores[:1].max(initial=-inf) for one in neighbours])
    hits = [one.keys.tolist() for one in neighbours[: len(answerable)]]
    drawn = np.random.default_rng(0).permutation(view.keys())[:_SAMPLE].tolist()
    facts = _facts(session, {*drawn, *(key for keys in hits for key in keys)})
    sample = [facts[key] for key in drawn if key in facts]
    outcomes = Outcomes(
        best[: len(answerable)],
        np.array([_excess(*each, facts, sample, count) for each in zip(answerable, hits, strict=True)]),
        np.array([kinds[query.kind] for query in answerable]),
    )
    unanswerable = best[len(answerable) :]
    known = least_known(outcomes)
    return Confidence(
        count=count,
        held_out=len(images),
        kinds=len(kinds),
        known=known,
        unknown=least_unknown(known, unanswerable),
        counts=_cross_checked(outcomes, unanswerable),
    )


def read_confidence(session: Session, generation: int) -> Confidence | None:
    """Return what was measured of a generation; None where nothing was, or by another version."""
    query = select(GenerationRow.confidence).where(GenerationRow.id == generation)
    stored = session.execute(query).scalar_one_or_none()
    try:
        return None if stored is None else Confidence.model_validate(stored)
    except ValidationError:
        return None


def keep_confidence(session: Session, generation: int, measured: Confidence) -> None:
    """Store what was measured with the generation."""
    kept = update(GenerationRow).where(GenerationRow.id == generation)
    session.execute(kept.values(confidence=measured.model_dump(mode="json")))


def _excess(
    query: _Query, hits: Sequence[int], facts: Mapping[int, _Facts], sample: Sequence[_Facts], count: int
) -> float:
    def right(image: _Facts) -> bool:
        if query.image is None:
            return query.labels <= image.labels
        return query.text in image.texts or (bool(query.labels) and query.labels == image.labels)

    right_hits = sum(key == query.image or right(facts[key]) for key in hits if key in facts)
    chance = max(sum(map(right, sample)) / max(len(sample), 1), 1 / count)
    return right_hits / max(len(hits), 1) - chance


def _cross_checked(outcomes: Outcomes, unanswerable: NDArray[np.float64]) -> FlagCounts:
    """Count how often the flag is right on each half of the kinds with the thresholds of the other half."""
    half, part = outcomes.kinds % 2 == 0, np.arange(len(unanswerable)) % 2 == 0
    true = np.zeros(len(half), dtype=bool)
    alarms = 0
    for here, there in ((half, part), (~half, ~part)):
        known = least_known(outcomes.take(~here))
        unknown = least_unknown(known, unanswerable[~there])
        true[here] = known is not None and outcomes.scores[here] >= known
        alarms += 0 if unknown is None else int(np.count_nonzero(unanswerable[there] >= unknown))
    above = outcomes.excess > 0
    return FlagCounts(
        true=int(true.sum()),
        true_right=int((true & above).sum()),
        false=int((~true).sum()),
        false_right=int((~true & ~above).sum()),
        unanswerable=len(unanswerable),
        unanswerable_right=len(unanswerable) - alarms,
    )


def _held_out(session: Session, generation: Generation, draw: random.Random) -> dict[int, _Image]:
    with_texts = (
        select(TextRow.image_id)
        .join(TextEmbeddingRow, TextEmbeddingRow.text_id == TextRow.id)
        .where(TextEmbeddingRow.generation_id == generation.id)
    )
    query = select(ImageRow.id).where(
        ImageRow.collection_id == generation.collection_id,
        ImageRow.split != "train",
        ImageRow.id.in_(with_texts),
    )
    keys = sorted(session.execute(query).scalars())
    chosen = draw.sample(keys, min(len(keys), _IMAGES))
    rows = select(ImageRow.id, ImageRow.labels, ImageRow.group_name).where(ImageRow.id.in_(chosen))
    return {row.id: _Image(frozenset(row.labels), row.group_name) for row in session.execute(rows)}


def _texts(
    session: Session, generation: Generation, images: Mapping[int, _Image], most: int
) -> list[tuple[_Query, bytes]]:
    query = (
        select(TextRow.image_id, TextRow.text, TextEmbeddingRow.vector)
        .join(TextEmbeddingRow, TextEmbeddingRow.text_id == TextRow.id)
        .where(TextEmbeddingRow.generation_id == generation.id, TextRow.image_id.in_(list(images)))
        .order_by(TextRow.position, TextRow.image_id)
    )
    queries: dict[str, tuple[_Query, bytes]] = {}
    for key, text, vector in session.execute(query):
        image = images[key]
        kind = image.labels or image.group or key
        queries.setdefault(text, (_Query(text, image.labels, key, kind), vector))
    return list(queries.values())[: min(most, _QUERIES)]


def _facts(session: Session, keys: Collection[int]) -> dict[int, _Facts]:
    texts: dict[int, set[str]] = {}
    for key, text in rows_among(session, select(TextRow.image_id, TextRow.text), TextRow.image_id, keys):
        texts.setdefault(key, set()).add(text)
    rows = rows_among(session, select(ImageRow.id, ImageRow.labels), ImageRow.id, keys)
    return {key: _Facts(frozenset(labels), frozenset(texts.get(key, ()))) for key, labels in rows}
