"""Views with codes, of however few vectors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from index.vectors.ann import OperatingPoint, calibrate
from index.vectors.protocol import Keys, Neighbours, Vectors, ViewName, decode_vectors, encode_vectors
from index.vectors.view import CosineView
from tests.index.samples import unit_vectors
from tests.index.vectors.reference import ReferenceView

DIM = 64
COUNT = 12_000


def stored_as(vectors: Vectors) -> Vectors:
    """Vectors as they come out of a view: rounded, and of length one again."""
    return decode_vectors(encode_vectors(vectors), vectors.shape[1])


def prefer_codes(view: CosineView) -> None:
    """Have codes searched however few rows pass a filter."""
    assert view._ann is not None
    assert view._ann.point.lists
    view._ann.scanned_rows = 0


def once_measured(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something in each build once it has measured its codes."""

    def measured(*arguments: Any) -> OperatingPoint:
        point = calibrate(*arguments)
        act()
        return point

    monkeypatch.setattr("index.vectors.view.calibrate", measured)


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

    def append(self, vectors: Vectors) -> Keys:
        """Add vectors under the next keys, and return these."""
        keys = np.arange(self.count, self.count + len(vectors))
        self.count += len(keys)
        self.add(keys, vectors)
        return keys

    def remove(self, keys: Keys) -> None:
        self.view.remove(keys)
        self.reference.remove(keys)


def recall(found: list[Neighbours], expected: list[Neighbours]) -> float:
    hits = sum(len(np.intersect1d(one.keys, other.keys)) for one, other in zip(found, expected, strict=True))
    return hits / sum(len(one.keys) for one in expected)
