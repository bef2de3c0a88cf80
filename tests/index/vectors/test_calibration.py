"""Queries that lie apart from all vectors: those of another encoder, where the two do not meet."""

import numpy as np
import pytest

from index.vectors.codec import unit
from index.vectors.protocol import Vectors
from index.vectors.view import CosineView
from tests.index.samples import unit_vectors

COUNT, DIM, CENTRES = 20_000, 96, 200
BASE = unit_vectors(1, DIM, seed=30)
CENTRED = unit_vectors(CENTRES, DIM, seed=31)


def _around(base: Vectors, count: int, seed: int) -> Vectors:
    own = np.random.default_rng(seed).integers(CENTRES, size=count)
    return unit(base + np.float32(0.5) * CENTRED[own] + np.float32(0.3) * unit_vectors(count, DIM, seed=seed))


@pytest.mark.slow
@pytest.mark.parametrize("given", [0, 1000])
def test_queries_far_from_all_vectors_find_theirs_with_and_without_stored_queries(given: int) -> None:
    view, vectors = CosineView(DIM), _around(BASE, COUNT, seed=1)
    view.add(np.arange(COUNT), vectors)
    queries = _around(-BASE, 1300, seed=2)
    assert view.build("ivf", stored_queries=queries[:given] if given else None)
    stored = view.vectors(np.arange(COUNT))
    found = 0
    for query in queries[1000:]:
        one = view.search(query, 10)
        true = np.argpartition(-(stored @ query), 10)[:10]
        found += np.isin(one.keys, true).sum()
    assert found >= 0.99 * 10 * 300


@pytest.mark.slow
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
