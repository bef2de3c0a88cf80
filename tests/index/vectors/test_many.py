"""Searches for many queries at once find what searches one by one find."""

from pathlib import Path

import numpy as np
import pytest

from tests.index.vectors.coding import COUNT, Both, clustered, prefer_codes, recall

_QUERIES = 80


@pytest.fixture(params=["ivf", pytest.param("mapped", marks=pytest.mark.slow)])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Both:
    made = Both(request.param, tmp_path)
    prefer_codes(made.view)
    return made


def _recall(both: Both, k: int = 10, count: int = _QUERIES) -> float:
    queries = clustered(count, seed=5)
    found = both.view.search_many(queries, k)
    assert all(len(one.keys) == k and (np.diff(one.scores) <= 0).all() for one in found)
    return recall(found, [both.reference.search(query, k) for query in queries])


def test_parts_come_in_the_order_of_the_queries(both: Both) -> None:
    for count in (1, 32, 33, _QUERIES):
        assert _recall(both, count=count) >= 0.99
    for k in (1, 40):
        assert _recall(both, k) >= 0.99
    assert both.view.search_many(clustered(1, seed=5)[:0], 10) == []


def test_what_was_removed_does_not_come_and_what_came_does(both: Both) -> None:
    both.remove(np.arange(0, COUNT, 3))
    both.add(np.arange(COUNT, COUNT + 100), clustered(100, seed=6))
    assert _recall(both) >= 0.99
