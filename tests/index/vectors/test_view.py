"""The view of cosines against the reference: exactly while it scans, with known recall through codes."""

import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index.vectors.ann import IvfPq, calibrate
from index.vectors.protocol import (
    After,
    Keys,
    Neighbours,
    Rows,
    Vectors,
    ViewName,
    encode_vectors,
    rounded_vectors,
    unit,
)
from index.vectors.store import VectorStore
from index.vectors.view import CosineView
from tests.index.samples import unit_vectors
from tests.index.vectors.coding import prefer_codes, recall
from tests.index.vectors.reference import ReferenceView

DIM = 48
COUNT = 6000


def _stored(vectors: Vectors) -> Vectors:
    """Vectors as the catalogue has rounded them."""
    return rounded_vectors(encode_vectors(vectors), vectors.shape[1])


class _Reference(ReferenceView):
    """Holds rounded vectors as the catalogue gives them to everybody: of length one."""

    def add(self, keys: Keys, vectors: Vectors) -> None:
        super().add(keys, unit(vectors.copy()))


def _clustered(count: int, seed: int = 0) -> Vectors:
    """Clusters of clusters, with fewer directions than dimensions."""
    random = np.random.default_rng(seed)
    directions = np.random.default_rng(1).standard_normal((12, DIM)) * np.linspace(2, 0.3, 12)[:, None]
    topics = np.random.default_rng(2).standard_normal((60, 12))
    made = topics[random.integers(0, 60, count)] + 0.6 * random.standard_normal((count, 12))
    vectors = (made @ directions + 0.1 * random.standard_normal((count, DIM))).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return _stored(vectors)


