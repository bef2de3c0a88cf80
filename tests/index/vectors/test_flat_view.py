"""Views that compare everything: cosines with or without a sign, and blades, against the reference."""

import tracemalloc
from pathlib import Path
from threading import Event

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index.vectors.protocol import After, Keys, Neighbours, Vectors
from index.vectors.view import CosineView, FlatView, VectorView, new_view, oriented_bases
from tests.index.meanwhile import beside, note_calls
from tests.index.samples import unit_vectors
from tests.index.vectors.reference import ReferenceView

DIM = 24
KINDS = [(1, False), (1, True), (2, False), (3, False), (4, False)]


def _both(
    keys: Keys, vectors: Vectors, blades: int = 1, *, unsigned: bool = False
) -> tuple[FlatView, ReferenceView]:
    dim = vectors.shape[1]
    views = FlatView(dim, blades, unsigned=unsigned), ReferenceView(dim, blades, unsigned=unsigned)
    for view in views:
        view.add(keys, vectors)
    return views


def _same(found: Neighbours, expected: Neighbours, blades: int = 1) -> None:
    assert found.exact
    assert found.keys.tolist() == expected.keys.tolist()
    np.testing.assert_allclose(found.scores, expected.scores, rtol=0, atol=0 if blades == 1 else 1e-6)


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
        vectors = unit_vectors(distinct, DIM, seed)[random.integers(0, distinct, count)]
        vectors *= random.choice(np.array([-1, 1], np.float32), (count, 1))
    else:
        vectors = unit_vectors(count, DIM, seed)
    keys = random.choice(10 * count, count, replace=False).astype(np.int64)
    view, reference = _both(np.sort(keys) if rising else keys, vectors, blades, unsigned=unsigned)
    query = unit_vectors(1, DIM, seed + 1)[0]
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
        new_view(DIM, blades, unsigned=unsigned),
        ReferenceView(DIM, blades, unsigned=unsigned),
    ]
    count = 700
    keys, query = np.arange(count) * 3, unit_vectors(1, DIM, seed=1)[0]
    asked = np.random.default_rng(2).permutation(3 * count)[:400]
    for view in views:
        view.add(keys, unit_vectors(count, DIM))
        held, scores = view.scores(query, asked)
        assert held.tolist() == [key for key in asked.tolist() if key % 3 == 0]
        found = view.search(query, count)
        searched = dict(zip(found.keys.tolist(), found.scores.tolist(), strict=True))
        assert scores.tolist() == [searched[key] for key in held.tolist()]
        assert [len(part) for part in view.scores(query, asked[:0])] == [0, 0]
        one, score = view.scores(query, held[:1])
        assert (one.tolist(), score.tolist()) == (held[:1].tolist(), scores[:1].tolist())


@pytest.mark.parametrize(("blades", "unsigned"), KINDS)
def test_files_hold_the_view(blades: int, unsigned: bool, tmp_path: Path) -> None:
    assert (type(new_view(DIM, blades, unsigned=unsigned)) is CosineView) == ((blades, unsigned) == KINDS[0])
    view, _ = _both(np.arange(50)[::-1].copy(), unit_vectors(50, DIM), blades, unsigned=unsigned)
    files = view.write(tmp_path, "v")
    again = FlatView(DIM, blades, unsigned=unsigned)
    again.read(files)
    query = unit_vectors(1, DIM, seed=3)[0]
    _same(again.search(query, 50), view.search(query, 50))
    again.add(np.array([50]), unit_vectors(1, DIM, seed=7))
    assert len(again) == 51
    with pytest.raises(ValueError, match="no float32 vectors of this dimension"):
        FlatView(DIM + 12, blades, unsigned=unsigned).read(files)


def test_adding_a_key_again_replaces_its_vector() -> None:
    vectors = unit_vectors(6, 8)
    views = _both(np.array([3, 1, 2]), vectors[:3])
    for view in views:
        view.add(np.array([2, 7, 1]), vectors[3:])
        assert len(view) == 4
    for vector in vectors:
        _same(views[0].search(vector, 10), views[1].search(vector, 10))


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
            found = view.search(vectors[0], 5)
            assert found.keys[0] == 0
            np.testing.assert_allclose(vectors[found.keys] @ vectors[0], found.scores, atol=1e-5)

    with beside(*[search] * 3):
        for start in range(10, 4000, 190):
            view.add(np.arange(start, min(start + 190, 4000)), vectors[start : start + 190])
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
    ranked_rows = note_calls(monkeypatch, FlatView, "_score", lambda *arguments: len(arguments[2]))
    _same(view.search(vectors[0], 10, after=after), reference.search(vectors[0], 10, after=after))
    assert 0 < sum(ranked_rows) < 100


def test_a_blade_itself_is_nearest_and_its_mirror_image_farthest() -> None:
    vectors = unit_vectors(50, DIM)
    swapped = vectors[7].reshape(2, -1)[::-1].reshape(1, -1)
    view, _ = _both(np.arange(51), np.concatenate((vectors, swapped)), 2)
    found = view.search(vectors[7], 51)
    assert (found.keys[0], found.keys[-1]) == (7, 50)
    np.testing.assert_allclose(found.scores[[0, -1]], [1, -1], atol=1e-6)


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.integers(2, 4))
def test_a_basis_spans_the_same_oriented_subspace(seed: int, blades: int) -> None:
    vectors = unit_vectors(5, DIM, seed)
    bases = oriented_bases(vectors, blades).reshape(5, blades, -1).astype(np.float64)
    own = vectors.reshape(5, blades, -1).astype(np.float64)
    identities = np.broadcast_to(np.eye(blades), (5, blades, blades))
    np.testing.assert_allclose(bases @ bases.transpose(0, 2, 1), identities, atol=1e-6)
    # The projection onto the basis loses nothing, and the change of basis keeps the orientation.
    change = own @ bases.transpose(0, 2, 1)
    np.testing.assert_allclose(change @ bases, own, atol=1e-5)
    assert (np.linalg.det(change) > 0).all()


def test_parallel_vectors_of_a_blade_give_numbers() -> None:
    vectors = unit_vectors(3, DIM)
    vectors[1, DIM // 2 :] = vectors[1, : DIM // 2]
    vectors[2] = 0
    view, _ = _both(np.arange(3), vectors, 2)
    for query in vectors[:2]:
        assert np.isfinite(view.search(query, 3).scores).all()
