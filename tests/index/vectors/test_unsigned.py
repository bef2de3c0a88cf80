from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index.vectors.protocol import After, Neighbours, Vectors
from index.vectors.view import FlatView, new_view
from tests.index.vectors.reference import ReferenceView

DIM = 24
COUNT = 200


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("index.vectors.view._BLOCK", 64)
        yield


def _vectors(count: int, seed: int = 0) -> Vectors:
    vectors = np.random.default_rng(seed).standard_normal((count, DIM)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def _view(vectors: Vectors) -> FlatView:
    view = FlatView(DIM, unsigned=True)
    view.add(np.arange(len(vectors)), vectors)
    return view


def _same(found: Neighbours, expected: Neighbours) -> None:
    assert found.exact
    assert found.keys.tolist() == expected.keys.tolist()
    assert found.scores.tolist() == expected.scores.tolist()


@pytest.mark.parametrize("allowed", [None, [3, 5, 17, 80], list(range(0, COUNT, 3))])
def test_finds_what_comparing_absolute_cosines_finds(allowed: list[int] | None) -> None:
    vectors = _vectors(COUNT)
    # Opposites lie at the same place in the ranking, and only their keys order them.
    vectors[100:150] = -vectors[:50]
    view, reference = FlatView(DIM, unsigned=True), ReferenceView(DIM, unsigned=True)
    for one in (view, reference):
        one.add(np.arange(COUNT)[::-1].copy(), vectors)
    query = _vectors(1, seed=1)[0]
    among = None if allowed is None else np.array(allowed)
    for k in (1, 2, 3, 10, COUNT):
        _same(view.search(query, k, allowed=among), reference.search(query, k, allowed=among))
    first = view.search(query, 3, allowed=among)
    after = After(float(first.scores[-1]), int(first.keys[-1]), 3)
    second = view.search(query, 3, allowed=among, after=after)
    _same(second, reference.search(query, 3, allowed=among, after=after))
    both = np.concatenate((first.keys, second.keys))
    assert both.tolist() == reference.search(query, 6, allowed=among).keys.tolist()


@settings(max_examples=30)
@given(st.sets(st.integers(0, COUNT - 1)), st.booleans(), st.integers(1, COUNT))
def test_no_sign_changes_a_ranking(flipped: set[int], query_flipped: bool, k: int) -> None:
    vectors, query = _vectors(COUNT), _vectors(1, seed=1)[0]
    changed = vectors.copy()
    changed[sorted(flipped)] *= -1
    found = _view(changed).search(-query if query_flipped else query, k)
    _same(found, _view(vectors).search(query, k))


def test_itself_and_its_opposite_are_nearest() -> None:
    vectors = _vectors(50)
    found = _view(np.concatenate((vectors, -vectors[7:8]))).search(vectors[7], 51)
    assert found.keys[:2].tolist() == [7, 50]
    np.testing.assert_allclose(found.scores[:2], 1, atol=1e-6)
    assert found.scores.min() >= 0


def test_files_hold_the_view(tmp_path: Path) -> None:
    view = new_view(DIM, unsigned=True)
    assert type(view) is FlatView
    view.add(np.arange(20), _vectors(20))
    files = view.write(tmp_path, "v")
    again = new_view(DIM, unsigned=True)
    again.read(files)
    query = _vectors(1, seed=3)[0]
    _same(again.search(query, 20), view.search(query, 20))
