"""Which scores count: the background that tells what is unusual, and the measured score that is confident."""

from collections.abc import Collection, Sequence
from math import inf, log, nextafter
from threading import Event

import numpy as np
import pytest
from sqlalchemy import update

from index import scoring
from index.catalogue.collections import Generation, Target
from index.catalogue.tables import GenerationRow
from index.engine import SearchEngine
from index.scoring import Background, Confidence, KeptBackground, Outcomes, Vocabulary
from index.search.request import SearchRequest
from index.vectors.protocol import Keys, Vectors, unit
from index.vectors.view import CosineView
from tests.index.meanwhile import concurrently
from tests.index.samples import begin_generation, make_records, put_records, put_vectors, unit_vectors
from tests.index.vectors.reference import ReferenceView
from training.common.manifest import Record, Split
from training.models.text_input import TextEmbeddings

DIM = 12
COUNT = 400


def _around(axis: int, count: int, seed: int, noise: float = 0.5) -> Vectors:
    vectors = noise * unit_vectors(count, DIM, seed)
    vectors[:, axis] += 1
    return unit(vectors)


def _view(vectors: Vectors) -> CosineView:
    view = CosineView(DIM)
    view.add(np.arange(1, len(vectors) + 1), vectors)
    return view


@pytest.fixture(scope="module")
def background() -> Background:
    """Images around the first axis."""
    result = scoring.measure_background(_view(_around(0, COUNT, 1)))
    assert result is not None
    return result


def test_unusual_equals_its_definition(background: Background) -> None:
    query = _around(0, 1, 5)[0]
    scores = np.array([0.9, 0.5, -0.2, 2.0], dtype=np.float32)
    every = background.sample @ query
    scale = background.scale(query)
    np.testing.assert_allclose(scale.z_scores(scores), (scores - every.mean()) / every.std(), rtol=1e-3)


@pytest.mark.parametrize("mean", [0.0, 1.0, 100.0])
@pytest.mark.parametrize("sharpness", [0.0, 0.5, 3.0])
def test_the_covariance_tells_the_spread_of_any_query(sharpness: float, mean: float) -> None:
    """Vectors that vary equally in all directions, down to few directions, around any mean."""
    dim, random = 64, np.random.default_rng(2)
    sizes = (np.arange(dim) + 1.0) ** -sharpness
    turned = np.linalg.qr(random.standard_normal((dim, dim)))[0]
    varying = random.standard_normal((500, dim)) * sizes + mean * random.standard_normal(dim)
    vectors = unit((varying @ turned).astype(np.float32))
    background = Background(vectors, 500)
    largest = np.linalg.norm(vectors - vectors.mean(axis=0), ord=2) / np.sqrt(500)
    for query in np.concatenate((vectors[:50], unit_vectors(50, dim, 9), turned.astype(np.float32))):
        expected = float((vectors @ query).std())
        assert background.scale(query).spread == pytest.approx(
            expected, rel=6e-3, abs=max(3e-4 * largest, 1e-6)
        )


@pytest.mark.parametrize(("blades", "unsigned"), [(1, False), (3, False), (1, True)])
def test_scores_are_those_of_the_view(blades: int, unsigned: bool) -> None:
    vectors = unit_vectors(50, DIM, 3)
    view = ReferenceView(DIM, blades, unsigned=unsigned)
    view.add(np.arange(50), vectors)
    query = unit_vectors(1, DIM, 4)[0]
    page = view.search(query, 50)
    scale = Background(vectors, 50, blades=blades, unsigned=unsigned).scale(query)
    assert scale.mean == pytest.approx(float(page.scores.mean()), abs=1e-5)
    assert scale.spread == pytest.approx(float(page.scores.std()), rel=1e-4)


