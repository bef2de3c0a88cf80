"""Queries that codes or a graph were not planned for: their hits are found as surely as those of others."""

from pathlib import Path

import numpy as np
import pytest

from index.vectors.protocol import Vectors, ViewName, unit
from index.vectors.view import CosineView
from tests.benchmarks.search.made_vectors import make_clusters, make_vectors
from tests.index.samples import unit_vectors
from tests.index.vectors.coding import COUNT, Both, clustered

# Minutes, and recall of other queries is measured beside them.
pytestmark = pytest.mark.slow

# The same codes as "ivf", of vectors in files.
_MAPPED = pytest.param("mapped", marks=pytest.mark.slow)
# As codes are made for them.
_USUAL = 8000
_DIM = 128


def _tight(count: int, seed: int, far: float = 0.15) -> Vectors:
    """Vectors so near a centre, which no others have, that codes hardly tell them apart."""
    noise = np.random.default_rng(seed).standard_normal((count, _DIM)) / np.sqrt(_DIM)
    return unit((unit_vectors(1, _DIM, seed=77) + far * noise).astype(np.float32))


def _noisy(vectors: Vectors, seed: int) -> Vectors:
    return unit(vectors + 0.3 * unit_vectors(len(vectors), vectors.shape[1], seed=seed))


def _mixed(usual: Vectors, tight: Vectors) -> Both:
    both = Both(_DIM)
    both.append(usual)
    both.append(tight)
    return both


@pytest.mark.parametrize("name", ["ivf", _MAPPED])
def test_a_small_kind_that_was_there_at_the_build(name: ViewName, tmp_path: Path) -> None:
    both = _mixed(make_vectors(_USUAL, 1, _DIM, seed=3).vectors, _tight(200, seed=1))
    both.build(name, tmp_path)
    half = np.union1d(np.arange(0, both.count, 2), np.arange(_USUAL, both.count))
    for queries in (_tight(60, seed=2), _noisy(_tight(60, seed=3), seed=4)):
        assert both.recall(queries) >= 0.99
        assert both.recall(queries, 40) >= 0.99
        assert both.recall_of_many(queries) >= 0.99
        assert both.recall(queries, allowed=half) >= 0.99


