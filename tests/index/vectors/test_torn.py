"""A change that fails half-way, and a build beside writes."""

import threading
import time

import numpy as np
import pytest

from index.vectors import calibration
from index.vectors.cosine import CosineView
from index.vectors.half import HalfRows
from index.vectors.lock import ReadWriteLock
from tests.index.samples import unit_vectors

VECTORS = unit_vectors(400, 24)


def _fail(*_: object) -> None:
    raise MemoryError


@pytest.mark.parametrize("broken", ["half.HalfRows.add", "positions.Positions.append"])
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
    calibrate = calibration.calibrate

    def tearing(*arguments: object) -> object:
        with monkeypatch.context() as failing:
            failing.setattr(HalfRows, "add", _fail)
            with pytest.raises(MemoryError):
                view.add(np.arange(400, 401), VECTORS[:1])
        return calibrate(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("index.vectors.planned.calibrate", tearing)
    assert not view.build("ivf")


def test_a_build_lets_whoever_writes_in_after_each_search_that_it_times() -> None:
    lock, written = ReadWriteLock(), threading.Event()

    def write() -> None:
        with lock.writing():
            written.set()

    seen = []

    def search(_: object) -> None:
        seen.append(written.is_set())
        if len(seen) == 1:
            threading.Thread(target=write).start()
            until = time.monotonic() + 10
            while not lock._writers_waiting and time.monotonic() < until:
                time.sleep(0.001)

    calibration._fastest([search], VECTORS[:3], lock.reading)
    assert seen[:2] == [False, True]
