"""Work in the background that is given up when rows move under it."""

from pathlib import Path

import numpy as np
import pytest

from index.vectors.calibration import holds
from index.vectors.cosine import CosineView
from tests.index.vectors.coding import DIM, clustered, once_measured, prefer_codes

COUNT = 5000


def test_a_build_that_rows_moved_under_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    view = CosineView(DIM)
    view.add(np.arange(COUNT), clustered(COUNT, seed=0))
    once_measured(monkeypatch, lambda: view.remove(np.arange(0, COUNT, 2)))
    assert not view.build()
    assert view.name == "exact"


def test_a_build_whose_vectors_came_into_memory_meanwhile_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    vectors = clustered(COUNT + 1, seed=0)
    view = CosineView(DIM, tmp_path)
    view.add(np.arange(COUNT), vectors[:COUNT])

    def drop() -> None:
        view.drop()
        view.add(np.array([COUNT]), vectors[COUNT:])

    once_measured(monkeypatch, drop)
    assert not view.build("mapped")
    assert view.search(vectors[COUNT], 1).keys.tolist() == [COUNT]


@pytest.mark.parametrize("rebuilt", [False, True])
def test_what_codes_would_learn_is_given_up_when_rows_move_or_there_are_other_codes(
    rebuilt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = clustered(COUNT + 200, seed=0)
    view = CosineView(DIM)
    view.add(np.arange(COUNT), vectors[:COUNT])
    view.build()
    prefer_codes(view)
    view.add(np.arange(COUNT, COUNT + 200), vectors[COUNT:])

    def held(*arguments: object) -> bool:
        answer = holds(*arguments)  # type: ignore[arg-type]
        if rebuilt:
            assert view.build()
        else:
            view.remove(np.arange(0, COUNT, 2))
        return answer

    monkeypatch.setattr("index.vectors.planned.holds", held)
    assert view.keep_up()
    assert view.name == ("ivf" if rebuilt else "exact")
    for key in range(1, COUNT + 200, 500):
        assert view.search(vectors[key], 1).keys.tolist() == [key]