def test_scores_of_long_vectors_are_those_of_the_sample() -> None:
    vectors, query = unit_vectors(100, 1100), unit_vectors(1, 1100, 4)[0]
    scale = Background(vectors, 100).scale(query)
    assert scale.mean == pytest.approx(float((vectors @ query).mean()), abs=1e-6)
    assert scale.spread == pytest.approx(float((vectors @ query).std()), rel=1e-4)


def test_a_collection_of_equal_vectors_has_finite_numbers() -> None:
    vectors = np.repeat(unit_vectors(1, DIM), 30, axis=0)
    background = scoring.measure_background(_view(vectors))
    assert background is not None
    assert np.isfinite(background.scale(vectors[0]).z_scores(np.ones(1, dtype=np.float32))).all()


class _Shrinking(CosineView):
    """A view of which keys are removed right after somebody has asked which there are."""

    def __init__(self, gone: int) -> None:
        super().__init__(DIM)
        self.add(np.arange(1, COUNT + 1), _around(0, COUNT, 1))
        self._gone = gone

    def keys(self) -> Keys:
        """Return the keys that were there."""
        keys = super().keys()
        self.remove(np.arange(1, self._gone + 1))
        return keys


def test_what_is_removed_meanwhile_is_left_out_of_the_sample() -> None:
    view = _Shrinking(gone=30)
    background = scoring.measure_background(view)
    assert background is not None
    assert len(background.sample) == background.count == len(view) == COUNT - 30


def test_there_is_no_background_where_all_is_removed_meanwhile(engine: SearchEngine) -> None:
    generation = begin_generation(engine, "c", DIM)
    with engine.home.catalogue.reading() as reading:
        assert KeptBackground().get(reading, generation, _Shrinking(gone=COUNT)) is None
    assert scoring.measure_background(_Shrinking(gone=COUNT)) is None


def test_the_same_seed_draws_the_same_keys() -> None:
    keys = np.arange(100, dtype=np.int64) * 7
    assert scoring.draw(keys, 100, 0).tolist() == keys.tolist()
    drawn = scoring.draw(keys, 10, 0)
    assert drawn.tolist() == scoring.draw(keys, 10, 0).tolist() == sorted(set(drawn.tolist()))
    assert drawn.tolist() != scoring.draw(keys, 10, 1).tolist()


def test_a_background_is_kept_until_the_view_has_grown_by_half(engine: SearchEngine) -> None:
    generation = put_records(engine, make_records(60), DIM)
    backgrounds = KeptBackground()
    view = _view(unit_vectors(60, DIM))
    with engine.home.catalogue.reading() as reading:
        first = backgrounds.get(reading, generation, view)
        assert first is not None
        assert first.vocabulary is not None
        # Each third image has no text; labels are words as well.
        assert {"text", "57", "58", "cardiomegaly"} - set(first.vocabulary.weights) == {"57"}
        assert first.knows("text 58")
        assert not first.knows("a dog on a beach")
        view.add(np.arange(61, 90), unit_vectors(29, DIM, 5))
        assert backgrounds.get(reading, generation, view) is first
        assert backgrounds.get(reading, generation, _view(unit_vectors(39, DIM))) is not first
        of_texts = KeptBackground().get(reading, generation, view, "texts")
        assert of_texts is not None and of_texts.vocabulary is None
        view.add(np.arange(90, 102), unit_vectors(12, DIM, 6))
        grown = backgrounds.get(reading, generation, view)
        assert grown is not first
        assert grown is not None
        assert grown.count == 101
        assert backgrounds.get(reading, generation, view) is grown
        assert backgrounds.get(reading, generation, CosineView(DIM)) is None


def test_threads_that_come_together_measure_once(engine: SearchEngine) -> None:
    generation = put_records(engine, make_records(60), DIM)
    backgrounds = KeptBackground()
    view = _view(unit_vectors(60, DIM))
    results: list[Background | None] = []

    def ask(_: Event) -> None:
        with engine.home.catalogue.reading() as reading:
            results.append(backgrounds.get(reading, generation, view))

    with concurrently(*[ask] * 6):
        pass
    assert len(results) == 6
    assert all(background is results[0] for background in results)


