"""Views with codes: what came since a build is found as surely as all else, through random operations."""

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from index.vectors.ann import IvfPq
from index.vectors.protocol import After, Keys, Neighbours, Vectors, ViewName, best_first, cosines, unit
from index.vectors.view import CosineView
from tests.index.meanwhile import beside, note_calls
from tests.index.samples import unit_vectors
from tests.index.vectors.coding import COUNT, DIM, Both, clustered, once_measured, prefer_codes, stored_as
from tests.index.vectors.reference import ReferenceView

_QUERIES = 80


def _new_kind(count: int, seed: int) -> Vectors:
    """Vectors around a centre that no others have."""
    random = np.random.default_rng(seed)
    made = unit_vectors(1, DIM, seed=77) + 0.04 * random.standard_normal((count, DIM))
    return unit(made.astype(np.float32))


class _Growing(Both):
    """A view that searches its codes, and the reference."""

    def recall(self, queries: Vectors, k: int = 10, allowed: Keys | None = None) -> float:
        """The share of hits that codes have found."""
        assert not any(self.view.search(query, k, allowed=allowed).exact for query in queries)
        return super().recall(queries, k, allowed)

    @property
    def learnt(self) -> int:
        assert self.view._ann is not None
        return len(self.view._ann.codes)


@pytest.fixture(scope="module", params=["ivf", "mapped"])
def built(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[bool, dict[str, Path], ReferenceView]:
    """Whether a view is mapped, its files as it was built, and a reference that holds the same."""
    folder = tmp_path_factory.mktemp("built")
    both = Both.clustered(request.param, folder)
    return both.view.mapped, both.view.write(folder, "built"), both.reference


@pytest.fixture
def both(built: tuple[bool, dict[str, Path], ReferenceView], tmp_path: Path) -> _Growing:
    mapped, files, reference = built
    both = _Growing(DIM, tmp_path if mapped else None)
    both.view.read(files)
    prefer_codes(both.view)
    both.reference, both.count = deepcopy(reference), COUNT
    return both


def test_what_comes_is_found_whatever_its_kind(both: _Growing) -> None:
    queries = np.concatenate((_new_kind(20, seed=5), clustered(20, seed=5)))
    keys = both.append(_new_kind(300, seed=1))
    assert both.recall(queries) >= 0.99
    assert both.recall(queries, allowed=np.union1d(np.arange(0, COUNT, 2), keys)) >= 0.99
    assert both.recall_of_many(queries) >= 0.99
    both.check(queries[0], 10, allowed=keys)


def test_pages_go_through_what_came(both: _Growing) -> None:
    keys = both.append(_new_kind(300, seed=1))
    query = _new_kind(1, seed=5)[0]
    expected = both.reference.search(query, 200)
    seen = [both.view.search(query, 50)]
    for page in range(1, 4):
        after = After(float(seen[-1].scores[-1]), int(seen[-1].keys[-1]), 50 * page)
        seen.append(both.view.search(query, 50, after=after))
    assert np.concatenate([page.keys for page in seen]).tolist() == expected.keys.tolist()
    assert np.isin(expected.keys, keys).all()


def test_what_came_and_went_again_is_not_found(both: _Growing) -> None:
    keys = both.append(_new_kind(300, seed=1))
    replaced = clustered(50, seed=8)
    both.remove(keys[:100])
    both.add(keys[100:150], replaced)
    assert both.recall(np.concatenate((_new_kind(20, seed=5), replaced[:20]))) >= 0.99
    both.check(_new_kind(1, seed=5)[0], 150)
    # A graph that rounded otherwise would change what it stores.
    held = both.view.keys()
    np.testing.assert_array_equal(both.view.vectors(held), both.reference.vectors(held))
    with pytest.raises(KeyError):
        both.view.vectors(keys[:1])


def test_codes_learn_more_of_what_they_know(both: _Growing) -> None:
    both.append(clustered(20, seed=3))
    assert not both.view.has_pending
    both.append(clustered(1000, seed=4))
    assert both.view.has_pending
    assert both.learnt == COUNT
    assert both.view.encode_pending()
    assert both.learnt == COUNT + 1020
    assert not both.view.has_pending
    assert both.recall(clustered(40, seed=5)) >= 0.99


@pytest.mark.parametrize("learnt", [False, True])
def test_files_hold_what_codes_have_not_learnt(both: _Growing, learnt: bool, tmp_path: Path) -> None:
    both.append(clustered(500, seed=4))
    if learnt:
        assert both.view.encode_pending()
    both.append(_new_kind(200, seed=1))
    before = both.learnt
    again = CosineView(DIM, tmp_path if both.view.mapped else None)
    again.read(both.view.write(tmp_path, "v"))
    prefer_codes(again)
    both.view = again
    # Codes in the file are those of the build; whoever reads it has them learn the others.
    assert before < both.learnt == COUNT + 700
    assert both.recall(np.concatenate((_new_kind(20, seed=5), clustered(20, seed=5)))) >= 0.99


def test_what_comes_during_a_build_is_found_though_nothing_was_measured_of_it(
    both: _Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    once_measured(monkeypatch, lambda: both.append(_new_kind(300, seed=1)))
    assert both.view.build(both.view.name)
    prefer_codes(both.view)
    assert both.learnt == COUNT
    assert both.recall(np.concatenate((_new_kind(20, seed=5), clustered(20, seed=5)))) >= 0.99


def test_searches_beside_learning_find_what_is_there(both: _Growing) -> None:
    vectors = clustered(2000, seed=4)
    both.append(vectors)
    stored = stored_as(vectors)

    def search(first: int, over: Event) -> None:
        for place in range(first, 2000, 3):
            assert both.view.search(stored[place], 1).keys.tolist() == [COUNT + place]
            if over.is_set() and place > 200:
                break

    with beside(*(partial(search, first) for first in range(3))):
        assert both.view.encode_pending()
    assert both.learnt == COUNT + 2000


def test_two_that_have_codes_learn_at_once_learn_each_row_once(both: _Growing) -> None:
    vectors = clustered(900, seed=4)
    both.append(vectors)
    with beside(*[lambda _: both.view.encode_pending()] * 2):
        pass
    assert both.learnt == COUNT + 900
    assert both.recall(clustered(40, seed=5)) >= 0.99


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_pages_go_through_vectors_that_are_the_same(both: _Growing, share: float) -> None:
    keys = both.append(np.repeat(_new_kind(1, seed=1), 300, axis=0))
    assert both.view.encode_pending() or both.view.build(both.view.name)
    prefer_codes(both.view)
    query = _new_kind(1, seed=5)[0]
    allowed = None if share == 1 else np.union1d(np.arange(0, COUNT, 2), keys[::2])
    expected = both.reference.search(query, 320, allowed=allowed)
    seen = [both.view.search(query, 20, allowed=allowed)]
    for page in range(1, 16):
        after = After(float(seen[-1].scores[-1]), int(seen[-1].keys[-1]), 20 * page)
        seen.append(both.view.search(query, 20, allowed=allowed, after=after))
    found = np.concatenate([page.keys for page in seen])
    same = int(300 * share)
    assert found[:same].tolist() == expected.keys[:same].tolist()
    many = both.view.search_many(np.repeat(query[None], 2, axis=0), 20)
    assert [one.keys.tolist() for one in many] == [both.reference.search(query, 20).keys.tolist()] * 2


def test_parts_come_in_the_order_of_the_queries(both: _Growing) -> None:
    for count in (1, 32, 33, _QUERIES):
        assert both.recall_of_many(clustered(count, seed=5)) >= 0.99
    for k in (1, 40):
        assert both.recall_of_many(clustered(_QUERIES, seed=5), k) >= 0.99
    assert both.view.search_many(clustered(1, seed=5)[:0], 10) == []


def test_a_removed_vector_makes_no_search_a_filtered_one(
    both: _Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates = note_calls(monkeypatch, IvfPq, "search", lambda *arguments: arguments[4])
    queries = clustered(_QUERIES, seed=7)

    def asked() -> list[int]:
        """Candidates of each search for a batch, in whatever order."""
        candidates.clear()
        both.view.search_many(queries, 10)
        return sorted(candidates)

    before = asked()
    both.remove(np.arange(1))
    assert asked() == before


FIRST = 3000
OPERATIONS = 200
K = 10


class _World(Both):
    """A view with codes and the reference; what is written may be of kinds that come later."""

    def __init__(self, name: ViewName, folder: Path, seed: int) -> None:
        super().__init__()
        self.append(clustered(FIRST, seed=0))
        self._name, self._folder = name, folder
        self.build(name, folder)
        self._draw = np.random.default_rng(seed)
        self._kinds = unit_vectors(40, DIM, seed=seed + 50)
        self._allowed: Keys | None = None
        self.found = self.true = self.coded = 0

    def step(self) -> None:
        """Do one operation, drawn at random."""
        operations: dict[Callable[[], None], int] = {
            self.append_some: 20,
            self.replace: 5,
            self.remove_some: 10,
            self.search: 25,
            self.search_filtered: 20,
            self.search_many: 10,
            self.search_pages: 5,
            self.encode_pending: 6,
            self.save: 2,
            self.rebuild: 1,
        }
        weights = np.array(list(operations.values()))
        list(operations)[self._draw.choice(len(weights), p=weights / weights.sum())]()

    def _vectors(self, count: int) -> Vectors:
        """Some like those that were there first, some of one later kind, or all the same."""
        later = self._kinds[[self._draw.integers(len(self._kinds))]]
        match self._draw.integers(4):
            case 0:
                spread = 0.04 * self._draw.standard_normal((count, DIM))
                return unit((later + spread).astype(np.float32))
            case 1:
                return np.repeat(later, count, axis=0)
            case _:
                return clustered(count, seed=int(self._draw.integers(10**6)))

    def _queries(self, count: int) -> Vectors:
        """Near what is there."""
        stored = self.view.vectors(self._draw.choice(self.view.keys(), count))
        return unit((stored + 0.03 * self._draw.standard_normal(stored.shape)).astype(np.float32))

    def append_some(self) -> None:
        self.append(self._vectors(int(self._draw.integers(1, 120))))

    def replace(self) -> None:
        keys = self._draw.choice(self.view.keys(), 30, replace=False)
        self.add(keys, self._vectors(len(keys)))

    def remove_some(self) -> None:
        """Remove some, of which some may not be there."""
        self.remove(self._draw.choice(self.count, 60, replace=False))

    def search(self) -> None:
        for query in self._queries(3):
            self._check(query, self.view.search(query, K), None)

    def search_filtered(self) -> None:
        """Search twice by a filter, new or the one before: what passes is coded then."""
        if self._allowed is None or self._draw.random() < 0.3:
            share = self._draw.choice([0.5, 0.1, 0.01])
            self._allowed = np.sort(self._draw.choice(self.count, int(share * self.count), replace=False))
        for query in self._queries(2):
            self._check(query, self.view.search(query, K, allowed=self._allowed), self._allowed)

    def search_many(self) -> None:
        queries = self._queries(4)
        for query, found in zip(queries, self.view.search_many(queries, K), strict=True):
            self._check(query, found, None)

    def search_pages(self) -> None:
        """No hit comes twice."""
        (query,) = self._queries(1)
        first = self.view.search(query, K)
        after = After(float(first.scores[-1]), int(first.keys[-1]), K)
        second = self.view.search(query, K, after=after)
        assert not np.intersect1d(first.keys, second.keys).size
        keys = np.concatenate((first.keys, second.keys))
        scores = np.concatenate((first.scores, second.scores))
        self._check(query, Neighbours(keys, scores, first.exact), None, 2 * K)

    def encode_pending(self) -> None:
        if self.view.has_pending and not self.view.encode_pending():
            self.rebuild()

    def rebuild(self) -> None:
        self.build(self._name, self._folder)

    def save(self) -> None:
        """Go on with what a snapshot held."""
        again = CosineView(DIM, self._folder if self.view.mapped else None)
        again.read(self.view.write(self._folder, f"v{self._draw.integers(10**9)}"))
        prefer_codes(again)
        self.view = again

    def _check(self, query: Vectors, found: Neighbours, allowed: Keys | None, k: int = K) -> None:
        true = self.reference.search(query, k, allowed=allowed)
        assert len(found.keys) == len(true.keys)
        ordered = best_first(found.keys, cosines(query, self.reference.vectors(found.keys)))
        assert found.keys.tolist() == ordered[0].tolist()
        np.testing.assert_array_equal(found.scores, ordered[1])
        assert allowed is None or np.isin(found.keys, allowed).all()
        # Of many that are the same, any is right.
        self.found += int(np.count_nonzero(found.scores >= true.scores[-1:]))
        self.true += len(true.keys)
        self.coded += not found.exact
        if found.exact:
            assert found.keys.tolist() == true.keys.tolist()


_FAST = ("ivf", 1)
_SLOW = [("mapped", 2), *((name, seed) for name in ("ivf", "mapped") for seed in (3, 4, 5))]


@pytest.mark.parametrize(
    ("name", "seed"), [_FAST, *(pytest.param(name, seed, marks=pytest.mark.slow) for name, seed in _SLOW)]
)
def test_as_the_reference_through_random_operations(name: ViewName, seed: int, tmp_path: Path) -> None:
    world = _World(name, tmp_path, seed)
    for _ in range(OPERATIONS):
        world.step()
        if world.view.name == "exact":
            world.rebuild()
    assert world.coded > OPERATIONS / 2
    assert world.found >= 0.99 * world.true
