"""Searches for many queries at once find what searches one by one find."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from index.vectors.ann import IvfPq
from index.vectors.protocol import Rows
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


def test_a_removed_vector_makes_no_search_a_filtered_one(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    candidates: list[int] = []
    search = IvfPq.search

    def told(self: IvfPq, *arguments: Any) -> Rows:
        candidates.append(arguments[3])
        return search(self, *arguments)

    monkeypatch.setattr(IvfPq, "search", told)
    query, others = clustered(1, seed=5)[0], clustered(_QUERIES, seed=7)

    def asked() -> tuple[int, int]:
        """Candidates of one query, and searches of single queries for a batch."""
        both.view.search(query, 10)
        first = candidates[0]
        candidates.clear()
        both.view.search_many(others, 10)
        single = len(candidates)
        candidates.clear()
        return first, single

    before = asked()
    both.remove(np.arange(1))
    assert asked() == before
