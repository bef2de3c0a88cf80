"""The background of scores: what is unusual, and when the collection has nothing of the kind."""

import threading
from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray
from sqlalchemy import delete, insert, select

from index.catalogue.collections import Generation
from index.catalogue.tables import ImageRow, TextEmbeddingRow, TextRow
from index.engine import SearchEngine
from index.scoring.background import Background, Backgrounds, measure_background
from index.scoring.sample_queries import (
    QueryKind,
    ReferenceQueries,
    draw,
    reference_images,
    reference_queries,
)
from index.scoring.vocabulary import Vocabulary
from index.vectors.codec import encode_vectors
from index.vectors.protocol import Keys, Vectors
from index.vectors.vector_view import VectorView
from index.vectors.view import CosineView
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


def _own(vectors: Vectors) -> ReferenceQueries:
    keys = np.arange(1, len(vectors) + 1)
    return ReferenceQueries(vectors, keys, [keys[place : place + 1] for place in range(len(vectors))])


def _measured(
    view: VectorView, own: Mapping[QueryKind, ReferenceQueries], vocabulary: Vocabulary | None = None
) -> Background:
    background = measure_background(view, own, vocabulary=vocabulary)
    assert background is not None
    return background


@pytest.fixture(scope="module")
def background() -> Background:
    """Images around the first axis; their texts around the second, leaning to the first."""
    images = _around(0, COUNT, 1)
    texts = _unit(_around(1, COUNT, 2) + 0.3 * images)
    return _measured(_view(images), {"image": _own(images), "text": _own(texts)})


def test_unusual_equals_its_definition(background: Background) -> None:
    query = _around(0, 1, 5)[0]
    scores = np.array([0.9, 0.5, -0.2, 2.0], dtype=np.float32)
    every = background.sample @ query
    scale = background.scale(query, "image")
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
        assert background.scale(query, None).spread == pytest.approx(
            expected, rel=6e-3, abs=max(3e-4 * largest, 1e-6)
        )


@pytest.mark.parametrize("kind", ["image", "text"])
def test_queries_like_the_own_ones_are_confident_and_foreign_ones_are_not(
    background: Background, kind: QueryKind
) -> None:
    usual = _around(0, 100, 11)
    if kind == "text":
        usual = _unit(_around(1, 100, 11) + 0.3 * _around(0, 100, 13))
    images = background.sample

    def confident(query: Vectors) -> bool | None:
        return background.scale(query, kind).confident((images @ query).tolist())

    like_own = [confident(query) for query in usual]
    foreign = [confident(query) for query in _around(7, 100, 12)]
    assert np.mean([value is True for value in like_own]) > 0.85
    assert np.mean([value is True for value in foreign]) < 0.1


def test_what_stands_out_is_confident_though_foreign() -> None:
    """One image of another kind is there to be found."""
    images = _around(0, COUNT, 1)
    rare = _around(7, 1, 4, noise=0.1)
    view = _view(np.concatenate((images, rare)))
    background = _measured(view, {"image": _own(images)})
    query = _around(7, 1, 6, noise=0.1)[0]
    scale = background.scale(query, "image")
    assert scale.in_domain is False
    assert scale.confident(view.search(query, 1).scores.tolist()) is True
    assert scale.confident((images @ query).tolist()) is False


def test_a_text_that_the_encoder_cannot_read_is_not_confident_however_near() -> None:
    images, texts = _around(0, COUNT, 1), _around(0, COUNT, 2)
    reports = [["A large effusion on the left."], ["The heart of a man is enlarged."]] * 50
    known = _measured(_view(images), {"text": _own(texts)}, Vocabulary.of(reports))
    for query in (_around(0, 1, 3, noise=0)[0], _around(7, 1, 3)[0]):
        for best in (-1.0, 1.0):
            usual = known.scale(query, "text").confident([best])
            for text, expected in (
                ("large effusion", usual),
                ("left heart of marble", usual and None),
                ("a photograph of a dog", False),
            ):
                assert known.scale(query, "text", text).confident([best]) is expected


def test_nothing_is_said_where_nothing_is_known(background: Background) -> None:
    query = _around(0, 1, 5)[0]
    assert background.scale(query, None).confident([1.0]) is None
    few = _own(_around(0, 19, 1))
    known = _measured(_view(_around(0, COUNT, 1)), {"text": few})
    assert known.scale(query, "text").confident([1.0]) is None


@pytest.mark.parametrize(("blades", "unsigned"), [(1, False), (3, False), (1, True)])
def test_scores_are_those_of_the_view(blades: int, unsigned: bool) -> None:
    vectors = unit_vectors(50, DIM, 3)
    view = ReferenceView(DIM, blades, unsigned=unsigned)
    view.add(np.arange(50), vectors)
    query = unit_vectors(1, DIM, 4)[0]
    found = view.search(query, 50)
    scale = Background(vectors, 50, blades=blades, unsigned=unsigned).scale(query, "image")
    assert scale.mean == pytest.approx(float(found.scores.mean()), abs=1e-5)
    assert scale.spread == pytest.approx(float(found.scores.std()), rel=1e-4)


def test_scores_of_long_vectors_are_those_of_the_sample() -> None:
    vectors, query = unit_vectors(100, 1100), unit_vectors(1, 1100, 4)[0]
    scale = Background(vectors, 100).scale(query, None)
    assert scale.mean == pytest.approx(float((vectors @ query).mean()), abs=1e-6)
    assert scale.spread == pytest.approx(float((vectors @ query).std()), rel=1e-4)


