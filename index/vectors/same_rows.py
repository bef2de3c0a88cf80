"""Rows whose vectors are the same: one of them stands for all."""

from itertools import chain
from pathlib import Path

import numpy as np

from index.vectors.positions import Rows
from index.vectors.stored import Halves


class SameRows:
    """Which rows are the same as one that stands for them."""

    def __init__(self) -> None:
        self._others: dict[int, list[int]] = {}
        self._standing: Rows = np.empty(0, dtype=np.int64)

    def add(self, standing: Rows, rows: Rows) -> None:
        """Note that rows (N,) are the same as those standing for them (N,)."""
        for first, row in zip(standing.tolist(), rows.tolist(), strict=True):
            self._others.setdefault(first, []).append(row)
        self._standing = np.fromiter(self._others, dtype=np.int64)

    def write(self, path: Path) -> None:
        """Write them into a file."""
        pairs = [(first, row) for first, rows in self._others.items() for row in rows]
        with path.open("wb") as file:
            np.save(file, np.array(pairs, dtype=np.int64).reshape(-1, 2))

    @classmethod
    def read(cls, path: Path, count: int) -> "SameRows":
        """Return what `write` put into a file, for so many rows.

        Raises:
            ValueError: It holds none of them.
        """
        with path.open("rb") as file:
            pairs = np.load(file, allow_pickle=False)
        if pairs.dtype != np.int64 or pairs.shape[1:] != (2,) or (pairs < 0).any() or (pairs >= count).any():
            raise ValueError("the file does not say which of these vectors are the same")
        same = cls()
        same.add(pairs[:, 0], pairs[:, 1])
        return same

    def with_others(self, found: Rows) -> Rows:
        """Return as many rows as these (C,), those that are the same behind each."""
        places = np.flatnonzero(np.isin(found, self._standing))
        if not len(places):
            return found
        others = [self._others[row] for row in found[places].tolist()]
        behind = np.repeat(places + 1, [len(rows) for rows in others])
        return np.insert(found, behind, list(chain.from_iterable(others)))[: len(found)]


def first_of_each(halves: Halves) -> Rows:
    """Return for each of some vectors (N, D) which is the first that is the same."""
    whole = np.ascontiguousarray(halves).view(f"V{halves.shape[1] * halves.itemsize}").ravel()
    _, first, place = np.unique(whole, return_index=True, return_inverse=True)
    return first[place]
