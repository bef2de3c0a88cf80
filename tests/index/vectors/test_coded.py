"""Codes of what passes a filter that comes again: made beside searches and writes, of the recall promised."""

import gc
import logging
import math
import threading
import weakref
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from index.vectors import coded, passing
from index.vectors.codec import unit
from index.vectors.cosine import CosineView
from index.vectors.passing import Filters, SearchedCopy
from index.vectors.planner import ViewName
from index.vectors.positions import Positions
from index.vectors.protocol import After, Neighbours, Vectors
from tests.index.samples import unit_vectors
from tests.index.vectors.coding import (
    COUNT,
    DIM,
    HeldBack,
    clustered,
    coded_views,
    copies_of,
    recall,
    some_of,
    wait_for_codes,
)
from tests.index.vectors.test_copied import stored_as

pytestmark = pytest.mark.usefixtures("code_at_once")


@pytest.mark.parametrize("name", ["ivf", "mapped"])
@pytest.mark.parametrize("which", ["any", "together"])
def test_finds_what_the_reference_does_for_queries_near_and_far_with_its_scores(
    name: ViewName, which: str, tmp_path: Path
) -> None:
    view, reference = coded_views(name, tmp_path)
    allowed = some_of(which)
    copies = wait_for_codes(view, allowed)
    near = clustered(60, seed=1)
    for queries in (near, unit(near + 0.7 * unit_vectors(60, DIM, seed=5))):
        for k in (10, 100):
            # Those that are hard for the codes are searched in other ways.
            told = [(one, query) for query in queries if (one := copies.search(query, k)) is not None]
            assert len(told) >= 0.95 * len(queries)
            expected = [reference.search(query, k, allowed=allowed) for _, query in told]
            found = [one for one, _ in told]
            assert all(len(one.keys) == k and len(set(one.keys.tolist())) == k for one in found)
            assert recall(found, expected) >= 0.99
            for one, query in told:
                scores = reference.search(query, COUNT, allowed=allowed)
                true = dict(zip(scores.keys.tolist(), scores.scores.tolist(), strict=True))
                assert one.scores.tolist() == [true[key] for key in one.keys.tolist()]
    by_view = [view.search(query, 10, allowed=allowed) for query in queries]
    expected = [reference.search(query, 10, allowed=allowed) for query in queries]
    assert recall(by_view, expected) >= 0.99


def test_pages_go_on_behind_each_other_and_beyond_what_codes_know(tmp_path: Path) -> None:
    view, reference = coded_views("ivf", tmp_path)
    allowed = some_of("any")
    copies = wait_for_codes(view, allowed)
    query = clustered(1, seed=1)[0]
    keys: list[int] = []
    after = None
    while len(keys) < 500:
        page = view.search(query, 20, allowed=allowed, after=after)
        keys += page.keys.tolist()
        after = After(float(page.scores[-1]), int(page.keys[-1]), len(keys))
    assert len(set(keys)) == len(keys)
    expected = reference.search(query, 500, allowed=allowed).keys.tolist()
    assert len(set(keys) & set(expected)) >= 0.99 * len(expected)
    assert copies.search(query, int(copies.deepest)) is not None
    assert copies.search(query, int(copies.deepest) + 1) is None


def test_a_graph_has_no_codes_and_a_view_without_any_makes_none(tmp_path: Path) -> None:
    allowed = some_of("any")
    view, _ = coded_views("hnsw", tmp_path)
    plain = CosineView(DIM)
    plain.add(np.arange(COUNT), clustered(COUNT, seed=0))
    for one in (view, plain):
        for query in clustered(20, seed=1):
            one.search(query, 5, allowed=allowed)
        one._coding._pool.shutdown()
        assert copies_of(one, allowed) is None


def test_a_write_beside_the_coding_is_seen_at_once_and_what_was_coded_is_forgotten(tmp_path: Path) -> None:
    view, reference = coded_views("ivf", tmp_path)
    allowed = np.arange(COUNT + 50)
    added = clustered(50, seed=7)
    stopped = threading.Event()
    wrong: list[str] = []

    def search() -> None:
        for query in clustered(10_000, seed=8):
            if stopped.is_set():
                return
            found = view.search(query, 5, allowed=allowed)
            if len(set(found.keys.tolist())) != 5:
                wrong.append(str(found))

    searcher = threading.Thread(target=search)
    searcher.start()
    for number in range(50):
        view.add(np.array([COUNT + number]), added[number : number + 1])
        reference.add(np.array([COUNT + number]), stored_as(added[number : number + 1]))
        gone = np.array([3 * number])
        view.remove(gone)
        reference.remove(gone)
        found = view.search(added[number], 3, allowed=allowed)
        assert found.keys[0] == COUNT + number
        assert int(gone[0]) not in view.search(clustered(COUNT, seed=0)[gone[0]], 5, allowed=allowed).keys
    stopped.set()
    searcher.join()
    assert not wrong
    wait_for_codes(view, allowed)
    queries = clustered(60, seed=9)
    by_view = [view.search(query, 10, allowed=allowed) for query in queries]
    assert recall(by_view, [reference.search(query, 10, allowed=allowed) for query in queries]) >= 0.99