REPORTS = [
    [f"A {size} effusion on the {side} of a man.", f"The heart of a man is {state}."]
    for size in ("large", "small")
    for side in ("left", "right")
    for state in ("enlarged", "normal", "of normal size")
]
CHINESE = [["左侧少量胸腔积液"], ["心脏增大"], ["双肺清晰"], ["右侧大量气胸"]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("large effusion", True),
        ("The enlarged HEART of a man", True),
        ("a photograph of a dog", False),
        ("dog", False),
        ("the man of the match", False),
        ("\N{DOG FACE}", False),
        ("big right effusion", False),
    ],
)
def test_a_text_is_known_by_its_words_and_rare_words_count_more(text: str, expected: bool) -> None:
    assert Vocabulary.from_texts(REPORTS).knows(text) is expected


def test_words_are_unknown_only_beyond_what_own_texts_have() -> None:
    """Every second own text has a word of its own, so that a query may have one."""
    texts = [[f"a heart of size{number}" if number % 2 else "a heart of normal size"] for number in range(40)]
    vocabulary = Vocabulary.from_texts(texts)
    assert vocabulary.knows("a heart of marble") is True
    assert vocabulary.knows("marble") is False


def test_a_vocabulary_golden() -> None:
    """By hand: a word counts once for each image, and a text is covered by words of other images."""
    result = Vocabulary.from_texts([["a heart", "A heart: a film"], ["a lung"], []])
    once, twice = log(4), log(2)
    assert result.weights == {"a": twice, "heart": once, "film": once, "lung": once}
    assert result.unknown == pytest.approx((3 * once + 2 * twice) / 5)
    assert result.coverage_threshold == pytest.approx(twice / (twice + 2 * result.unknown))
    requests = ("a dog sleeps", "a dog sleeps well", "film of dog", "dog", "")
    assert [result.knows(text) for text in requests] == [True, False, True, False, False]


@pytest.mark.parametrize("texts", [CHINESE, [["words"], ["none", "alike"]], [[], []], []])
def test_texts_without_words_in_common_say_nothing(texts: list[list[str]]) -> None:
    assert Vocabulary.from_texts(texts).knows("a dog") is True


WIDE = 48
LABELS = [f"sign{number}" for number in range(14)]
_DRAWS = 60


def _near(rows: Vectors, noise: float, seed: int) -> Vectors:
    return unit(rows + np.float32(noise) * unit_vectors(len(rows), rows.shape[1], seed))


def _at_chance(seed: int, kinds: int, noise: float, hub: float, dim: int) -> Outcomes:
    """What texts find among images of the same kinds that an encoder puts elsewhere, around one direction."""
    random = np.random.default_rng(seed)
    shares = 1 / np.arange(1, kinds + 1)
    images = random.choice(kinds, 200, p=shares / shares.sum())
    texts = np.repeat(images[:100], 2)
    results = []
    for index, rows in enumerate((images, texts)):
        centres = unit_vectors(kinds, dim, 2 * seed + index + 10)
        results.append(_near(centres[rows] + hub * unit_vectors(1, dim, seed + 5000 + index), noise, seed))
    scores = results[1] @ results[0].T
    first = np.argsort(-scores, axis=1)[:, :10]
    right = (images[first] == texts[:, None]).mean(axis=1)
    chance = np.bincount(images, minlength=kinds)[texts] / len(images)
    return Outcomes(scores.max(axis=1).astype(np.float64), right - chance, texts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kinds", "noise", "hub", "dim"),
    [(14, 0.3, 0.0, 8), (14, 1.0, 2.0, 32), (40, 0.3, 1.0, 16), (100, 2.0, 0.0, 32)],
)
def test_an_encoder_at_chance_is_confident_at_most_once_in_twenty(
    kinds: int, noise: float, hub: float, dim: int
) -> None:
    """Images and texts of a kind lie together, so that a whole kind may be right by chance."""
    flagged = [
        scoring.least_known(_at_chance(seed, kinds, noise, hub, dim)) is not None for seed in range(_DRAWS)
    ]
    assert np.mean(flagged) <= 0.05


