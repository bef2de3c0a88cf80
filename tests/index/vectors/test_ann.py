"""Views with codes: what came since a build and queries not planned for are found as surely as all else."""

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
from tests.benchmarks.search.made_vectors import make_clusters, make_vectors
from tests.index.meanwhile import concurrently, note_calls
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
    stored = both.view.keys()
    np.testing.assert_array_equal(both.view.vectors(stored), both.reference.vectors(stored))
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
    # Codes in the file are those of the build; its readers encode the other rows.
    assert before < both.learnt == COUNT + 700
    assert both.recall(np.concatenate((_new_kind(20, seed=5), clustered(20, seed=5)))) >= 0.99


@pytest.mark.slow
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
        for position in range(first, 2000, 3):
            assert both.view.search(stored[position], 1).keys.tolist() == [COUNT + position]
            if over.is_set() and position > 200:
                break

    with concurrently(*(partial(search, first) for first in range(3))):
        assert both.view.encode_pending()
    assert both.learnt == COUNT + 2000


def test_two_that_have_codes_learn_at_once_learn_each_row_once(both: _Growing) -> None:
    vectors = clustered(900, seed=4)
    both.append(vectors)
    with concurrently(*[lambda _: both.view.encode_pending()] * 2):
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
    result = np.concatenate([page.keys for page in seen])
    same = int(300 * share)
    assert result[:same].tolist() == expected.keys[:same].tolist()
    many = both.view.search_many(np.repeat(query[None], 2, axis=0), 20)
    assert [one.keys.tolist() for one in many] == [both.reference.search(query, 20).keys.tolist()] * 2


@pytest.mark.slow
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
        """Candidates of each search for a batch, in any order."""
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
        for query, result in zip(queries, self.view.search_many(queries, K), strict=True):
            self._check(query, result, None)

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

    def _check(self, query: Vectors, expected: Neighbours, allowed: Keys | None, k: int = K) -> None:
        true = self.reference.search(query, k, allowed=allowed)
        assert len(expected.keys) == len(true.keys)
        ordered = best_first(expected.keys, cosines(query, self.reference.vectors(expected.keys)))
        assert expected.keys.tolist() == ordered[0].tolist()
        np.testing.assert_array_equal(expected.scores, ordered[1])
        assert allowed is None or np.isin(expected.keys, allowed).all()
        # Of many that are the same, any is right.
        self.found += int(np.count_nonzero(expected.scores >= true.scores[-1:]))
        self.true += len(true.keys)
        self.coded += not expected.exact
        if expected.exact:
            assert expected.keys.tolist() == true.keys.tolist()


_FAST = ("ivf", 1)
_SLOW = [("mapped", 2), *((name, seed) for name in ("ivf", "mapped") for seed in (3, 4, 5))]


@pytest.mark.slow
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


# Takes minutes, and also measures the recall of other queries.
@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_few_hits_are_as_sure_as_ten(k: int) -> None:
    kind = _tight(_USUAL // 20, seed=1, far=0.4)
    both = _mixed(make_vectors(_USUAL, 1, _DIM, seed=3).vectors, kind)
    both.build()
    queries = _tight(200, seed=2, far=0.4)
    assert both.recall(queries, k) >= 0.99


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
        result = view.search(query, 10, allowed=passing).keys
        assert len(np.intersect1d(result, expected)) >= 9


_FAR, _FAR_DIM, _CENTRES = 20_000, 96, 200
# Queries that lie apart from all vectors: those of another encoder, where the two do not meet.
_BASE = unit_vectors(1, _FAR_DIM, seed=30)
_CENTRED = unit_vectors(_CENTRES, _FAR_DIM, seed=31)


def _around(base: Vectors, count: int, seed: int) -> Vectors:
    own = np.random.default_rng(seed).integers(_CENTRES, size=count)
    return unit(
        base + np.float32(0.5) * _CENTRED[own] + np.float32(0.3) * unit_vectors(count, _FAR_DIM, seed=seed)
    )


@pytest.mark.slow
@pytest.mark.parametrize("value", [0, 1000])
def test_queries_far_from_all_vectors_find_theirs_with_and_without_stored_queries(value: int) -> None:
    view, vectors = CosineView(_FAR_DIM), _around(_BASE, _FAR, seed=1)
    view.add(np.arange(_FAR), vectors)
    queries = _around(-_BASE, 1300, seed=2)
    assert view.build("ivf", stored_queries=queries[:value] if value else None)
    stored = view.vectors(np.arange(_FAR))
    result = 0
    for query in queries[1000:]:
        one = view.search(query, 10)
        true = np.argpartition(-(stored @ query), 10)[:10]
        result += np.isin(one.keys, true).sum()
    assert result >= 0.99 * 10 * 300


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
    own, expected = draw.integers(kinds, size=count), draw.integers(kinds, size=queries)
    images = unit(
        np.float32(0.75) * of_images + np.float32(0.55) * subjects[own] + np.float32(0.35) * drawn(count, dim)
    )
    texts = unit(
        np.float32(0.8) * of_texts
        + np.float32(0.45) * subjects[expected]
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
    results = [view.search(text, 10) for text in texts]
    recalls = [float((page.scores >= low - 1e-6).mean()) for page, low in zip(results, last, strict=True)]
    assert np.mean(recalls) >= 0.995
    assert min(recalls) >= 0.9
    assert all((own[page.keys] == kind).all() for page, kind in zip(results, expected, strict=True))