def test_a_collection_of_equal_vectors_has_finite_numbers() -> None:
    vectors = np.repeat(unit_vectors(1, DIM), 30, axis=0)
    background = _measured(_view(vectors), {"image": _own(vectors)})
    scale = background.scale(vectors[0], "image")
    assert np.isfinite(scale.z_scores(np.ones(1, dtype=np.float32))).all()
    assert scale.confident([1.0]) is True


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
    background = _measured(view, {})
    assert len(background.sample) == background.count == len(view) == COUNT - 30


def test_there_is_no_background_where_all_is_removed_meanwhile(engine: SearchEngine) -> None:
    generation = begin_generation(engine, "c", DIM)
    with engine.home.catalogue.reading() as reading:
        assert Backgrounds().of(reading, generation, _Shrinking(gone=COUNT)) is None
    assert measure_background(_Shrinking(gone=COUNT), {}) is None


def test_the_same_seed_draws_the_same_keys() -> None:
    keys = np.arange(100, dtype=np.int64) * 7
    assert draw(keys, 100, 0).tolist() == keys.tolist()
    drawn = draw(keys, 10, 0)
    assert drawn.tolist() == draw(keys, 10, 0).tolist() == sorted(set(drawn.tolist()))
    assert drawn.tolist() != draw(keys, 10, 1).tolist()


def _fill(engine: SearchEngine, count: int) -> Generation:
    """Images with up to two texts each, which have vectors as the images have."""
    generation = begin_generation(engine, "c", DIM)
    put_vectors(engine, generation, make_records(count), unit_vectors(count, DIM))
    with engine.home.catalogue.write() as session:
        session.execute(delete(TextEmbeddingRow))
        texts = session.execute(select(TextRow.id).order_by(TextRow.id)).scalars().all()
        values = encode_vectors(unit_vectors(len(texts), DIM, 2))
        session.execute(
            insert(TextEmbeddingRow),
            [
                {"generation_id": generation.id, "text_id": key, "sequence": 1, "vector": value}
                for key, value in zip(texts, values, strict=True)
            ],
        )
    return generation


def test_own_queries_are_stored_vectors_and_leave_their_image_out(engine: SearchEngine) -> None:
    generation = _fill(engine, 60)
    with engine.home.catalogue.read() as session:
        images = np.array(session.execute(select(ImageRow.id).order_by(ImageRow.id)).scalars().all())
        rows = session.execute(select(TextRow.id, TextRow.image_id).order_by(TextRow.id)).all()
        texts = np.array([key for key, _ in rows])
        assert reference_images(session, images, "images") == images.tolist()
        with_text = reference_images(session, texts, "texts")
        assert with_text == sorted({image for _, image in rows})
        found = reference_queries(session, generation, images.tolist(), "images")
        by_text = reference_queries(session, generation, with_text, "texts")
    assert found["image"].owners.tolist() == images.tolist()
    assert [left.tolist() for left in found["image"].left_out] == [[key] for key in images.tolist()]
    np.testing.assert_allclose(found["image"].vectors, unit_vectors(60, DIM), atol=1e-3)
    all_texts = {image: [key for key, owner in rows if owner == image] for image in images.tolist()}
    # The first texts of some, the second ones of others.
    chosen = {
        image: all_texts[image][place % len(all_texts[image])]
        for place, image in enumerate(images.tolist())
        if all_texts[image]
    }
    assert found["text"].owners.tolist() == sorted(chosen)
    places = [texts.tolist().index(chosen[image]) for image in sorted(chosen)]
    np.testing.assert_allclose(found["text"].vectors, unit_vectors(len(texts), DIM, 2)[places], atol=1e-3)
    assert [left.tolist() for left in by_text["image"].left_out] == [
        all_texts[image] for image in by_text["image"].owners.tolist()
    ]


def test_a_background_is_kept_until_the_view_has_grown_by_half(engine: SearchEngine) -> None:
    generation = _fill(engine, 60)
    backgrounds = Backgrounds()
    view = _view(unit_vectors(60, DIM))
    with engine.home.catalogue.reading() as reading:
        first = backgrounds.of(reading, generation, view)
        assert first is not None
        assert set(first.references) == {"image", "text"}
        assert first.vocabulary is not None
        # Each third image has no text.
        assert {"text", "57", "58"} - set(first.vocabulary.weights) == {"57"}
        view.add(np.arange(61, 90), unit_vectors(29, DIM, 5))
        assert backgrounds.of(reading, generation, view) is first
        view.add(np.arange(90, 102), unit_vectors(12, DIM, 6))
        grown = backgrounds.of(reading, generation, view)
        assert grown is not first
        assert grown is not None
        assert grown.count == 101
        backgrounds.keep({generation.id})
        assert backgrounds.of(reading, generation, view) is grown
        backgrounds.keep({generation.id + 1})
        assert backgrounds.of(reading, generation, view) is not grown
        assert backgrounds.of(reading, generation, CosineView(DIM)) is None


def test_threads_that_come_together_measure_once(engine: SearchEngine) -> None:
    generation = _fill(engine, 60)
    backgrounds = Backgrounds()
    view = _view(unit_vectors(60, DIM))
    found: list[Background | None] = []

    def ask() -> None:
        with engine.home.catalogue.reading() as reading:
            found.append(backgrounds.of(reading, generation, view))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 6
    assert all(background is found[0] for background in found)
