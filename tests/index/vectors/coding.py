"""Views with codes, and what codes passes a filter after its first search, of however few vectors."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from index.vectors import coded
from index.vectors.calibration import calibrate
from index.vectors.coded import CodedCopies
from index.vectors.cosine import CosineView
from index.vectors.passing import SearchedCopy
from index.vectors.planner import Planner, ViewName
from index.vectors.protocol import Keys, Neighbours, Vectors
from index.vectors.reference import ReferenceView
from tests.index.samples import unit_vectors
from tests.index.vectors.test_copied import stored_as

DIM = 64
COUNT = 12_000


def prefer_codes(view: CosineView) -> None:
    """Have a search of the codes seem to cost as much as to compare a hundred rows, and a scan very much."""
    assert view._planned is not None
    planner = view._planned.planner
    probes = tuple(replace(probe, cost=100.0) for probe in planner.probes)
    assert probes
    view._planned.planner = replace(planner, probes=probes, row_cost=1e9, pass_cost=1e9, candidate_cost=1.0)


def once_measured(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something in each build once it has measured its codes or graph."""

    def measured(*arguments: Any) -> Planner:
        planner = calibrate(*arguments)
        act()
        return planner

    monkeypatch.setattr("index.vectors.planned.calibrate", measured)


class HeldBack:
    """Every coding waits, once it has begun, until it may go on; counts those that gave up then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on, self.given_up = threading.Semaphore(0), threading.Event(), 0
        self._code = coded._coded_copies
        monkeypatch.setattr(coded, "_coded_copies", self._slowly)

    def _slowly(self, *arguments: object) -> object:
        self.begun.release()
        assert self.go_on.wait(30)
        try:
            return self._code(*arguments)  # type: ignore[arg-type]
        except coded._ChangedError:
            self.given_up += 1
            raise


def clustered(count: int, seed: int) -> Vectors:
    """Vectors around forty centres, those around clusters of centres."""
    random = np.random.default_rng(seed)
    centres = unit_vectors(5, DIM, seed=90).repeat(8, axis=0) + 0.8 * unit_vectors(40, DIM, seed=91)
    made = centres[random.integers(0, 40, count)] + 0.07 * random.standard_normal((count, DIM))
    vectors: Vectors = (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)
    return vectors


def coded_views(name: ViewName, folder: Path, count: int = COUNT) -> tuple[CosineView, ReferenceView]:
    """A view that was built, and a reference that holds the same."""
    vectors = clustered(count, seed=0)
    view, reference = CosineView(DIM), ReferenceView(DIM)
    view.add(np.arange(count), vectors)
    reference.add(np.arange(count), stored_as(vectors))
    assert view.build(name, folder)
    return view, reference


class Both:
    """A view and the reference, which get the same."""

    def __init__(self, name: ViewName, folder: Path, count: int = COUNT) -> None:
        self.view, self.reference = coded_views(name, folder, count)
        self.count = count

    def add(self, keys: Keys, vectors: Vectors) -> None:
        self.view.add(keys, vectors)
        self.reference.add(keys, stored_as(vectors))

    def remove(self, keys: Keys) -> None:
        self.view.remove(keys)
        self.reference.remove(keys)


def some_of(which: str) -> Keys:
    """A fifth of the keys: any, or those that lie together."""
    if which == "any":
        return np.arange(0, COUNT, 5)
    vectors = clustered(COUNT, seed=0)
    nearest = np.argsort(-(vectors @ vectors[0]))[: COUNT // 5]
    return np.sort(nearest)


def copies_of(view: CosineView, allowed: Keys) -> SearchedCopy | None:
    return view._filters.passing(allowed, view._places).copied


def wait_for_codes(view: CosineView, allowed: Keys) -> CodedCopies:
    deadline = time.monotonic() + 60
    while not isinstance(copies := copies_of(view, allowed), CodedCopies):
        assert time.monotonic() < deadline
        view.search(unit_vectors(1, DIM)[0], 5, allowed=allowed)
        time.sleep(0.02)
    return copies


def recall(found: list[Neighbours], expected: list[Neighbours]) -> float:
    hits = sum(len(np.intersect1d(one.keys, other.keys)) for one, other in zip(found, expected, strict=True))
    return hits / sum(len(one.keys) for one in expected)
