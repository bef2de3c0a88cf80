"""Random operations on a view with codes, compared one by one with the reference."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from index.vectors.protocol import After, Keys, Neighbours, Vectors, ViewName, best_first, cosines, unit
from index.vectors.view import CosineView
from tests.index.samples import unit_vectors
from tests.index.vectors.coding import DIM, Both, clustered, prefer_codes

FIRST = 3000
OPERATIONS = 200
K = 10


class _World(Both):
    """A view with codes and the reference; what is written may be of kinds that come later."""

    def __init__(self, name: ViewName, folder: Path, seed: int) -> None:
        super().__init__()
        self.append(clustered(FIRST, seed=0))
        self._name, self._folder = name, folder
        self.build(name, folder)
        self._draw = np.random.default_rng(seed)
        self._kinds = unit_vectors(40, DIM, seed=seed + 50)
        self._allowed: Keys | None = None
        self.found = self.true = self.coded = 0

    def step(self) -> None:
        """Do one operation, drawn at random."""
        operations: dict[Callable[[], None], int] = {
            self.append_some: 20,
            self.replace: 5,
            self.remove_some: 10,
            self.search: 25,
            self.search_filtered: 20,
            self.search_many: 10,
            self.search_pages: 5,
            self.encode_pending: 6,
            self.save: 2,
            self.rebuild: 1,
        }
        weights = np.array(list(operations.values()))
        list(operations)[self._draw.choice(len(weights), p=weights / weights.sum())]()

    def _vectors(self, count: int) -> Vectors:
        """Some like those that were there first, some of one later kind, or all the same."""
        later = self._kinds[[self._draw.integers(len(self._kinds))]]
        match self._draw.integers(4):
            case 0:
                spread = 0.04 * self._draw.standard_normal((count, DIM))
                return unit((later + spread).astype(np.float32))
            case 1:
                return np.repeat(later, count, axis=0)
            case _:
                return clustered(count, seed=int(self._draw.integers(10**6)))

    def _queries(self, count: int) -> Vectors:
        """Near what is there."""
        stored = self.view.vectors(self._draw.choice(self.view.keys(), count))
        return unit((stored + 0.03 * self._draw.standard_normal(stored.shape)).astype(np.float32))

    def append_some(self) -> None:
        self.append(self._vectors(int(self._draw.integers(1, 120))))

    def replace(self) -> None:
        keys = self._draw.choice(self.view.keys(), 30, replace=False)
        self.add(keys, self._vectors(len(keys)))

    def remove_some(self) -> None:
        """Remove some, of which some may not be there."""
        self.remove(self._draw.choice(self.count, 60, replace=False))

    def search(self) -> None:
        for query in self._queries(3):
            self._check(query, self.view.search(query, K), None)

    def search_filtered(self) -> None:
        """Search twice by a filter, new or the one before: what passes is coded then."""
        if self._allowed is None or self._draw.random() < 0.3:
            share = self._draw.choice([0.5, 0.1, 0.01])
            self._allowed = np.sort(self._draw.choice(self.count, int(share * self.count), replace=False))
        for query in self._queries(2):
            self._check(query, self.view.search(query, K, allowed=self._allowed), self._allowed)

    def search_many(self) -> None:
        queries = self._queries(4)
        for query, found in zip(queries, self.view.search_many(queries, K), strict=True):
            self._check(query, found, None)

    def search_pages(self) -> None:
        """No hit comes twice."""
        (query,) = self._queries(1)
        first = self.view.search(query, K)
        after = After(float(first.scores[-1]), int(first.keys[-1]), K)
        second = self.view.search(query, K, after=after)
        assert not np.intersect1d(first.keys, second.keys).size
        keys = np.concatenate((first.keys, second.keys))
        scores = np.concatenate((first.scores, second.scores))
        self._check(query, Neighbours(keys, scores, first.exact), None, 2 * K)

    def encode_pending(self) -> None:
        if self.view.has_pending and not self.view.encode_pending():
            self.rebuild()

    def rebuild(self) -> None:
        self.build(self._name, self._folder)

    def save(self) -> None:
        """Go on with what a snapshot held."""
        again = CosineView(DIM, self._folder if self.view.mapped else None)
        again.read(self.view.write(self._folder, f"v{self._draw.integers(10**9)}"))
        prefer_codes(again)
        self.view = again

    def _check(self, query: Vectors, found: Neighbours, allowed: Keys | None, k: int = K) -> None:
        true = self.reference.search(query, k, allowed=allowed)
        assert len(found.keys) == len(true.keys)
        ordered = best_first(found.keys, cosines(query, self.reference.vectors(found.keys)))
        assert found.keys.tolist() == ordered[0].tolist()
        np.testing.assert_array_equal(found.scores, ordered[1])
        assert allowed is None or np.isin(found.keys, allowed).all()
        # Of many that are the same, any is right.
        self.found += int(np.count_nonzero(found.scores >= true.scores[-1:]))
        self.true += len(true.keys)
        self.coded += not found.exact
        if found.exact:
            assert found.keys.tolist() == true.keys.tolist()


_FAST = ("ivf", 1)
_SLOW = [("mapped", 2), *((name, seed) for name in ("ivf", "mapped") for seed in (3, 4, 5))]


@pytest.mark.parametrize(
    ("name", "seed"), [_FAST, *(pytest.param(name, seed, marks=pytest.mark.slow) for name, seed in _SLOW)]
)
def test_as_the_reference_through_random_operations(name: ViewName, seed: int, tmp_path: Path) -> None:
    world = _World(name, tmp_path, seed)
    for _ in range(OPERATIONS):
        world.step()
        if world.view.name == "exact":
            world.rebuild()
    assert world.coded > OPERATIONS / 2
    assert world.found >= 0.99 * world.true
