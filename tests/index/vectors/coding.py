"""Views with codes, of however few vectors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

from index.vectors.ann import OperatingPoint, calibrate
from index.vectors.protocol import Keys, Neighbours, Vectors, ViewName, decode_vectors, encode_vectors, unit
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
    return unit(made.astype(np.float32))


class Both:
    """A view and the reference, which get the same."""

    def __init__(self, dim: int = DIM, folder: Path | None = None, *, shared: bool = False) -> None:
        self.view = CosineView(dim, folder, shared=shared)
        self.reference, self.count = ReferenceView(dim), 0

    @classmethod
    def clustered(cls, name: ViewName, folder: Path, count: int = COUNT) -> Self:
        """Return a view with codes of clustered vectors."""
        both = cls()
        both.append(clustered(count, seed=0))
        both.build(name, folder)
        return both

    def build(self, name: ViewName = "ivf", folder: Path | None = None) -> None:
        """Make codes, and have them searched however few rows pass a filter."""
        assert self.view.build(name, folder)
        assert self.view.name == name
        prefer_codes(self.view)

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

    def check(self, query: Vectors, k: int, **requested: Any) -> Neighbours:
        """Make sure that a search finds exactly what the reference does; return it."""
        page = self.view.search(query, k, **requested)
        same(page, self.reference.search(query, k, **requested))
        return page

    def recall(self, queries: Vectors, k: int = 10, allowed: Keys | None = None) -> float:
        """Return the share of the hits of all queries that are found."""
        return self._share(
            [self.view.search(query, k, allowed=allowed) for query in queries], queries, k, allowed
        )

    def recall_of_many(self, queries: Vectors, k: int = 10) -> float:
        """Return the same of queries that are searched together."""
        neighbours = self.view.search_many(queries, k)
        assert all(len(one.keys) == k and (np.diff(one.scores) <= 0).all() for one in neighbours)
        return self._share(neighbours, queries, k, None)

    def _share(self, result: list[Neighbours], queries: Vectors, k: int, allowed: Keys | None) -> float:
        expected = [self.reference.search(query, k, allowed=allowed) for query in queries]
        hits = [np.isin(one.keys, true.keys).sum() for one, true in zip(result, expected, strict=True)]
        return float(sum(hits) / sum(len(true.keys) for true in expected))


def same(result: Neighbours, expected: Neighbours) -> None:
    assert result.keys.tolist() == expected.keys.tolist()
    np.testing.assert_array_equal(result.scores, expected.scores)