def _same(found: Neighbours, expected: Neighbours) -> None:
    assert found.keys.tolist() == expected.keys.tolist()
    np.testing.assert_array_equal(found.scores, expected.scores)


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
    vectors = _stored(unit_vectors(distinct, 32, seed))[random.integers(0, distinct, count)]
    keys = random.choice(10 * count, count, replace=False).astype(np.int64)
    gone = random.choice(keys, int(removed * count), replace=False)
    view, reference = CosineView(32), _Reference(32)
    for one in (view, reference):
        one.add(keys, vectors)
        one.add(keys[: count // 3], vectors[::-1][: count // 3])
        one.remove(gone)
    assert view.keys().tolist() == reference.keys().tolist()
    assert len(view) == len(reference)
    query = unit_vectors(1, 32, seed + 1)[0]
    allowed = np.sort(random.choice(10 * count, int(share * 10 * count), replace=False)).astype(np.int64)
    for among in (None, allowed):
        expected = reference.search(query, k, allowed=among)
        _same(view.search(query, k, allowed=among), expected)
        page = reference.search(query, max(1, k // 3), allowed=among)
        if len(page.keys):
            after = After(float(page.scores[-1]), int(page.keys[-1]), len(page.keys))
            _same(
                view.search(query, k, allowed=among, after=after),
                reference.search(query, k, allowed=among, after=after),
            )
    if len(view):
        _same(view.search_many(query[None], k)[0], reference.search(query, k))


def test_rounding_that_turns_the_order_of_faiss_does_not_turn_ours() -> None:
    # All but equal vectors, whose rounded lengths differ more than their cosines.
    vectors = _stored(unit_vectors(1, DIM) + np.float32(1e-3) * unit_vectors(3000, DIM, seed=3))
    view, reference = CosineView(DIM), _Reference(DIM)
    for one in (view, reference):
        one.add(np.arange(3000), vectors)
    for query in unit_vectors(4, DIM, seed=5):
        _same(view.search(query, 10), reference.search(query, 10))
        _same(view.search_many(query[None], 10)[0], reference.search(query, 10))


def test_a_scan_by_several_threads_is_exact() -> None:
    vectors = _clustered(25_000)
    view = CosineView(DIM)
    view.add(np.arange(25_000), vectors)
    query = vectors[7]
    expected = np.lexsort(
        (np.arange(25_000), -(unit(vectors.copy()).astype(np.float64) @ query).astype(np.float32))
    )
    assert view.search(query, 20).keys.tolist() == expected[:20].tolist()
    allowed = np.arange(0, 25_000, 3)
    passing = expected[expected % 3 == 0]
    assert view.search(query, 20).keys.tolist() == expected[:20].tolist()
    assert view.search(query, 20, allowed=allowed).keys.tolist() == passing[:20].tolist()


@pytest.fixture(scope="module", params=["ivf", "mapped"])
def built(request: pytest.FixtureRequest) -> tuple[CosineView, ReferenceView]:
    views = CosineView(DIM), _Reference(DIM)
    for view in views:
        view.add(np.arange(COUNT), _clustered(COUNT))
    assert views[0].build(request.param)
    assert views[0].name == request.param
    prefer_codes(views[0])
    return views


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
def test_recall_at_every_share_of_passing_keys(
    built: tuple[CosineView, ReferenceView], share: float, kind: str
) -> None:
    view, reference = built
    found, expected = [], []
    for query in _clustered(15, seed=9):
        allowed = _allowed(share, kind, query)
        found.append(view.search(query, 10, allowed=allowed))
        expected.append(reference.search(query, 10, allowed=allowed))
        assert len(found[-1].keys) == min(10, len(allowed))
        assert np.isin(found[-1].keys, allowed).all()
    assert recall(found, expected) >= 0.99


def test_codes_answer_and_say_that_they_do(built: tuple[CosineView, ReferenceView]) -> None:
    view, reference = built
    queries = _clustered(100, seed=9)
    found = [view.search(query, 10) for query in queries]
    assert not all(one.exact for one in found)
    assert recall(found, [reference.search(query, 10) for query in queries]) >= 0.99
    for one, query in zip(found, queries, strict=True):
        # Scores are those of the stored vectors, whatever found them.
        np.testing.assert_array_equal(
            one.scores, reference.search(query, 10, allowed=np.sort(one.keys)).scores
        )
    many = view.search_many(queries, 10)
    for one, other in zip(many, found, strict=True):
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
    away = _stored(np.tile(-queries.mean(axis=0) / np.linalg.norm(queries.mean(axis=0)), (500, 1)))
    expected = [found.keys.tolist() for found in view.search_many(queries, 10)]
    wrong: list[int] = []

    def ask(first: int) -> None:
        for _ in range(10):
            found = view.search_many(queries[first : first + 20], 10)
            if [one.keys.tolist() for one in found] != expected[first : first + 20]:
                wrong.append(first)

    threads = [threading.Thread(target=ask, args=(first,)) for first in (0, 5, 10, 20)]
    for thread in threads:
        thread.start()
    for key in range(4000, 4500):
        view.add(np.array([key]), away[key - 4000 : key - 3999])
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert len(view) == 4500


def test_pages_through_codes_repeat_nothing_and_go_to_the_end(
    built: tuple[CosineView, ReferenceView],
) -> None:
    view, reference = built
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


@pytest.mark.parametrize("name", [pytest.param("ivf", marks=pytest.mark.slow), "mapped"])
def test_writes_are_found_at_once_through_codes(name: ViewName) -> None:
    vectors = _clustered(COUNT)
    view, reference = CosineView(DIM), _Reference(DIM)
    for one in (view, reference):
        one.add(np.arange(4000), vectors[:4000])
    view.build(name)
    prefer_codes(view)
    for one in (view, reference):
        one.add(np.arange(4000, 4100), vectors[4000:4100])
        one.add(np.arange(50), vectors[5000:5050])
        one.remove(np.arange(100, 300))
    probes = [*vectors[4000:4100:10], *vectors[5000:5050:10], *vectors[100:300:20], *vectors[:50:10]]
    found = [view.search(query, 10) for query in probes]
    assert any(not one.exact for one in found)
    assert recall(found, [reference.search(query, 10) for query in probes]) >= 0.99
    for place in range(0, 100, 10):
        assert view.search(vectors[4000 + place], 1).keys.tolist() == [4000 + place]
    assert not np.isin(np.concatenate([one.keys for one in found]), np.arange(100, 300)).any()
    # A graph that rounded otherwise would change what it stores.
    np.testing.assert_array_equal(view.vectors(view.keys()), reference.vectors(view.keys()))
    with pytest.raises(KeyError):
        view.vectors(np.array([100]))


def test_many_removals_move_rows_and_end_codes() -> None:
    vectors = _clustered(4000)
    view, reference = CosineView(DIM), _Reference(DIM)
    for one in (view, reference):
        one.add(np.arange(4000), vectors)
    view.build()
    before = view.memory_bytes
    for one in (view, reference):
        one.remove(np.arange(0, 4000, 2))
    assert view.name == "exact"
    assert view.memory_bytes < 0.6 * before
    for query in vectors[:20]:
        _same(view.search(query, 10), reference.search(query, 10))


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
    view, reference = CosineView(DIM), _Reference(DIM)
    for one in (view, reference):
        one.add(np.arange(count), _clustered(count))
    assert view.build(name) == (count >= 64)
    for query in _clustered(5, seed=9):
        _same(view.search(query, 10), reference.search(query, 10))
        _same(view.search(query, count), reference.search(query, count))


def test_an_empty_view_finds_nothing_and_builds_nothing() -> None:
    view = CosineView(4)
    query = unit_vectors(1, 4)[0]
    assert len(view.search(query, 5).keys) == 0
    assert len(view.search(query, 5, allowed=np.array([1, 2])).keys) == 0
    assert len(view.search_many(query[None], 5)[0].keys) == 0
    assert not view.build()


def test_files_hold_what_was_built_and_its_plan(
    built: tuple[CosineView, ReferenceView], tmp_path: Path
) -> None:
    view, _ = built
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
        _same(again.search(query, 10), view.search(query, 10))
    with pytest.raises(ValueError, match="no float16 rows of this dimension"):
        CosineView(DIM + 1).read(view.write(tmp_path, "w"))


def test_a_filter_finds_nothing_in_a_view_with_codes_whose_vectors_are_all_removed() -> None:
    view = CosineView(DIM)
    view.add(np.arange(330), unit_vectors(330, DIM))
    assert view.build()
    view.remove(np.arange(330))
    assert not len(view.search(unit_vectors(1, DIM)[0], 5, allowed=np.arange(9)).keys)


def test_memory_of_codes_is_counted_and_small(built: tuple[CosineView, ReferenceView]) -> None:
    view, _ = built
    rows = COUNT * (25 + (0 if view.mapped else DIM * 2))
    # What they take beside vectors does not grow with these, which have 512 numbers elsewhere.
    assert rows < view.memory_bytes < rows + COUNT * 44


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
    vectors = _stored(unit_vectors(3000, 64))
    view, reference = CosineView(64), _Reference(64)
    for one in (view, reference):
        one.add(np.arange(3000), vectors)
    before = view.search(vectors[0], 1000, allowed=among)
    after = After(float(before.scores[-1]), int(before.keys[-1]), 1000)
    ranked_rows = []
    get = VectorStore.get

    def counted(store: VectorStore, rows: Rows) -> Vectors:
        ranked_rows.append(len(rows))
        return get(store, rows)

    monkeypatch.setattr(VectorStore, "get", counted)
    page = view.search(vectors[0], 10, allowed=among, after=after)
    monkeypatch.undo()
    assert page.keys.tolist() == reference.search(vectors[0], 10, allowed=among, after=after).keys.tolist()
    assert sum(ranked_rows) < 100


def test_rows_are_added_while_codes_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = CosineView(DIM)
    view.add(np.arange(2000), _clustered(2000))
    assert view.build()

    write = IvfPq.write

    def overtaken(codes: IvfPq, path: Path) -> None:
        adding = threading.Thread(
            target=view.add, args=(np.array([2000]), _clustered(1, seed=3)), daemon=True
        )
        adding.start()
        adding.join(10)
        assert not adding.is_alive()
        write(codes, path)

    monkeypatch.setattr(IvfPq, "write", overtaken)
    files = view.write(tmp_path, "view")
    assert len(view) == 2001
    read = CosineView(DIM)
    read.read(files)
    assert (read.name, len(read)) == ("ivf", 2000)
    query = _clustered(1, seed=4)[0]
    _same(read.search(query, 10), view.search(query, 10, allowed=np.arange(2000)))


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

    def tearing(*arguments: object) -> object:
        with monkeypatch.context() as failing:
            failing.setattr(VectorStore, "append", _fail)
            with pytest.raises(MemoryError):
                view.add(np.arange(400, 401), vectors[:1])
        return calibrate(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("index.vectors.view.calibrate", tearing)
    assert not view.build("ivf")
