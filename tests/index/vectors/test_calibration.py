"""Queries that lie apart from all vectors: those of another encoder, where the two do not meet."""

import numpy as np

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


def test_recall_is_measured_by_queries_like_those_to_come() -> None:
    view, vectors = CosineView(DIM), _around(BASE, COUNT, seed=1)
    view.add(np.arange(COUNT), vectors)
    queries = _around(-BASE, 1300, seed=2)
    assert view.build("ivf", stored_queries=queries[:1000])
    stored = view.vectors(np.arange(COUNT))
    found = 0
    for query in queries[1000:]:
        one = view.search(query, 10)
        true = np.argpartition(-(stored @ query), 10)[:10]
        found += np.isin(one.keys, true).sum()
    assert found >= 0.99 * 10 * 300
