"""The view of cosines against the reference: exactly while it scans, with known recall through codes."""

import threading
from functools import partial
from pathlib import Path
from threading import Event

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index.vectors.ann import IvfPq
from index.vectors.protocol import After, Keys, Vectors, ViewName, unit
from index.vectors.store import VectorStore
from index.vectors.view import CosineView
from tests.index.meanwhile import at_first, beside, note_calls
from tests.index.samples import unit_vectors
from tests.index.vectors.coding import Both, once_measured, prefer_codes, same

DIM = 48
COUNT = 6000


def _clustered(count: int, seed: int = 0) -> Vectors:
    """Clusters of clusters, with fewer directions than dimensions."""
    random = np.random.default_rng(seed)
    directions = np.random.default_rng(1).standard_normal((12, DIM)) * np.linspace(2, 0.3, 12)[:, None]
    topics = np.random.default_rng(2).standard_normal((60, 12))
    made = topics[random.integers(0, 60, count)] + 0.6 * random.standard_normal((count, 12))
    vectors = (made @ directions + 0.1 * random.standard_normal((count, DIM))).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 120),
    distinct=st.integers(1, 30),
    k=st.integers(1, 130),
    share=st.floats(0, 1),
    removed=st.floats(0, 0.9),
)
def test_as_the_reference_with_ties_filters_pages_removed_and_replaced_keys(
    seed: int, count: int, distinct: int, k: int, share: float, removed: float
) -> None:
    random = np.random.default_rng(seed)
    vectors = unit_vectors(distinct, 32, seed)[random.integers(0, distinct, count)]
    keys = random.choice(10 * count, count, replace=False).astype(np.int64)
    gone = random.choice(keys, int(removed * count), replace=False)
    both = Both(32)
    both.add(keys, vectors)
    both.add(keys[: count // 3], vectors[::-1][: count // 3])
    both.remove(gone)
    assert both.view.keys().tolist() == both.reference.keys().tolist()
    assert len(both.view) == len(both.reference)
    query = unit_vectors(1, 32, seed + 1)[0]
    allowed = np.sort(random.choice(10 * count, int(share * 10 * count), replace=False)).astype(np.int64)
    for among in (None, allowed):
        both.check(query, k, allowed=among)
        page = both.check(query, max(1, k // 3), allowed=among)
        if len(page.keys):
            after = After(float(page.scores[-1]), int(page.keys[-1]), len(page.keys))
            both.check(query, k, allowed=among, after=after)
    if len(both.view):
        same(both.view.search_many(query[None], k)[0], both.reference.search(query, k))


def test_rounding_that_turns_the_order_of_faiss_does_not_turn_ours() -> None:
    # All but equal vectors, whose rounded lengths differ more than their cosines.
    both = Both(DIM)
    both.append(unit_vectors(1, DIM) + np.float32(1e-3) * unit_vectors(3000, DIM, seed=3))
    for query in unit_vectors(4, DIM, seed=5):
        same(both.view.search_many(query[None], 10)[0], both.check(query, 10))


def test_a_scan_by_several_threads_is_exact() -> None:
    both = Both(DIM)
    both.append(_clustered(25_000))
    for allowed in (None, np.arange(0, 25_000, 3)):
        both.check(_clustered(8)[7], 20, allowed=allowed)


@pytest.fixture(scope="module", params=["ivf", "mapped"])
def built(request: pytest.FixtureRequest) -> Both:
    both = Both(DIM)
    both.append(_clustered(COUNT))
    both.build(request.param)
    return both


def _allowed(share: float, kind: str, query: Vectors) -> Keys:
    """Keys that pass: any, those nearest to the query, or those farthest from it."""
    count = max(1, round(share * COUNT))
    if kind == "any":
        return np.sort(np.random.default_rng(3).choice(COUNT, count, replace=False)).astype(np.int64)
    order = np.argsort(_clustered(COUNT) @ (query if kind == "near" else -query))
    return np.sort(order[-count:]).astype(np.int64)


@pytest.mark.parametrize("kind", ["any", "near", "far"])
@pytest.mark.parametrize(
    "share",
    [0.5, 0.001, *(pytest.param(share, marks=pytest.mark.slow) for share in (1.0, 0.1, 0.01, 0.0001))],
)
def test_recall_at_every_share_of_passing_keys(built: Both, share: float, kind: str) -> None:
    found, expected = 0, 0
    for query in _clustered(15, seed=9):
        allowed = _allowed(share, kind, query)
        keys = built.view.search(query, 10, allowed=allowed).keys
        assert len(keys) == min(10, len(allowed))
        assert np.isin(keys, allowed).all()
        found += np.isin(keys, built.reference.search(query, 10, allowed=allowed).keys).sum()
        expected += len(keys)
    assert found >= 0.99 * expected


def test_codes_answer_and_say_that_they_do(built: Both) -> None:
    queries = _clustered(100, seed=9)
    found = [built.view.search(query, 10) for query in queries]
    assert not all(one.exact for one in found)
    assert built.recall(queries) >= 0.99
    for one, query in zip(found, queries, strict=True):
        # Scores are those of the stored vectors, whatever found them.
        same(one, built.reference.search(query, 10, allowed=np.sort(one.keys)))
    for one, other in zip(built.view.search_many(queries, 10), found, strict=True):
        assert one.keys.tolist() == other.keys.tolist()


@pytest.mark.parametrize("coded", [False, True])
def test_threads_that_search_many_at_once_beside_writes_each_get_their_own_answers(coded: bool) -> None:
    vectors, queries = _clustered(COUNT), _clustered(40, seed=9)
    view = CosineView(DIM)
    view.add(np.arange(4000), vectors[:4000])
    if coded:
        view.build()
        prefer_codes(view)
    # What is added lies opposite to every query, and so changes no answer.
    away = unit(-queries.mean(axis=0, keepdims=True))
    expected = [found.keys.tolist() for found in view.search_many(queries, 10)]

    def ask(first: int, _: Event) -> None:
        for _round in range(10):
            found = view.search_many(queries[first : first + 20], 10)
            assert [one.keys.tolist() for one in found] == expected[first : first + 20]

    with beside(*(partial(ask, first) for first in (0, 5, 10, 20))):
        for key in range(4000, 4500):
            view.add(np.array([key]), away)
    assert len(view) == 4500


def test_pages_through_codes_repeat_nothing_and_go_to_the_end(built: Both) -> None:
    view, reference = built.view, built.reference
    query = _clustered(1, seed=9)[0]
    pages: list[Keys] = []
    after = None
    while len(page := view.search(query, 500, after=after).keys):
        pages.append(page)
        last = view.search(query, 1, allowed=page[-1:])
        after = After(float(last.scores[0]), int(page[-1]), sum(map(len, pages)))
    keys = np.concatenate(pages)
    assert len(np.unique(keys)) == len(keys)
    expected = reference.search(query, COUNT).keys
    assert len(np.intersect1d(keys[:1000], expected[:1000])) >= 990
    assert len(keys) >= 0.99 * COUNT


def test_many_removals_move_rows_and_end_codes() -> None:
    vectors, both = _clustered(4000), Both(DIM)
    both.append(vectors)
    both.build()
    before = both.view.memory_bytes
    both.remove(np.arange(0, 4000, 2))
    assert both.view.name == "exact"
    assert both.view.memory_bytes < 0.6 * before
    for query in vectors[:20]:
        both.check(query, 10)


@pytest.mark.parametrize("name", ["ivf", pytest.param("mapped", marks=pytest.mark.slow)])
def test_a_build_goes_on_beside_writes_and_searches(name: ViewName) -> None:
    vectors = _clustered(COUNT)
    view = CosineView(DIM)
    view.add(np.arange(5000), vectors[:5000])
    builder = threading.Thread(target=view.build, args=(name,))
    builder.start()
    added = 5000
    while builder.is_alive() and added < COUNT:
        view.add(np.array([added]), vectors[added : added + 1])
        assert view.search(vectors[added], 1).keys.tolist() == [added]
        added += 1
    builder.join(60)
    assert view.name == name
    for key in range(5000, added, 7):
        assert view.search(vectors[key], 1).keys.tolist() == [key]


@pytest.mark.parametrize("name", ["ivf", "mapped"])
@pytest.mark.parametrize("count", [63, 64, 100])
def test_few_vectors_are_found_whatever_is_built(name: ViewName, count: int) -> None:
    both = Both(DIM)
    both.append(_clustered(count))
    assert both.view.build(name) == (count >= 64)
    for query in _clustered(5, seed=9):
        both.check(query, 10)
        both.check(query, count)


def test_an_empty_view_finds_nothing_and_builds_nothing() -> None:
    view = CosineView(4)
    query = unit_vectors(1, 4)[0]
    assert len(view.search(query, 5).keys) == 0
    assert len(view.search(query, 5, allowed=np.array([1, 2])).keys) == 0
    assert len(view.search_many(query[None], 5)[0].keys) == 0
    assert not view.build()


def test_files_hold_what_was_built_and_its_plan(built: Both, tmp_path: Path) -> None:
    view = built.view
    again = CosineView(DIM, tmp_path if view.mapped else None)
    again.read(view.write(tmp_path, "v"))
    assert (again.name, again.operating_point) == (view.name, view.operating_point)
    # Rows can still be appended.
    for one in (again, view):
        one.add(np.array([COUNT]), _clustered(1, seed=11))
    assert again.search(_clustered(1, seed=11)[0], 1).keys.tolist() == [COUNT]
    for one in (again, view):
        one.remove(np.array([COUNT]))
    prefer_codes(again)
    for query in _clustered(20, seed=9):
        same(again.search(query, 10), view.search(query, 10))
    with pytest.raises(ValueError, match="no float16 rows of this dimension"):
        CosineView(DIM + 1).read(view.write(tmp_path, "w"))


def test_a_filter_finds_nothing_in_a_view_with_codes_whose_vectors_are_all_removed() -> None:
    view = CosineView(DIM)
    view.add(np.arange(330), unit_vectors(330, DIM))
    assert view.build()
    view.remove(np.arange(330))
    assert not len(view.search(unit_vectors(1, DIM)[0], 5, allowed=np.arange(9)).keys)


def test_memory_of_codes_is_counted_and_small(built: Both) -> None:
    rows = COUNT * (25 + (0 if built.view.mapped else DIM * 2))
    # What they take beside vectors does not grow with these, which have 512 numbers elsewhere.
    assert rows < built.view.memory_bytes < rows + COUNT * 44


@pytest.mark.parametrize("count", [64, 600, 1000, 2000])
def test_few_vectors_do_not_outgrow_their_codes_at_once(count: int) -> None:
    view = CosineView(DIM)
    view.add(np.arange(count), _clustered(count))
    assert view.build()
    assert not view.has_pending


@pytest.mark.parametrize("among", [None, np.arange(0, 3000, 2)])
def test_a_page_far_behind_the_first_ranks_no_hit_of_the_pages_before(
    among: Keys | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors, both = unit_vectors(3000, 64), Both(64)
    both.append(vectors)
    before = both.view.search(vectors[0], 1000, allowed=among)
    after = After(float(before.scores[-1]), int(before.keys[-1]), 1000)
    ranked_rows = note_calls(monkeypatch, VectorStore, "get", lambda _, rows: len(rows))
    both.check(vectors[0], 10, allowed=among, after=after)
    assert sum(ranked_rows) < 100


def test_rows_are_added_while_codes_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = CosineView(DIM)
    view.add(np.arange(2000), _clustered(2000))
    assert view.build()

    def add() -> None:
        new = np.array([2000]), _clustered(1, seed=3)
        adding = threading.Thread(target=view.add, args=new, daemon=True)
        adding.start()
        adding.join(10)
        assert not adding.is_alive()

    at_first(monkeypatch, IvfPq, "write", add)
    files = view.write(tmp_path, "view")
    assert len(view) == 2001
    read = CosineView(DIM)
    read.read(files)
    assert (read.name, len(read)) == ("ivf", 2000)
    query = _clustered(1, seed=4)[0]
    same(read.search(query, 10), view.search(query, 10, allowed=np.arange(2000)))


def _fail(*_: object) -> None:
    raise MemoryError


@pytest.mark.parametrize("broken", ["store.VectorStore.append", "rows.IdMap.append"])
def test_a_view_whose_change_failed_is_to_be_read_anew(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    view, vectors = CosineView(DIM), _clustered(110)
    view.add(np.arange(100), vectors[:100])
    assert not view.damaged
    with monkeypatch.context() as failing:
        failing.setattr(f"index.vectors.{broken}", _fail)
        with pytest.raises(MemoryError):
            view.add(np.arange(100, 110), vectors[100:110])
    assert view.damaged


def test_a_failed_change_ends_what_is_being_built(monkeypatch: pytest.MonkeyPatch) -> None:
    view, vectors = CosineView(DIM), _clustered(400)
    view.add(np.arange(400), vectors)

    def tear() -> None:
        with monkeypatch.context() as failing:
            failing.setattr(VectorStore, "append", _fail)
            with pytest.raises(MemoryError):
                view.add(np.arange(400, 401), vectors[:1])

    once_measured(monkeypatch, tear)
    assert not view.build("ivf")
