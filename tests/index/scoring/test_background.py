"""The background of scores: what is unusual of a query's, and which words a collection has."""

from threading import Event

import numpy as np
import pytest
from numpy.typing import NDArray

from index.catalogue.collections import Generation
from index.engine import SearchEngine
from index.scoring import Background, KeptBackground, Vocabulary, draw, measure_background
from index.vectors.protocol import Keys, Vectors
from index.vectors.view import CosineView
from tests.index.meanwhile import beside
from tests.index.samples import begin_generation, make_records, put_vectors, unit_vectors
from tests.index.vectors.reference import ReferenceView

DIM = 12
COUNT = 400


def _unit(vectors: NDArray[np.float32]) -> Vectors:
    unit: Vectors = (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)
    return unit


def _around(axis: int, count: int, seed: int, noise: float = 0.5) -> Vectors:
    vectors = noise * unit_vectors(count, DIM, seed)
    vectors[:, axis] += 1
    return _unit(vectors)


def _view(vectors: Vectors) -> CosineView:
    view = CosineView(DIM)
    view.add(np.arange(1, len(vectors) + 1), vectors)
    return view


@pytest.fixture(scope="module")
def background() -> Background:
    """Images around the first axis."""
    found = measure_background(_view(_around(0, COUNT, 1)))
    assert found is not None
    return found


def test_unusual_equals_its_definition(background: Background) -> None:
    query = _around(0, 1, 5)[0]
    scores = np.array([0.9, 0.5, -0.2, 2.0], dtype=np.float32)
    every = background.sample @ query
    scale = background.scale(query)
    np.testing.assert_allclose(scale.z_scores(scores), (scores - every.mean()) / every.std(), rtol=1e-3)


@pytest.mark.parametrize("mean", [0.0, 1.0, 100.0])
@pytest.mark.parametrize("sharpness", [0.0, 0.5, 3.0])
def test_the_covariance_tells_the_spread_of_any_query(sharpness: float, mean: float) -> None:
    """Of vectors that vary alike in all directions up to such that vary in few, around any mean."""
    dim, random = 64, np.random.default_rng(2)
    sizes = (np.arange(dim) + 1.0) ** -sharpness
    turned = np.linalg.qr(random.standard_normal((dim, dim)))[0]
    varying = random.standard_normal((500, dim)) * sizes + mean * random.standard_normal(dim)
    vectors = _unit((varying @ turned).astype(np.float32))
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
    found = view.search(query, 50)
    scale = Background(vectors, 50, blades=blades, unsigned=unsigned).scale(query)
    assert scale.mean == pytest.approx(float(found.scores.mean()), abs=1e-5)
    assert scale.spread == pytest.approx(float(found.scores.std()), rel=1e-4)


def test_scores_of_long_vectors_are_those_of_the_sample() -> None:
    vectors, query = unit_vectors(100, 1100), unit_vectors(1, 1100, 4)[0]
    scale = Background(vectors, 100).scale(query)
    assert scale.mean == pytest.approx(float((vectors @ query).mean()), abs=1e-6)
    assert scale.spread == pytest.approx(float((vectors @ query).std()), rel=1e-4)


def test_a_collection_of_equal_vectors_has_finite_numbers() -> None:
    vectors = np.repeat(unit_vectors(1, DIM), 30, axis=0)
    background = measure_background(_view(vectors))
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
    background = measure_background(view)
    assert background is not None
    assert len(background.sample) == background.count == len(view) == COUNT - 30


def test_there_is_no_background_where_all_is_removed_meanwhile(engine: SearchEngine) -> None:
    generation = begin_generation(engine, "c", DIM)
    with engine.home.catalogue.reading() as reading:
        assert KeptBackground().of(reading, generation, _Shrinking(gone=COUNT)) is None
    assert measure_background(_Shrinking(gone=COUNT)) is None


def test_the_same_seed_draws_the_same_keys() -> None:
    keys = np.arange(100, dtype=np.int64) * 7
    assert draw(keys, 100, 0).tolist() == keys.tolist()
    drawn = draw(keys, 10, 0)
    assert drawn.tolist() == draw(keys, 10, 0).tolist() == sorted(set(drawn.tolist()))
    assert drawn.tolist() != draw(keys, 10, 1).tolist()


def _fill(engine: SearchEngine, count: int) -> Generation:
    generation = begin_generation(engine, "c", DIM)
    put_vectors(engine, generation, make_records(count), unit_vectors(count, DIM))
    return generation


def test_a_background_is_kept_until_the_view_has_grown_by_half(engine: SearchEngine) -> None:
    generation = _fill(engine, 60)
    backgrounds = KeptBackground()
    view = _view(unit_vectors(60, DIM))
    with engine.home.catalogue.reading() as reading:
        first = backgrounds.of(reading, generation, view)
        assert first is not None
        assert first.vocabulary is not None
        # Each third image has no text; labels are words as well.
        assert {"text", "57", "58", "cardiomegaly"} - set(first.vocabulary.weights) == {"57"}
        assert first.knows("text 58")
        assert not first.knows("a dog on a beach")
        view.add(np.arange(61, 90), unit_vectors(29, DIM, 5))
        assert backgrounds.of(reading, generation, view) is first
        view.add(np.arange(90, 102), unit_vectors(12, DIM, 6))
        grown = backgrounds.of(reading, generation, view)
        assert grown is not first
        assert grown is not None
        assert grown.count == 101
        assert backgrounds.of(reading, generation, view) is grown
        assert backgrounds.of(reading, generation, CosineView(DIM)) is None


def test_threads_that_come_together_measure_once(engine: SearchEngine) -> None:
    generation = _fill(engine, 60)
    backgrounds = KeptBackground()
    view = _view(unit_vectors(60, DIM))
    found: list[Background | None] = []

    def ask(_: Event) -> None:
        with engine.home.catalogue.reading() as reading:
            found.append(backgrounds.of(reading, generation, view))

    with beside(*[ask] * 6):
        pass
    assert len(found) == 6
    assert all(background is found[0] for background in found)


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
    assert Vocabulary.of(REPORTS).knows(text) is expected


def test_words_are_unknown_only_beyond_what_own_texts_have() -> None:
    """Every second own text has a word of its own, so that a query may have one."""
    texts = [[f"a heart of size{number}" if number % 2 else "a heart of normal size"] for number in range(40)]
    vocabulary = Vocabulary.of(texts)
    assert vocabulary.knows("a heart of marble") is True
    assert vocabulary.knows("marble") is False


@pytest.mark.parametrize("texts", [CHINESE, [["words"], ["none", "alike"]], [[], []], []])
def test_texts_without_words_in_common_say_nothing(texts: list[list[str]]) -> None:
    assert Vocabulary.of(texts).knows("a dog") is True
