"""The flat view against the reference, which compares one vector at a time."""

import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index.vectors.protocol import After, Keys, Rows, Scores, Vectors
from index.vectors.view import FlatView
from tests.index.samples import unit_vectors
from tests.index.vectors.reference import ReferenceView


def _both(keys: Keys, vectors: Vectors) -> tuple[FlatView, ReferenceView]:
    views = FlatView(vectors.shape[1]), ReferenceView(vectors.shape[1])
    for view in views:
        view.add(keys, vectors)
    return views


def _assert_same(
    exact: FlatView,
    reference: FlatView | ReferenceView,
    query: Vectors,
    k: int,
    *,
    allowed: Keys | None = None,
    after: After | None = None,
) -> None:
    found = exact.search(query, k, allowed=allowed, after=after)
    expected = reference.search(query, k, allowed=allowed, after=after)
    np.testing.assert_array_equal(found.keys, expected.keys)
    np.testing.assert_array_equal(found.scores, expected.scores)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 120),
    distinct=st.integers(1, 30),
    k=st.integers(1, 130),
    share=st.floats(0, 1),
    rising=st.booleans(),
)
def test_as_the_reference_with_ties_filters_and_pages(
    seed: int, count: int, distinct: int, k: int, share: float, rising: bool
) -> None:
    random = np.random.default_rng(seed)
    # Few distinct vectors: most scores are shared by several keys.
    vectors = unit_vectors(distinct, 7, seed)[random.integers(0, distinct, count)]
    keys = random.choice(10 * count, count, replace=False).astype(np.int64)
    exact, reference = _both(np.sort(keys) if rising else keys, vectors)
    query = unit_vectors(1, 7, seed + 1)[0]
    allowed = np.sort(random.choice(10 * count, int(share * 10 * count), replace=False)).astype(np.int64)
    for among in (None, allowed):
        _assert_same(exact, reference, query, k, allowed=among)
        page = reference.search(query, max(1, k // 3), allowed=among)
        if len(page.keys):
            after = After(float(page.scores[-1]), int(page.keys[-1]), len(page.keys))
            _assert_same(exact, reference, query, k, allowed=among, after=after)


@pytest.mark.parametrize("share", [1.0, 0.5, 0.04, 0.02, 0.0005, 0.0])
def test_every_share_of_allowed_keys_is_exact(share: float) -> None:
    vectors = unit_vectors(2000, 16)
    exact, reference = _both(np.arange(2000), vectors)
    allowed = np.sort(np.random.default_rng(1).choice(2000, int(share * 2000), replace=False))
    for query in unit_vectors(5, 16, seed=9):
        _assert_same(exact, reference, query, 10, allowed=allowed.astype(np.int64))


def test_pages_cover_everything_once_in_the_order_of_one_search() -> None:
    vectors = unit_vectors(40, 8)[np.random.default_rng(0).integers(0, 40, 1500)]
    view = FlatView(8)
    view.add(np.arange(1500), vectors)
    query = unit_vectors(1, 8, seed=5)[0]
    whole = view.search(query, 1500)
    pages, after = [], None
    for size in (1, 7, 100, 900, 1000):
        page = view.search(query, size, after=after)
        pages.append(page.keys)
        after = After(float(page.scores[-1]), int(page.keys[-1]), sum(map(len, pages)))
    np.testing.assert_array_equal(np.concatenate(pages), whole.keys)
    assert len(view.search(query, 5, after=after).keys) == 0


def test_a_page_is_stable_while_vectors_are_added() -> None:
    vectors = unit_vectors(300, 8)
    view = FlatView(8)
    view.add(np.arange(200), vectors[:200])
    query = unit_vectors(1, 8, seed=5)[0]
    first = view.search(query, 20)
    view.add(np.arange(200, 300), vectors[200:])
    after = After(float(first.scores[-1]), int(first.keys[-1]), 20)
    rest = view.search(query, 300, after=after)
    assert not set(first.keys.tolist()) & set(rest.keys.tolist())
    assert set(range(200)) <= set(first.keys.tolist()) | set(rest.keys.tolist())


def test_adding_a_key_again_replaces_its_vector() -> None:
    vectors = unit_vectors(6, 8)
    exact, reference = _both(np.array([3, 1, 2]), vectors[:3])
    for view in (exact, reference):
        view.add(np.array([2, 7, 1]), vectors[3:])
        assert len(view) == 4
    for vector in vectors:
        _assert_same(exact, reference, vector, 10)


def test_an_empty_view_finds_nothing() -> None:
    view = FlatView(4)
    assert len(view.search(unit_vectors(1, 4)[0], 5).keys) == 0
    assert len(view.search(unit_vectors(1, 4)[0], 5, allowed=np.array([1, 2])).keys) == 0


def test_equal_vectors_score_equally_wherever_they_lie() -> None:
    vectors = np.repeat(unit_vectors(1, 513), 999, axis=0)
    view = FlatView(513)
    view.add(np.arange(999)[::-1].copy(), vectors)
    found = view.search(unit_vectors(1, 513, seed=2)[0], 10)
    assert found.keys.tolist() == list(range(10))
    assert len(set(found.scores.tolist())) == 1


def test_files_hold_the_view(tmp_path: Path) -> None:
    vectors = unit_vectors(50, 8)
    view = FlatView(8)
    view.add(np.arange(50)[::-1].copy(), vectors)
    files = view.write(tmp_path, "v")
    again = FlatView(8)
    again.read(files)
    _assert_same(again, view, vectors[3], 50)
    again.add(np.array([50]), unit_vectors(1, 8, seed=7))
    assert len(again) == 51


def test_memory_is_that_of_vectors_and_keys() -> None:
    view = FlatView(16)
    view.add(np.arange(100), unit_vectors(100, 16))
    assert view.memory_bytes == 100 * (16 * 4 + 8 + 1 + 8 + 8)


def test_searches_beside_adds_see_whole_states() -> None:
    vectors = unit_vectors(4000, 8)
    view = FlatView(8)
    view.add(np.arange(10), vectors[:10])
    wrong: list[str] = []
    done = threading.Event()

    def search() -> None:
        while not done.is_set():
            found = view.search(vectors[0], 5)
            scores = vectors[found.keys] @ vectors[0]
            if found.keys[0] != 0 or not np.allclose(scores, found.scores, atol=1e-5):
                wrong.append(f"{found}")

    readers = [threading.Thread(target=search) for _ in range(3)]
    for reader in readers:
        reader.start()
    for start in range(10, 4000, 190):
        stop = min(start + 190, 4000)
        view.add(np.arange(start, stop), vectors[start:stop])
    done.set()
    for reader in readers:
        reader.join()
    assert not wrong
    assert len(view) == 4000


def test_a_page_far_behind_the_first_copies_only_some_vectors_at_once() -> None:
    vectors = unit_vectors(40_000, 128)
    view = FlatView(128)
    view.add(np.arange(40_000), vectors)
    far = After(score=0.0, key=0, rank=39_000)
    tracemalloc.start()
    found = view.search(vectors[0], 10, after=far)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found.keys) == 10
    assert peak < vectors.nbytes / 2


def test_a_page_far_behind_the_first_ranks_no_hit_of_the_pages_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vectors = unit_vectors(3000, 64)
    view, reference = _both(np.arange(3000), vectors)
    before = view.search(vectors[0], 1000)
    after = After(float(before.scores[-1]), int(before.keys[-1]), 1000)
    ranked_rows = []
    score = FlatView._score

    def counted(view: FlatView, query: Vectors, rows: Rows) -> Scores:
        ranked_rows.append(len(rows))
        return score(view, query, rows)

    monkeypatch.setattr(FlatView, "_score", counted)
    _assert_same(view, reference, vectors[0], 10, after=after)
    assert 0 < sum(ranked_rows) < 100
