"""Views against the reference: exactly while they scan, with known recall by codes; threads share them."""

import threading
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index.vectors.ann import IvfPq
from index.vectors.protocol import After, Keys, Neighbours, Vectors, ViewName, unit
from index.vectors.store import VectorStore
from index.vectors.view import CosineView, FlatView, ReadWriteLock, VectorView, new_view, oriented_bases
from tests.index.meanwhile import at_first, concurrently, note_calls
from tests.index.samples import unit_vectors
from tests.index.vectors.coding import Both, once_measured, prefer_codes, same
from tests.index.vectors.reference import ReferenceView

FLAT_DIM = 24
KINDS = [(1, False), (1, True), (2, False), (3, False), (4, False)]


def _both(
    keys: Keys, vectors: Vectors, blades: int = 1, *, unsigned: bool = False
) -> tuple[FlatView, ReferenceView]:
    dim = vectors.shape[1]
    views = FlatView(dim, blades, unsigned=unsigned), ReferenceView(dim, blades, unsigned=unsigned)
    for view in views:
        view.add(keys, vectors)
    return views


def _same(result: Neighbours, expected: Neighbours, blades: int = 1) -> None:
    assert result.exact
    assert result.keys.tolist() == expected.keys.tolist()
    np.testing.assert_allclose(result.scores, expected.scores, rtol=0, atol=0 if blades == 1 else 1e-6)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("index.vectors.view._BLOCK", 64)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(("blades", "unsigned"), KINDS)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 200),
    distinct=st.integers(1, 30),
    k=st.integers(1, 210),
    share=st.floats(0, 1),
    rising=st.booleans(),
)
def test_as_the_reference_with_ties_filters_and_pages(
    blades: int, unsigned: bool, seed: int, count: int, distinct: int, k: int, share: float, rising: bool
) -> None:
    random = np.random.default_rng(seed)
    if blades == 1:
        # Few distinct vectors, and opposites: most scores are shared by several keys.
        vectors = unit_vectors(distinct, FLAT_DIM, seed)[random.integers(0, distinct, count)]
        vectors *= random.choice(np.array([-1, 1], np.float32), (count, 1))
    else:
        vectors = unit_vectors(count, FLAT_DIM, seed)
    keys = random.choice(10 * count, count, replace=False).astype(np.int64)
    view, reference = _both(np.sort(keys) if rising else keys, vectors, blades, unsigned=unsigned)
    query = unit_vectors(1, FLAT_DIM, seed + 1)[0]
    allowed = np.sort(random.choice(10 * count, int(share * 10 * count), replace=False)).astype(np.int64)
    for among in (None, allowed):
        _same(view.search(query, k, allowed=among), reference.search(query, k, allowed=among), blades)
        page = view.search(query, max(1, k // 3), allowed=among)
        if len(page.keys):
            after = After(float(page.scores[-1]), int(page.keys[-1]), len(page.keys))
            behind = view.search(query, k, allowed=among, after=after)
            both = reference.search(query, len(page.keys) + k, allowed=among)
            assert np.concatenate((page.keys, behind.keys)).tolist() == both.keys.tolist()
            np.testing.assert_allclose(behind.scores, both.scores[len(page.keys) :], atol=1e-6)


@pytest.mark.parametrize(("blades", "unsigned"), [(1, False), (1, True), (3, False)])
def test_scores_are_those_of_a_search_and_of_the_reference(blades: int, unsigned: bool) -> None:
    views: list[VectorView | ReferenceView] = [
        new_view(FLAT_DIM, blades, unsigned=unsigned),
        ReferenceView(FLAT_DIM, blades, unsigned=unsigned),
    ]
    count = 700
    keys, query = np.arange(count) * 3, unit_vectors(1, FLAT_DIM, seed=1)[0]
    requested = np.random.default_rng(2).permutation(3 * count)[:400]
    for view in views:
        view.add(keys, unit_vectors(count, FLAT_DIM))
        stored, scores = view.scores(query, requested)
        assert stored.tolist() == [key for key in requested.tolist() if key % 3 == 0]
        page = view.search(query, count)
        searched = dict(zip(page.keys.tolist(), page.scores.tolist(), strict=True))
        assert scores.tolist() == [searched[key] for key in stored.tolist()]
        assert [len(part) for part in view.scores(query, requested[:0])] == [0, 0]
        one, score = view.scores(query, stored[:1])
        assert (one.tolist(), score.tolist()) == (stored[:1].tolist(), scores[:1].tolist())


@pytest.mark.parametrize(("blades", "unsigned"), KINDS)
def test_files_hold_the_view(blades: int, unsigned: bool, tmp_path: Path) -> None:
    assert (type(new_view(FLAT_DIM, blades, unsigned=unsigned)) is CosineView) == (
        (blades, unsigned) == KINDS[0]
    )
    view, _ = _both(np.arange(50)[::-1].copy(), unit_vectors(50, FLAT_DIM), blades, unsigned=unsigned)
    files = view.write(tmp_path, "v")
    again = FlatView(FLAT_DIM, blades, unsigned=unsigned)
    again.read(files)
    query = unit_vectors(1, FLAT_DIM, seed=3)[0]
    _same(again.search(query, 50), view.search(query, 50))
    again.add(np.array([50]), unit_vectors(1, FLAT_DIM, seed=7))
    assert len(again) == 51
    with pytest.raises(ValueError, match="no float32 vectors of this dimension"):
        FlatView(FLAT_DIM + 12, blades, unsigned=unsigned).read(files)


def test_adding_a_key_again_replaces_its_vector() -> None:
    vectors = unit_vectors(6, 8)
    views = _both(np.array([3, 1, 2]), vectors[:3])
    for view in views:
        view.add(np.array([2, 7, 1]), vectors[3:])
        assert len(view) == 4
    for vector in vectors:
        _same(views[0].search(vector, 10), views[1].search(vector, 10))


def test_equal_vectors_score_equally_wherever_they_lie() -> None:
    vectors = np.repeat(unit_vectors(1, 513), 999, axis=0)
    view = FlatView(513)
    view.add(np.arange(999)[::-1].copy(), vectors)
    page = view.search(unit_vectors(1, 513, seed=2)[0], 10)
    assert page.keys.tolist() == list(range(10))
    assert len(set(page.scores.tolist())) == 1


def test_memory_is_that_of_vectors_and_keys() -> None:
    view = FlatView(16)
    view.add(np.arange(100), unit_vectors(100, 16))
    assert view.memory_bytes == 100 * (16 * 4 + 8 + 1 + 8 + 8)


def test_searches_beside_adds_see_whole_states() -> None:
    vectors = unit_vectors(4000, 8)
    view = FlatView(8)
    view.add(np.arange(10), vectors[:10])

    def search(over: Event) -> None:
        while not over.is_set():
            page = view.search(vectors[0], 5)
            assert page.keys[0] == 0
            np.testing.assert_allclose(vectors[page.keys] @ vectors[0], page.scores, atol=1e-5)

    with concurrently(*[search] * 3):
        for start in range(10, 4000, 190):
            view.add(np.arange(start, min(start + 190, 4000)), vectors[start : start + 190])
    assert len(view) == 4000


def test_a_page_far_behind_the_first_copies_only_some_vectors_at_once() -> None:
    vectors = unit_vectors(40_000, 128)
    view = FlatView(128)
    view.add(np.arange(40_000), vectors)
    far = After(score=0.0, key=0, rank=39_000)
    tracemalloc.start()
    page = view.search(vectors[0], 10, after=far)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(page.keys) == 10
    assert peak < vectors.nbytes / 2


def test_a_page_far_behind_the_first_of_a_flat_view_ranks_no_hit_of_the_pages_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vectors = unit_vectors(3000, 64)
    view, reference = _both(np.arange(3000), vectors)
    before = view.search(vectors[0], 1000)
    after = After(float(before.scores[-1]), int(before.keys[-1]), 1000)
    ranked_rows = note_calls(monkeypatch, FlatView, "_score", lambda *arguments: len(arguments[2]))
    _same(view.search(vectors[0], 10, after=after), reference.search(vectors[0], 10, after=after))
    assert 0 < sum(ranked_rows) < 100


def test_a_blade_itself_is_nearest_and_its_mirror_image_farthest() -> None:
    vectors = unit_vectors(50, FLAT_DIM)
    swapped = vectors[7].reshape(2, -1)[::-1].reshape(1, -1)
    view, _ = _both(np.arange(51), np.concatenate((vectors, swapped)), 2)
    page = view.search(vectors[7], 51)
    assert (page.keys[0], page.keys[-1]) == (7, 50)
    np.testing.assert_allclose(page.scores[[0, -1]], [1, -1], atol=1e-6)


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.integers(2, 4))
def test_a_basis_spans_the_same_oriented_subspace(seed: int, blades: int) -> None:
    vectors = unit_vectors(5, FLAT_DIM, seed)
    bases = oriented_bases(vectors, blades).reshape(5, blades, -1).astype(np.float64)
    own = vectors.reshape(5, blades, -1).astype(np.float64)
    identities = np.broadcast_to(np.eye(blades), (5, blades, blades))
    np.testing.assert_allclose(bases @ bases.transpose(0, 2, 1), identities, atol=1e-6)
    # The projection onto the basis loses nothing, and the change of basis keeps the orientation.
    change = own @ bases.transpose(0, 2, 1)
    np.testing.assert_allclose(change @ bases, own, atol=1e-5)
    assert (np.linalg.det(change) > 0).all()


def test_parallel_vectors_of_a_blade_give_numbers() -> None:
    vectors = unit_vectors(3, FLAT_DIM)
    vectors[1, FLAT_DIM // 2 :] = vectors[1, : FLAT_DIM // 2]
    vectors[2] = 0
    view, _ = _both(np.arange(3), vectors, 2)
    for query in vectors[:2]:
        assert np.isfinite(view.search(query, 3).scores).all()


DIM = 48
COUNT = 6000


def _clustered(count: int, seed: int = 0) -> Vectors:
    """Clusters of clusters, with fewer directions than dimensions."""
    random = np.random.default_rng(seed)
    directions = np.random.default_rng(1).standard_normal((12, DIM)) * np.linspace(2, 0.3, 12)[:, None]
    topics = np.random.default_rng(2).standard_normal((60, 12))
    made = topics[random.integers(0, 60, count)] + 0.6 * random.standard_normal((count, 12))
    return unit((made @ directions + 0.1 * random.standard_normal((count, DIM))).astype(np.float32))


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
    result, expected = 0, 0
    for query in _clustered(15, seed=9):
        allowed = _allowed(share, kind, query)
        keys = built.view.search(query, 10, allowed=allowed).keys
        assert len(keys) == min(10, len(allowed))
        assert np.isin(keys, allowed).all()
        result += np.isin(keys, built.reference.search(query, 10, allowed=allowed).keys).sum()
        expected += len(keys)
    assert result >= 0.99 * expected


def test_codes_answer_and_say_that_they_do(built: Both) -> None:
    queries = _clustered(100, seed=9)
    results = [built.view.search(query, 10) for query in queries]
    assert not all(one.exact for one in results)
    assert built.recall(queries) >= 0.99
    for one, query in zip(results, queries, strict=True):
        # Scores are those of the stored vectors, for every kind of search.
        same(one, built.reference.search(query, 10, allowed=np.sort(one.keys)))
    for one, other in zip(built.view.search_many(queries, 10), results, strict=True):
        assert one.keys.tolist() == other.keys.tolist()


@pytest.mark.parametrize("coded", [False, True])
def test_threads_that_search_many_at_once_beside_writes_each_get_their_own_answers(coded: bool) -> None:
    vectors, queries = _clustered(COUNT), _clustered(40, seed=9)
    view = CosineView(DIM)
    view.add(np.arange(4000), vectors[:4000])
    if coded:
        view.build()
        prefer_codes(view)
    # Added vectors point away from every query, and so change no answer.
    away = unit(-queries.mean(axis=0, keepdims=True))
    expected = [neighbours.keys.tolist() for neighbours in view.search_many(queries, 10)]

    def ask(first: int, _: Event) -> None:
        for _round in range(10):
            neighbours = view.search_many(queries[first : first + 20], 10)
            assert [one.keys.tolist() for one in neighbours] == expected[first : first + 20]

    with concurrently(*(partial(ask, first) for first in (0, 5, 10, 20))):
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


@pytest.mark.parametrize("view", [FlatView(4), CosineView(4)])
def test_an_empty_view_finds_nothing_and_builds_nothing(view: FlatView | CosineView) -> None:
    query = unit_vectors(1, 4)[0]
    assert len(view.search(query, 5).keys) == 0
    assert len(view.search(query, 5, allowed=np.array([1, 2])).keys) == 0
    assert len(view.search_many(query[None], 5)[0].keys) == 0
    assert isinstance(view, FlatView) or not view.build()


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
    # Their memory besides vectors doesn't grow with the dimension, which is 512 elsewhere.
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


def test_readers_share() -> None:
    lock, inside = ReadWriteLock(), threading.Barrier(3, timeout=5)

    def read(_: threading.Event) -> None:
        with lock.reading():
            inside.wait()

    with concurrently(*[read] * 3):
        pass


def test_a_writer_is_alone_and_is_not_starved() -> None:
    lock, writing = ReadWriteLock(), threading.Event()

    def read(over: threading.Event) -> None:
        while not over.is_set():
            with lock.reading():
                assert not writing.is_set()

    with concurrently(*[read] * 3):
        for _ in range(20):
            with lock.writing():
                writing.set()
                time.sleep(0.0005)
                writing.clear()


def test_an_error_frees_the_lock() -> None:
    lock = ReadWriteLock()
    for _ in range(2):
        for side in (lock.writing, lock.reading):
            with pytest.raises(KeyError), side():
                raise KeyError


def test_a_writer_that_is_interrupted_while_it_waits_lets_readers_in(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = ReadWriteLock()
    waiting, interrupted = threading.Event(), threading.Event()

    def wait_for(_: Callable[[], bool]) -> bool:
        waiting.set()
        while not interrupted.is_set():
            lock._changed.wait(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(lock._changed, "wait_for", wait_for)

    def write() -> None:
        with suppress(KeyboardInterrupt), lock.writing():
            raise AssertionError("the writer was interrupted")

    def read() -> None:
        with lock.reading():
            pass

    with lock.reading():
        writer = threading.Thread(target=write)
        writer.start()
        assert waiting.wait(5)
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        reader.join(0.1)
        assert reader.is_alive()
        interrupted.set()
        writer.join(5)
        reader.join(5)
    assert not reader.is_alive()
