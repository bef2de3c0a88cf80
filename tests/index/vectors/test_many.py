"""Searches for many queries at once find what searches one by one find."""

import threading
from pathlib import Path

import numpy as np
import pytest

from index.vectors import many
from index.vectors.candidates import Yardstick, best_of_candidates, best_of_each
from index.vectors.half import HalfRows
from index.vectors.planned import PlannedSearch
from index.vectors.planner import Usual
from tests.index.samples import unit_vectors
from tests.index.vectors.coding import COUNT, Both, clustered, prefer_codes, recall

_QUERIES = 80


@pytest.fixture(params=["ivf", pytest.param("hnsw", marks=pytest.mark.slow)])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Both:
    made = Both(request.param, tmp_path)
    prefer_codes(made.view)
    return made


def _recall(both: Both, k: int = 10, count: int = _QUERIES) -> float:
    queries = clustered(count, seed=5)
    found = both.view.search_many(queries, k)
    assert all(len(one.keys) == k and (np.diff(one.scores) <= 0).all() for one in found)
    return recall(found, [both.reference.search(query, k) for query in queries])


@pytest.mark.parametrize("depth", [5, 8])
@pytest.mark.parametrize("with_more", [False, True])
def test_candidates_of_many_are_judged_as_those_of_each(with_more: bool, depth: int) -> None:
    random, rank = np.random.default_rng(0), 5
    yardstick = Yardstick(depth, 80, Usual(late=0.3, place=0.2))
    vectors, queries = unit_vectors(200, 32, seed=2), unit_vectors(60, 32, seed=1)
    rows = HalfRows(32)
    rows.add(vectors)
    more = np.arange(150, 200) if with_more else None
    named = []
    for query in queries:
        # The nearer, the likelier: the hits of some lie far back.
        noise = random.choice((0.05, 0.3, 1.0)) * random.standard_normal(150)
        order = np.argsort(-(vectors[:150] @ query) + noise)
        named.append(order[: random.integers(40, 80)])
    found = best_of_each(queries, rank, rows, named, more, yardstick)
    hard = 0
    for query, own, best in zip(queries, named, found, strict=True):
        expected = best_of_candidates(query, rank, rows, own, more, yardstick)
        hard += expected is None
        assert best[best >= 0].tolist() == ([] if expected is None else expected.tolist())
    assert 5 <= hard <= 55


def test_parts_come_in_the_order_of_the_queries(both: Both) -> None:
    at_once = many._AT_ONCE
    for count in (1, at_once, at_once + 1, _QUERIES):
        assert _recall(both, count=count) >= 0.99
    for k in (1, 40):
        assert _recall(both, k) >= 0.99
    assert both.view.search_many(clustered(1, seed=5)[:0], 10) == []


def test_what_was_removed_does_not_come_and_what_came_does(both: Both) -> None:
    both.remove(np.arange(0, COUNT, 3))
    both.add(np.arange(COUNT, COUNT + 100), clustered(100, seed=6))
    assert _recall(both) >= 0.99


def test_what_cannot_be_told_is_scanned_for_and_soon_all_is(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "index.vectors.planned.best_of_each", lambda queries, *_: np.full((len(queries), 15), -1)
    )
    queries = clustered(_QUERIES, seed=5)
    found = both.view.search_many(queries, 10)
    assert all(one.exact for one in found)
    for query, one in zip(queries, found, strict=True):
        assert one.keys.tolist() == both.reference.search(query, 10).keys.tolist()
    planned = both.view._planned
    assert planned is not None
    with both.view._lock.reading():
        passing = both.view._filters.passing(None, both.view._places)
    assert passing.near.found < 0.6


def test_a_search_that_fails_leaves_none_behind_beside_writes(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    finder = both.view._planned.finder if both.view._planned else None
    assert finder is not None
    begun, ended, search = threading.Semaphore(0), [], finder.search

    def slowly(*asked: object, **how: object) -> object:
        begun.release()
        found = search(*asked, **how)  # type: ignore[arg-type]
        ended.append(1)
        return found

    def fail(*_: object) -> None:
        begun.acquire(timeout=10)
        begun.acquire(timeout=10)
        raise RuntimeError("a candidate")

    monkeypatch.setattr(type(finder), "search", staticmethod(slowly))
    monkeypatch.setattr(PlannedSearch, "near_each", fail)
    with pytest.raises(RuntimeError, match="a candidate"):
        both.view.search_many(clustered(_QUERIES, seed=5), 10)
    # The second part was searched for to its end, and no third was begun.
    assert len(ended) == 2
    assert not begun.acquire(blocking=False)