@pytest.mark.parametrize("name", ["ivf", _MAPPED])
@pytest.mark.parametrize("count", [40, 150])
def test_vectors_that_differ_by_less_than_rounding(name: ViewName, count: int, tmp_path: Path) -> None:
    alike = _tight(count, seed=1, far=0.01)
    both = _mixed(make_vectors(_USUAL, 1, _DIM, seed=3).vectors, alike)
    both.build(name, tmp_path)
    half = np.union1d(np.arange(0, both.count, 2), np.arange(_USUAL, both.count))
    for queries in (_tight(40, seed=2, far=0.01), both.view.vectors(np.arange(_USUAL, _USUAL + 40))):
        for k in (1, 11):
            assert both.recall(queries, k) >= 0.995
        assert both.recall(queries, allowed=half) >= 0.995
        assert both.recall_of_many(queries) >= 0.995


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_few_hits_are_as_sure_as_ten(k: int) -> None:
    kind = _tight(_USUAL // 20, seed=1, far=0.4)
    both = _mixed(make_vectors(_USUAL, 1, _DIM, seed=3).vectors, kind)
    both.build()
    queries = _tight(200, seed=2, far=0.4)
    assert both.recall(queries, k) >= 0.99


def test_beside_a_large_kind_that_codes_do_not_tell_apart() -> None:
    usual = make_vectors(_USUAL, 100, _DIM, seed=3)
    both = _mixed(usual.vectors, _tight(_USUAL // 3, seed=1))
    both.build()
    # Others are still found by codes.
    assert np.mean([both.view.search(query, 10).exact for query in usual.text_queries]) < 0.3
    assert both.recall(usual.text_queries) >= 0.99
    queries = np.concatenate((_tight(40, seed=2), usual.text_queries))
    queries = queries[np.random.default_rng(0).permutation(140)]
    for k in (10, 40):
        assert both.recall(queries, k) >= 0.99
    assert both.recall_of_many(queries) >= 0.99


def test_a_kind_that_comes_little_by_little() -> None:
    usual = make_vectors(_USUAL + 6000, 30, _DIM, seed=3)
    both = _mixed(usual.vectors[:_USUAL], _tight(1, seed=1))
    both.build()
    queries = np.concatenate((_tight(30, seed=2), usual.text_queries))
    for step in range(6):
        both.append(usual.vectors[_USUAL + 1000 * step :][:1000])
        both.append(_tight(40, seed=20 + step))
        if both.view.has_pending and not both.view.encode_pending():
            both.build()
        assert both.recall(queries) >= 0.99
        assert both.recall_of_many(queries) >= 0.99


@pytest.mark.parametrize("name", ["ivf", _MAPPED])
def test_near_what_went(name: ViewName, tmp_path: Path) -> None:
    both = Both.clustered(name, tmp_path)
    vectors = clustered(COUNT, seed=0)
    nearest = np.argsort(-(vectors @ vectors[0]))
    queries = _noisy(vectors[nearest[:60]], seed=1)
    for gone in (300, 2600):
        both.remove(nearest[:gone])
        assert both.view.name == name
        assert both.recall(queries) >= 0.99
        assert both.recall_of_many(queries) >= 0.99
        assert both.recall(clustered(60, seed=5)) >= 0.99


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_single_query_far_from_the_half_that_passes_finds_nine_of_ten(seed: int) -> None:
    made = make_clusters(60_000, 1000, 512, seed)
    view = CosineView(512)
    view.add(np.arange(60_000), made.vectors)
    assert view.build()
    pivot = made.vectors[0]
    passing = np.sort(np.argsort(made.vectors @ pivot)[30_000:])
    stored = view.vectors(passing)
    for query in made.text_queries[np.argsort(made.text_queries @ pivot)[:250]]:
        expected = passing[np.argsort(-(stored @ query))[:10]]
        found = view.search(query, 10, allowed=passing).keys
        assert len(np.intersect1d(found, expected)) >= 9


_FAR, _FAR_DIM, _CENTRES = 20_000, 96, 200
# Queries that lie apart from all vectors: those of another encoder, where the two do not meet.
_BASE = unit_vectors(1, _FAR_DIM, seed=30)
_CENTRED = unit_vectors(_CENTRES, _FAR_DIM, seed=31)


def _around(base: Vectors, count: int, seed: int) -> Vectors:
    own = np.random.default_rng(seed).integers(_CENTRES, size=count)
    return unit(
        base + np.float32(0.5) * _CENTRED[own] + np.float32(0.3) * unit_vectors(count, _FAR_DIM, seed=seed)
    )


@pytest.mark.parametrize("given", [0, 1000])
def test_queries_far_from_all_vectors_find_theirs_with_and_without_stored_queries(given: int) -> None:
    view, vectors = CosineView(_FAR_DIM), _around(_BASE, _FAR, seed=1)
    view.add(np.arange(_FAR), vectors)
    queries = _around(-_BASE, 1300, seed=2)
    assert view.build("ivf", stored_queries=queries[:given] if given else None)
    stored = view.vectors(np.arange(_FAR))
    found = 0
    for query in queries[1000:]:
        one = view.search(query, 10)
        true = np.argpartition(-(stored @ query), 10)[:10]
        found += np.isin(one.keys, true).sum()
    assert found >= 0.99 * 10 * 300


def test_texts_find_images_of_a_collection_without_texts() -> None:
    """Images of 2,000 kinds, of 30 each; texts share a part of 64 numbers with them, and lie far away."""
    count, dim, kinds, queries = 60_000, 512, 2_000, 300
    draw = np.random.default_rng(7)

    def drawn(*shape: int) -> Vectors:
        return unit(draw.standard_normal(shape, dtype=np.float32))

    shared = drawn(64, dim)
    subjects = unit(draw.standard_normal((kinds, 64), dtype=np.float32) @ shared)
    of_images, of_texts = drawn(2, dim)
    own, wanted = draw.integers(kinds, size=count), draw.integers(kinds, size=queries)
    images = unit(
        np.float32(0.75) * of_images + np.float32(0.55) * subjects[own] + np.float32(0.35) * drawn(count, dim)
    )
    texts = unit(
        np.float32(0.8) * of_texts
        + np.float32(0.45) * subjects[wanted]
        + np.float32(0.4) * drawn(queries, dim)
    )
    view = CosineView(dim)
    view.add(np.arange(count), images)
    assert view.build("ivf")
    assert view.name == "ivf"
    scores = texts @ view.vectors(np.arange(count)).T
    last = np.partition(scores, -10, axis=1)[:, -10]
    # They lie apart, and the nearest ten are of the text's kind: one that is missed is a miss.
    assert np.median(scores.max(axis=1)) < 0.35
    found = [view.search(text, 10) for text in texts]
    recalls = [float((page.scores >= low - 1e-6).mean()) for page, low in zip(found, last, strict=True)]
    assert np.mean(recalls) >= 0.995
    assert min(recalls) >= 0.9
    assert all((own[page.keys] == kind).all() for page, kind in zip(found, wanted, strict=True))
