"""What is written into files is one state of a view, whatever is written to the view meanwhile."""

from pathlib import Path

import numpy as np
import pytest

from index.vectors import written
from index.vectors.codec import encode_vectors, rounded_vectors
from index.vectors.cosine import CosineView
from index.vectors.planned import MovedError
from index.vectors.planner import ViewName
from index.vectors.protocol import Vectors
from tests.index.samples import unit_vectors

DIM = 32
COUNT = 3000


def _stored(count: int, seed: int) -> Vectors:
    """Vectors as the catalogue has rounded them."""
    return rounded_vectors(encode_vectors(unit_vectors(count, DIM, seed)), DIM)


def _filled(name: ViewName, folder: Path) -> CosineView:
    view = CosineView(DIM)
    view.add(np.arange(COUNT), _stored(COUNT, 1))
    if name != "exact":
        assert view.build(name, folder)
    # Some have no codes, and some are dead.
    view.add(np.arange(COUNT - 10, COUNT + 20), _stored(30, 2))
    return view


@pytest.mark.parametrize("name", ["exact", "ivf", "hnsw", "mapped"])
def test_what_is_written_meanwhile_is_in_the_view_and_not_in_the_files(
    name: ViewName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written, "_BLOCK", 500)
    view = _filled(name, tmp_path)
    keys = view.keys()
    vectors = view.vectors(keys)
    # One is replaced, others are new.
    later = np.concatenate(([5], np.arange(9000, 9199)))
    gone = np.arange(50, 100)
    added = _stored(len(later), 3)

    def settled() -> None:
        view.add(later, added)
        view.remove(gone)

    files = view.write(tmp_path, "v", settled)
    again = CosineView(DIM, tmp_path if name == "mapped" else None)
    again.read(files)
    assert again.name == name
    assert again.planner == view.planner
    np.testing.assert_array_equal(again.keys(), keys)
    np.testing.assert_array_equal(again.vectors(keys), vectors)
    expected = np.setdiff1d(np.union1d(keys, later), gone)
    np.testing.assert_array_equal(view.keys(), expected)
    unchanged = np.setdiff1d(expected, later)
    np.testing.assert_array_equal(view.vectors(unchanged), vectors[np.searchsorted(keys, unchanged)])
    assert view.search(added[7] / np.linalg.norm(added[7]), 1).keys.tolist() == [later[7]]


@pytest.mark.parametrize("name", ["exact", "mapped"])
def test_rows_that_move_meanwhile_are_not_written(name: ViewName, tmp_path: Path) -> None:
    view = _filled(name, tmp_path)
    with pytest.raises(MovedError):
        view.write(tmp_path, "v", lambda: view.remove(np.arange(COUNT // 2)))
    assert len(view) == COUNT // 2 + 20