def _outcomes(scores: Sequence[float], excess: Sequence[float], kinds: Sequence[int]) -> Outcomes:
    return Outcomes(np.array(scores, float), np.array(excess, float), np.array(kinds))


def test_a_score_counts_down_to_where_queries_are_no_longer_right() -> None:
    random = np.random.default_rng(0)
    scores = np.linspace(1, 0, 400)
    excess = np.where(scores > 0.5, 0.6, 0.0) + 0.1 * random.standard_normal(400)
    least = scoring.least_known(
        _outcomes(scores.tolist(), excess.tolist(), random.integers(0, 40, 400).tolist())
    )
    assert least is not None
    assert 0.5 < least <= 0.65
    # What is right further down does not count: a query just above it would not be.
    gap = np.where((scores > 0.8) | (scores < 0.4), 0.6, -0.1)
    least = scoring.least_known(
        _outcomes(scores.tolist(), gap.tolist(), random.integers(0, 40, 400).tolist())
    )
    assert least == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize("kinds", [1, scoring.MIN_KINDS - 1, scoring.MIN_KINDS, 40])
def test_queries_of_few_kinds_are_no_evidence_however_many(kinds: int) -> None:
    queries = range(500)
    result = _outcomes([1 - n / 500 for n in queries], [0.7] * 500, [n % kinds for n in queries])
    assert (scoring.least_known(result) is not None) == (kinds >= scoring.MIN_KINDS)


@pytest.mark.parametrize(
    ("count", "right", "least"), [(100, 100, 0), (100, 50, 50), (100, 57, 50), (105, 105, 0), (9, 9, None)]
)
def test_steps_are_tenths_and_the_last_takes_the_rest(count: int, right: int, least: int | None) -> None:
    positions = range(count, 0, -1)
    excess = [0.5 if position > count - right else -0.5 for position in positions]
    result = _outcomes([*positions], excess, [position % scoring.MIN_KINDS for position in positions])
    assert scoring.least_known(result) == (None if least is None else least + 1)


@pytest.mark.parametrize(("mean", "sure"), [(0.6, False), (0.62, True)])
def test_ten_kinds_are_tested_at_five_percent(mean: float, sure: bool) -> None:
    """By Student's t the mean must exceed 1.833 standard errors, here 0.611; all kinds weigh the same."""
    for kinds in ([*range(10)], [*range(10), 0, 0, 0, 0]):
        excess = [mean + (1 if kind % 2 else -1) for kind in kinds]
        assert (scoring.least_known(_outcomes([1.0] * len(kinds), excess, kinds)) is not None) is sure


