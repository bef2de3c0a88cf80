"""Queries that codes or a graph were not planned for: their hits are found as surely as those of others."""

from pathlib import Path

import numpy as np
import pytest

from index.planner import ViewName
from index.vectors.codec import unit
from index.vectors.protocol import Keys, Vectors
from tests.index.samples import unit_vectors
from tests.index.vectors.coding import COUNT, DIM, Both, clustered, prefer_codes, recall

KIND = 300


def _tight(count: int, seed: int) -> Vectors:
    """Vectors so near a centre, which no others have, that codes hardly tell them apart."""
    made = unit_vectors(1, DIM, seed=77) + 0.02 * np.random.default_rng(seed).standard_normal((count, DIM))
    return unit(made.astype(np.float32))


def _noisy(vectors: Vectors, seed: int) -> Vectors:
    return unit(vectors + 0.3 * unit_vectors(len(vectors), DIM, seed=seed))


def _recall(both: Both, queries: Vectors, k: int = 10, allowed: Keys | None = None) -> float:
    found = [both.view.search(query, k, allowed=allowed) for query in queries]
    return recall(found, [both.reference.search(query, k, allowed=allowed) for query in queries])


def _recall_of_many(both: Both, queries: Vectors) -> float:
    found = both.view.search_many(queries, 10)
    return recall(found, [both.reference.search(query, 10) for query in queries])


@pytest.mark.parametrize("name", ["ivf", "mapped"])
def test_a_small_kind_that_was_there_at_the_build(name: ViewName, tmp_path: Path) -> None:
    both = Both(name, tmp_path)
    both.add(np.arange(COUNT, COUNT + KIND), _tight(KIND, seed=1))
    assert both.view.build(name, tmp_path)
    prefer_codes(both.view)
    for queries in (_tight(60, seed=2), _noisy(_tight(60, seed=3), seed=4)):
        assert _recall(both, queries) >= 0.99
        assert _recall(both, queries, 40) >= 0.99
        assert _recall_of_many(both, queries) >= 0.99
        half = np.union1d(np.arange(0, COUNT, 2), np.arange(COUNT, COUNT + KIND))
        assert _recall(both, queries, allowed=half) >= 0.99


def test_a_kind_that_comes_little_by_little(tmp_path: Path) -> None:
    both = Both("ivf", tmp_path)
    prefer_codes(both.view)
    count = COUNT
    for step in range(6):
        usual, tight = clustered(1000, seed=10 + step), _tight(40, seed=20 + step)
        both.add(np.arange(count, count + 1040), np.concatenate((usual, tight)))
        count += 1040
        if both.view.outgrown and not both.view.keep_up():
            assert both.view.build("ivf", tmp_path)
            prefer_codes(both.view)
        queries = np.concatenate((_tight(30, seed=2), clustered(30, seed=3)))
        assert _recall(both, queries) >= 0.99
        assert _recall_of_many(both, queries) >= 0.99


@pytest.mark.parametrize("name", ["ivf", "mapped", "hnsw"])
def test_near_what_went(name: ViewName, tmp_path: Path) -> None:
    both = Both(name, tmp_path)
    prefer_codes(both.view)
    vectors = clustered(COUNT, seed=0)
    nearest = np.argsort(-(vectors @ vectors[0]))
    queries = _noisy(vectors[nearest[:60]], seed=1)
    for gone in (300, 2600):
        both.remove(nearest[:gone])
        assert both.view.name == name
        assert _recall(both, queries) >= 0.99
        assert _recall_of_many(both, queries) >= 0.99
        assert _recall(both, clustered(60, seed=5)) >= 0.99


@pytest.mark.parametrize("when", ["at the build", "later"])
def test_vectors_beside_many_that_are_the_same_in_a_graph(when: str, tmp_path: Path) -> None:
    both = Both("hnsw", tmp_path)
    around = clustered(1, seed=40)
    same, beside = np.repeat(around, 300, axis=0), _noisy(np.repeat(around, 60, axis=0), seed=41)
    for number, vectors in enumerate(np.array_split(same, 15)):
        both.add(np.arange(COUNT + 20 * number, COUNT + 20 * number + 20), vectors)
    both.add(np.arange(COUNT + 300, COUNT + 360), beside)
    if when == "at the build":
        assert both.view.build("hnsw", tmp_path)
    prefer_codes(both.view)
    queries = np.concatenate((beside, _noisy(beside, seed=42)))
    assert _recall(both, queries, 1) >= 0.99
    assert _recall(both, queries) >= 0.99
    alike = both.view.search(around[0], 300)
    assert alike.keys.tolist() == both.reference.search(around[0], 300).keys.tolist()