@pytest.mark.parametrize("how", ["moved", "built", "other filters"])
def test_coding_stops_where_rows_move_or_nobody_asks_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    view, _ = coded_views("ivf", tmp_path)
    allowed = some_of("any")
    held = HeldBack(monkeypatch)
    view.search(clustered(1, seed=1)[0], 5, allowed=allowed)
    assert held.begun.acquire(timeout=30)
    before = view._filters.passing(allowed, view._places)
    if how == "moved":
        view.remove(np.arange(COUNT // 2))
        assert view.name == "exact"
    elif how == "built":
        assert view.build("ivf", tmp_path)
    else:
        for number in range(9):
            view._filters.passing(np.arange(number), view._places)
    held.go_on.set()
    view._coding._pool.shutdown()
    assert held.given_up == 1
    assert before.copied is None


def test_an_error_of_coding_is_logged_and_searches_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    view, reference = coded_views("ivf", tmp_path)
    allowed = some_of("any")

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(coded, "_coded_copies", fail)
    with caplog.at_level(logging.ERROR):
        for query in clustered(5, seed=1):
            found = view.search(query, 5, allowed=allowed)
            assert found.keys.tolist() == reference.search(query, 5, allowed=allowed).keys.tolist()
        view._coding._pool.shutdown()
    assert [record.message for record in caplog.records] == [
        "what passes a filter was not coded: it is searched as before"
    ]


class _Copied(SearchedCopy):
    memory_bytes = 100

    def __init__(self, cost: float = 5) -> None:
        super().__init__()
        self.cost = cost

    def search(self, query: Vectors, k: int, after: After | None = None) -> Neighbours | None:
        raise AssertionError


class _Timed(_Copied):
    """Slower than it seemed; keeps the lengths of what it is timed by."""

    def __init__(self, cost: float) -> None:
        super().__init__(cost)
        self.queries: list[int] = []

    def measure(self, queries: Iterable[Vectors]) -> None:
        self.queries = [len(query) for query in queries]
        self.cost = math.inf

    def search(self, query: Vectors, k: int, after: After | None = None) -> Neighbours | None:
        return None


class _Rows:
    dim = 8

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count


def test_what_takes_too_much_memory_is_let_go_and_not_coded_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing, "_COPIES", 0)
    filters, places = Filters(), Positions.of(np.arange(10))
    arrays = [np.arange(count) for count in range(1, 6)]
    for allowed in arrays:
        known = filters.passing(allowed, places)
        known.coded = True
        # A sixteenth of their bytes is 250.
        filters.keep_copied(known, _Copied(), _Rows(250))
    assert filters.memory_bytes == 200
    held = [filters.passing(allowed, places) for allowed in arrays]
    assert [one.copied is not None for one in held] == [False, False, False, True, True]
    assert not any(one.note(10**12, dim=2**20, row_cost=1) for one in held)
    # One alone may take more, also where others were searched since.
    filters.keep_copied(held[0], _Copied(), _Rows(1))
    assert [one.copied is not None for one in held] == [True, False, False, False, False]


def test_the_faster_of_two_copies_is_kept() -> None:
    filters, slow, fast = Filters(), _Copied(9), _Copied(2)
    known = filters.passing(np.arange(3), Positions.of(np.arange(10)))
    for copies in (slow, fast, slow):
        filters.keep_copied(known, copies, _Rows(10))
    assert known.copied is fast


def test_a_copy_that_was_timed_by_chance_is_timed_again_beside_codes(tmp_path: Path) -> None:
    view, _ = coded_views("ivf", tmp_path)
    allowed = some_of("any")
    lucky = _Timed(0)
    view._filters.passing(allowed, view._places).copied = lucky
    wait_for_codes(view, allowed)
    assert lucky.queries == [view.dim] * len(lucky.queries) != []


def test_one_filter_is_coded_at_a_time_and_a_closed_view_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, _ = coded_views("ivf", tmp_path)
    held = HeldBack(monkeypatch)
    query = clustered(1, seed=1)[0]
    first, second = some_of("any"), some_of("together")
    for allowed in (first, second, first, second):
        view.search(query, 5, allowed=allowed)
    assert held.begun.acquire(timeout=30)
    assert not held.begun.acquire(timeout=0.2)
    view.close()
    held.go_on.set()
    view._coding._pool.shutdown()
    assert held.given_up == 1
    assert len(view.search(query, 5, allowed=second).keys) == 5


def test_coding_does_not_keep_a_view_that_nobody_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view, _ = coded_views("ivf", tmp_path)
    held = HeldBack(monkeypatch)
    view.search(clustered(1, seed=1)[0], 5, allowed=some_of("any"))
    assert held.begun.acquire(timeout=30)
    rows, coding = weakref.ref(view._rows), view._coding
    del view
    gc.collect()
    held.go_on.set()
    coding._pool.shutdown()
    gc.collect()
    assert coding._closed
    assert rows() is None


def test_codes_are_made_when_they_would_have_saved_as_much_as_they_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    allowed = np.arange(0, 100_000, 10)
    found = Filters().passing(allowed, Positions.of(np.arange(100_000)))
    # They take half a second, and 200 times as long as a scan of the ten thousand that pass: 0.6 seconds.
    # Searched they would take 131 microseconds, and half as much again is no loss.
    assert not any(found.note(190_000, 512, 50) for _ in range(10_000))
    assert not any(found.note(1_000_000, 512, 50) for _ in range(740))
    assert any(found.note(1_000_000, 512, 50) for _ in range(10))
    # Few are copied as they are.
    assert not found.note(1_000_000, 64, 50)
    found.coded = True
    assert not found.note(1_000_000, 512, 50)
