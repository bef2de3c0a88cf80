"""Codes of what passes a filter, kept while vectors come and go."""

from pathlib import Path

import numpy as np
import pytest

from index.vectors.codec import unit
from index.vectors.coded import CodedCopies
from index.vectors.cosine import CosineView
from index.vectors.passing import Filters, Passing
from index.vectors.positions import Positions
from index.vectors.protocol import Keys, Vectors
from index.vectors.reference import ReferenceView
from tests.index.samples import unit_vectors
from tests.index.vectors.coding import (
    COUNT,
    DIM,
    Both,
    HeldBack,
    clustered,
    copies_of,
    recall,
    some_of,
    wait_for_codes,
)

pytestmark = pytest.mark.usefixtures("code_at_once")


def _codes(view: CosineView, allowed: Keys) -> CodedCopies:
    copies = copies_of(view, allowed)
    assert isinstance(copies, CodedCopies)
    return copies


def _check(copies: CodedCopies, reference: ReferenceView, allowed: Keys, queries: Vectors) -> None:
    found = [copies.search(query, 10) for query in queries]
    expected = [reference.search(query, 10, allowed=allowed) for query in queries]
    told = [one for one in found if one is not None]
    assert len(told) == len(found)
    assert recall(told, expected) >= 0.99
    for one, query in zip(told, queries, strict=True):
        everything = reference.search(query, COUNT, allowed=allowed)
        true = dict(zip(everything.keys.tolist(), everything.scores.tolist(), strict=True))
        assert len(set(one.keys.tolist())) == 10
        assert one.scores.tolist() == [true[key] for key in one.keys.tolist()]


@pytest.mark.parametrize("which", ["any", "together"])
def test_codes_go_on_with_what_came_and_without_what_went(tmp_path: Path, which: str) -> None:
    both, random = Both("ivf", tmp_path), np.random.default_rng(3)
    allowed, queries = some_of(which), clustered(30, seed=1)
    wait_for_codes(both.view, allowed)
    for number in range(6):
        new = COUNT + 4 * number + np.arange(4)
        vectors = clustered(10, seed=100 + number)
        both.add(new, vectors[:4])
        both.add(random.choice(allowed, 2, replace=False), vectors[4:6])
        # One that does not pass, and one that begins to.
        other = np.setdiff1d(np.arange(COUNT), allowed)[:2]
        both.add(other[:1], vectors[6:7])
        gone = random.choice(allowed, 2, replace=False)
        both.remove(gone)
        allowed = np.union1d(np.setdiff1d(allowed, gone), np.append(new, other[1]))
        copies = _codes(both.view, allowed)
        _check(copies, both.reference, allowed, queries)
        for key, vector in zip(new, vectors, strict=False):
            assert key in both.view.search(vector, 3, allowed=allowed).keys
    assert both.view.memory_bytes > copies.memory_bytes > 0


def test_vectors_of_a_new_kind_are_found_as_surely_as_the_others(tmp_path: Path) -> None:
    both, allowed = Both("ivf", tmp_path), some_of("any")
    wait_for_codes(both.view, allowed)
    random = np.random.default_rng(4)
    made = unit_vectors(1, DIM, seed=200) + 0.02 * random.standard_normal((130, DIM)).astype(np.float32)
    new = COUNT + np.arange(70)
    both.add(new, unit(made[:70]))
    allowed = np.append(allowed, new)
    _check(_codes(both.view, allowed), both.reference, allowed, unit(made[70:]))


def test_where_the_nearest_went_the_rest_is_scanned(tmp_path: Path) -> None:
    both = Both("ivf", tmp_path)
    allowed, query = some_of("together"), clustered(COUNT, seed=0)[0]
    wait_for_codes(both.view, allowed)
    nearest = both.reference.search(query, 60, allowed=allowed).keys
    both.remove(nearest)
    assert _codes(both.view, allowed).search(query, 10) is None
    found = both.view.search(query, 10, allowed=allowed)
    expected = both.reference.search(query, 10, allowed=allowed)
    assert found.keys.tolist() == expected.keys.tolist()


def test_where_much_came_or_went_it_is_coded_anew(tmp_path: Path) -> None:
    both, allowed = Both("ivf", tmp_path), some_of("any")
    wait_for_codes(both.view, allowed)
    for number in range(3):
        both.remove(allowed[100 * number : 100 * number + 22])
        assert isinstance(copies_of(both.view, allowed), CodedCopies)
    both.remove(allowed[400:420])
    assert copies_of(both.view, allowed) is None
    _check(wait_for_codes(both.view, allowed), both.reference, allowed, clustered(30, seed=1))


@pytest.mark.parametrize("asked", [True, False])
def test_what_was_being_coded_while_vectors_came_and_went_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    both, held = Both("ivf", tmp_path), HeldBack(monkeypatch)
    allowed, queries = some_of("any"), clustered(30, seed=1)
    both.view.search(queries[0], 5, allowed=allowed)
    assert held.begun.acquire(timeout=30)
    for number in range(4):
        key, vector = np.array([COUNT + number]), clustered(1, seed=50 + number)
        both.add(key, vector)
        both.remove(allowed[number : number + 1])
        allowed = np.append(allowed, key)
        if asked:
            assert both.view.search(vector[0], 1, allowed=allowed).keys == key
    held.go_on.set()
    both.view._coding._pool.shutdown()
    assert held.given_up == 0
    _check(_codes(both.view, allowed), both.reference, allowed, queries)


def test_each_filter_goes_on_with_its_own_codes(tmp_path: Path) -> None:
    both = Both("ivf", tmp_path)
    first, second = some_of("any"), some_of("together")
    for allowed in (first, second):
        wait_for_codes(both.view, allowed)
    both.add(np.array([COUNT]), clustered(1, seed=7))
    for allowed in (second, first):
        copies, rows = _codes(both.view, allowed), both.view._places.find(allowed)[0]
        assert sorted(copies._rows.tolist()) == sorted(rows.tolist())


def _passing(filters: Filters, places: Positions, keys: Keys) -> Passing:
    return filters.passing(keys, places)


def test_what_passes_follows_what_it_is_most_like() -> None:
    filters, places = Filters(), Positions.of(np.arange(100))
    keys = [np.arange(count) for count in (40, 42, 80)]
    before = [_passing(filters, places, one) for one in keys]
    for number, one in enumerate(before):
        one.lost = 1.0 + number
    filters.set_aside()
    places.append(np.array([100]))
    after = [_passing(filters, places, np.append(one, 100)) for one in reversed(keys)]
    assert [one.lost for one in after] == [3, 2, 1]
    assert [one.latest for one in before] == after[::-1]
    assert all(filters.holds(one) for one in (*before, *after))
    filters.set_aside()
    assert _passing(filters, places, np.arange(42)).lost == 2
    # More than a thirty-second of it is new.
    assert _passing(filters, places, np.arange(43)).lost == 0


def test_no_more_is_remembered_than_of_eight_filters() -> None:
    filters, places = Filters(), Positions.of(np.arange(1000))
    keys = [np.arange(100 * count, 100 * (count + 1)) for count in range(9)]
    before = [_passing(filters, places, one) for one in keys]
    assert [filters.holds(one) for one in before] == [False] + [True] * 8
    filters.set_aside()
    new = _passing(filters, places, np.arange(900, 1000))
    # The one that was asked for longest ago goes.
    assert [filters.holds(one) for one in (*before, new)] == [False] * 2 + [True] * 8
    filters.clear()
    assert not any(filters.holds(one) for one in (*before, new))