def test_flags_are_counted_with_the_thresholds_of_the_other_half() -> None:
    """Pairs of queries are right down to a score above 0.5, but for two kinds: one always, and one never."""
    positions, kinds = np.arange(400), np.arange(400) % 40
    excess = np.where((kinds == 7) | ((positions < 200) & (kinds != 8)), 0.5, -0.5)
    result = Outcomes(1 - positions // 2 / 200, excess, kinds)
    counts = scoring._cross_checked(result, np.array([0.9, 0.8, *[0.1] * 158]))
    assert [*counts.model_dump().values()] == [200, 195, 200, 195, 160, 158]


def test_a_hit_is_right_by_image_text_or_labels_and_chance_is_taken_off() -> None:
    messages = [("ab", ()), ("a", ("other",)), ("", ("text",)), ("", ())]
    sample = [scoring._Facts(frozenset(labels), frozenset(texts)) for labels, texts in messages]
    facts = dict(enumerate(sample, 1))
    for labels, image, right, chance in (("ab", 4, 3, 2), ("", 4, 2, 1), ("a", None, 2, 2)):
        query = scoring._Query("text", frozenset(labels), image, "kind")
        excess = scoring._excess(query, [1, 2, 3, 4, 99], facts, sample, 100)
        assert excess == pytest.approx(right / 5 - chance / 4)
    own = scoring._Query("no", frozenset(), 1, "kind")
    assert [scoring._excess(own, hits, facts, sample, 100) for hits in ([], [1])] == [-0.01, 0.99]


def test_what_was_measured_holds_within_a_factor() -> None:
    background = Background(np.ones((1, 2), np.float32), 60)
    assert [background.fits(count) for count in (39, 40, 90, 91)] == [False, True, True, False]
    assert not background.knows("anything")
    none = scoring.FlagCounts(
        true=0, true_right=0, false=0, false_right=0, unanswerable=0, unanswerable_right=0
    )
    measured = Confidence(count=60, held_out=0, kinds=0, known=0.5, counts=none)
    assert [measured.fits(count) for count in (49, 50, 72, 73)] == [False, True, True, False]
    assert [measured.least(known=known) for known in (True, False)] == [0.5, inf]


def test_unknown_words_need_a_score_that_few_unanswerable_phrases_reach() -> None:
    scores = np.linspace(0, 0.99, 100)
    assert scoring.least_unknown(0.3, scores) == nextafter(0.98, 1)
    assert scoring.least_unknown(0.995, scores) == 0.995
    assert scoring.least_unknown(None, scores) is None
    assert scoring.least_unknown(0.3, scores[:39]) == nextafter(0.38, 1)
    # One in forty cannot be told from fewer.
    assert scoring.least_unknown(0.3, scores[:38]) is None


@pytest.mark.parametrize(("degrees", "expected"), [(9, 1.833), (19, 1.729), (49, 1.677)])
def test_quantiles_of_student_are_those_of_the_tables(degrees: int, expected: float) -> None:
    assert scoring._student(0.95, degrees) == pytest.approx(expected, abs=2e-3)


class _Texts:
    """An encoder that puts a label where its images are, and every other text anywhere."""

    modalities: Collection[str] = ("image", "text")

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed_texts(self, texts: Sequence[str]) -> TextEmbeddings:
        self.asked += texts
        rows = [
            _centres()[LABELS.index(text)] if text in LABELS else unit_vectors(1, WIDE, 900 + len(text))[0]
            for text in texts
        ]
        return TextEmbeddings(np.stack(rows), (None,) * len(rows), (1,) * len(rows))


def _centres() -> Vectors:
    return unit_vectors(len(LABELS), WIDE, 1)


def _collection(
    engine: SearchEngine, count: int, *, split: Split = "test", good: bool = True, labelled: bool = True
) -> Generation:
    """Images of 14 labels, each with its own text, whose vector is near them or anywhere."""
    of_label = np.arange(count) % len(LABELS)
    records = [
        Record(
            id=f"i{number}",
            image="a.png",
            split=split,
            texts=(f"a film with {LABELS[label]} number{number}",),
            labels=(LABELS[label],) if labelled else (),
        )
        for number, label in enumerate(of_label)
    ]
    generation = begin_generation(engine, "c", WIDE)
    texts = _near(_centres()[of_label], 0.5, 3) if good else unit_vectors(count, WIDE, 4)
    put_vectors(engine, generation, records, _near(_centres()[of_label], 0.5, 2), texts)
    return generation


def _asked(engine: SearchEngine, text: str, target: Target = "images") -> bool | None:
    vector = _Texts().embed_texts([text]).vectors[0]
    request = SearchRequest(kind="text", target=target)
    return engine.search(engine.active("c"), vector, request, text).confident


def _measured(engine: SearchEngine, generation: Generation, encoder: _Texts) -> Confidence:
    engine.measure_confidence(generation.id, encoder)
    measured = engine.confidence(engine.active("c"))
    assert measured is not None
    return measured


def test_labels_and_texts_are_confident_and_what_nothing_answers_is_not(engine: SearchEngine) -> None:
    generation = _collection(engine, 140)
    assert _asked(engine, LABELS[0]) is None
    measured = _measured(engine, generation, _Texts())
    assert [_asked(engine, label) for label in LABELS] == [True] * len(LABELS)
    unanswered = ["a fractured femur", "a dog on a beach", "ein Zug", "an invoice"]
    unanswered += ["sign99", "melanoma", "\u00bf"]
    assert [_asked(engine, text) for text in unanswered] == [False] * len(unanswered)
    # It is of one text that searches images.
    active = engine.active("c")
    assert _asked(engine, LABELS[0], "texts") is None
    assert engine.search(active, _centres()[0], SearchRequest(kind="image")).confident is None
    first = engine.search(active, _centres()[0], SearchRequest(k=5, kind="text"), LABELS[0])
    later = SearchRequest(k=5, kind="text", cursor=first.next_cursor)
    assert engine.search(active, _centres()[0], later, LABELS[0]).confident is True
    assert measured.counts is not None
    assert (measured.held_out, measured.kinds, measured.count) == (140, 14, 140)
    assert measured.counts.unanswerable > 40
    assert measured.counts.unanswerable_right >= 0.9 * measured.counts.unanswerable


def test_images_without_labels_are_right_by_their_own_text(engine: SearchEngine) -> None:
    generation = _collection(engine, 140, labelled=False)
    measured = _measured(engine, generation, _Texts())
    assert measured.kinds == 140
    assert measured.known is not None


def test_texts_that_find_nothing_make_nothing_confident(engine: SearchEngine) -> None:
    generation = _collection(engine, 140, good=False, labelled=False)
    measured = _measured(engine, generation, _Texts())
    assert (measured.known, measured.unknown) == (None, None)
    assert [measured.least(known=known) for known in (True, False)] == [inf, inf]
    assert [_asked(engine, text) for text in ("sign1", "a film", "a dog")] == [False] * 3


@pytest.mark.parametrize(("count", "split"), [(scoring.MIN_IMAGES - 1, "test"), (140, "train")])
def test_nothing_is_said_where_too_few_are_held_out(engine: SearchEngine, count: int, split: Split) -> None:
    generation = _collection(engine, count, split=split)
    encoder = _Texts()
    measured = _measured(engine, generation, encoder)
    assert (measured.counts, measured.held_out) == (None, count if split == "test" else 0)
    assert encoder.asked == []
    assert _asked(engine, LABELS[0]) is None


def test_it_is_measured_again_once_the_collection_has_grown(engine: SearchEngine) -> None:
    generation = _collection(engine, 100)
    engine.measure_confidence(generation.id, _Texts(), grown=True)
    for count, again in ((100, False), (110, False), (140, True)):
        _collection(engine, count)
        encoder = _Texts()
        engine.measure_confidence(generation.id, encoder, grown=True)
        assert bool(encoder.asked) == again
    measured = engine.confidence(engine.active("c"))
    assert measured is not None
    assert measured.count == 140


def test_what_another_version_measured_is_not_used(engine: SearchEngine) -> None:
    generation = _collection(engine, 60)
    with engine.home.catalogue.write() as session:
        session.execute(update(GenerationRow).values(confidence={"threshold": 0.3}))
    assert engine.confidence(engine.active("c")) is None
    engine.measure_confidence(generation.id, _Texts(), grown=True)
    assert isinstance(engine.confidence(engine.active("c")), Confidence)


def test_phrases_are_many_and_different() -> None:
    assert len(set(scoring.PHRASES)) == len(scoring.PHRASES) > 100
