"""A change that fails half-way, and a build beside writes."""

import numpy as np
import pytest

from index.vectors.ann import calibrate
from index.vectors.store import VectorStore
from index.vectors.view import CosineView
from tests.index.samples import unit_vectors

VECTORS = unit_vectors(400, 24)


def _fail(*_: object) -> None:
    raise MemoryError


@pytest.mark.parametrize("broken", ["store.VectorStore.append", "rows.IdMap.append"])
def test_a_view_whose_change_failed_is_to_be_read_anew(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    view = CosineView(24)
    view.add(np.arange(100), VECTORS[:100])
    assert not view.damaged
    with monkeypatch.context() as failing:
        failing.setattr(f"index.vectors.{broken}", _fail)
        with pytest.raises(MemoryError):
            view.add(np.arange(100, 110), VECTORS[100:110])
    assert view.damaged


def test_a_failed_change_ends_what_is_being_built(monkeypatch: pytest.MonkeyPatch) -> None:
    view = CosineView(24)
    view.add(np.arange(400), VECTORS)

    def tearing(*arguments: object) -> object:
        with monkeypatch.context() as failing:
            failing.setattr(VectorStore, "append", _fail)
            with pytest.raises(MemoryError):
                view.add(np.arange(400, 401), VECTORS[:1])
        return calibrate(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("index.vectors.view.calibrate", tearing)
    assert not view.build("ivf")
