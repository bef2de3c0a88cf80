from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index.vectors.protocol import After, Neighbours, Vectors
from index.vectors.view import CosineView, FlatView, new_view, oriented_bases
from tests.index.vectors.reference import ReferenceView

DIM = 24


def _blades(count: int, seed: int = 0) -> Vectors:
    vectors = np.random.default_rng(seed).standard_normal((count, DIM)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def _assert_equal(found: Neighbours, expected: Neighbours) -> None:
    assert found.exact
    assert found.keys.tolist() == expected.keys.tolist()
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-6)


@pytest.mark.parametrize("blades", [2, 3, 4])
@pytest.mark.parametrize("allowed", [None, [3, 5, 17, 80], list(range(0, 200, 3))])
def test_finds_what_comparing_determinants_finds(blades: int, allowed: list[int] | None) -> None:
    vectors = _blades(200)
    view, reference = FlatView(DIM, blades), ReferenceView(DIM, blades)
    for one in (view, reference):
        one.add(np.arange(200)[::-1].copy(), vectors)
    query = _blades(1, seed=1)[0]
    among = None if allowed is None else np.array(allowed)
    _assert_equal(view.search(query, 10, allowed=among), reference.search(query, 10, allowed=among))
    first = view.search(query, 3, allowed=among)
    after = After(float(first.scores[-1]), int(first.keys[-1]), 3)
    both = np.concatenate((first.keys, view.search(query, 3, allowed=among, after=after).keys))
    assert both.tolist() == reference.search(query, 6, allowed=among).keys.tolist()


def test_itself_is_nearest_and_its_mirror_image_farthest() -> None:
    vectors = _blades(50)
    swapped = vectors[7].reshape(2, -1)[::-1].reshape(1, -1)
    view = FlatView(DIM, 2)
    view.add(np.arange(51), np.concatenate((vectors, swapped)))
    found = view.search(vectors[7], 51)
    assert (found.keys[0], found.keys[-1]) == (7, 50)
    assert found.scores[0] == pytest.approx(1, abs=1e-6)
    assert found.scores[-1] == pytest.approx(-1, abs=1e-6)


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.integers(2, 4))
def test_a_basis_spans_the_same_oriented_subspace(seed: int, blades: int) -> None:
    vectors = _blades(5, seed)
    bases = oriented_bases(vectors, blades).reshape(5, blades, -1).astype(np.float64)
    own = vectors.reshape(5, blades, -1).astype(np.float64)
    identities = np.broadcast_to(np.eye(blades), (5, blades, blades))
    np.testing.assert_allclose(bases @ bases.transpose(0, 2, 1), identities, atol=1e-6)
    # The projection onto the basis loses nothing, and the change of basis keeps the orientation.
    change = own @ bases.transpose(0, 2, 1)
    np.testing.assert_allclose(change @ bases, own, atol=1e-5)
    assert (np.linalg.det(change) > 0).all()


def test_parallel_vectors_give_numbers() -> None:
    vectors = _blades(3)
    vectors[1, DIM // 2 :] = vectors[1, : DIM // 2]
    vectors[2] = 0
    view = FlatView(DIM, 2)
    view.add(np.arange(3), vectors)
    for query in vectors[:2]:
        assert np.isfinite(view.search(query, 3).scores).all()


def test_files_hold_the_view(tmp_path: Path) -> None:
    view = new_view(DIM, 2)
    assert type(view) is FlatView
    view.add(np.arange(20), _blades(20))
    files = view.write(tmp_path, "v")
    again = new_view(DIM, 2)
    again.read(files)
    query = _blades(1, seed=3)[0]
    _assert_equal(again.search(query, 20), view.search(query, 20))
    with pytest.raises(ValueError, match="no float32 vectors of this dimension"):
        new_view(DIM + 2, 2).read(files)


def test_a_single_vector_is_no_blade() -> None:
    assert type(new_view(DIM, 1)) is CosineView
