"""Where the vectors of keys lie: rows are only appended, so what is removed or replaced leaves a dead one."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from index.vectors.protocol import Keys

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Positions:
    """The key of each row, which rows are alive, and the row of each key."""

    def __init__(self) -> None:
        self.keys: Keys = np.empty(0, dtype=np.int64)
        self.alive: Mask = np.empty(0, dtype=bool)
        # Living keys in rising order, and the row of each.
        self._sorted: Keys = np.empty(0, dtype=np.int64)
        self._rows: Rows = np.empty(0, dtype=np.int64)

    @classmethod
    def of(cls, keys: Keys) -> "Positions":
        """Return the places of rows (N,); those that have no key but -1 are dead."""
        made = cls()
        made.keys, made.alive = keys, keys >= 0
        rows = np.flatnonzero(made.alive)
        made._rows = rows[np.argsort(keys[rows], kind="stable")]
        made._sorted = keys[made._rows]
        return made

    def write(self, path: Path) -> None:
        """Write the places into a file."""
        with path.open("wb") as file:
            np.save(file, np.where(self.alive, self.keys, -1))

    @classmethod
    def read(cls, path: Path, count: int) -> "Positions":
        """Return the places of `count` rows that `write` put into a file.

        Raises:
            ValueError: It holds no such places.
        """
        with path.open("rb") as file:
            keys = np.load(file, allow_pickle=False)
        if keys.dtype != np.int64 or keys.shape != (count,):
            raise ValueError("the files do not hold one key for each vector")
        return cls.of(keys)

    def __len__(self) -> int:
        """Return the number of living rows."""
        return len(self._sorted)

    @property
    def dead(self) -> int:
        """Number of rows that are dead."""
        return len(self.keys) - len(self)

    @property
    def memory_bytes(self) -> int:
        """Memory that it holds."""
        return self.keys.nbytes + self.alive.nbytes + self._sorted.nbytes + self._rows.nbytes

    def rising(self) -> Keys:
        """Return the living keys, rising."""
        return self._sorted

    def find(self, keys: Keys) -> tuple[Rows, Mask]:
        """Return the row of each key and whether it has one."""
        places, known = self._find(keys)
        return (self._rows[places] if len(self) else places), known

    def append(self, keys: Keys) -> None:
        """Put different keys in new rows; the rows that they had are dead."""
        self.drop(keys)
        rows = np.arange(len(self.keys), len(self.keys) + len(keys))
        order = np.argsort(keys, kind="stable")
        place = np.searchsorted(self._sorted, keys[order])
        # New arrays, so that whoever holds the old ones sees them whole.
        self._sorted = np.insert(self._sorted, place, keys[order])
        self._rows = np.insert(self._rows, place, rows[order])
        self.keys = np.concatenate((self.keys, keys))
        self.alive = np.concatenate((self.alive, np.ones(len(keys), dtype=bool)))

    def drop(self, keys: Keys) -> int:
        """Let the rows of keys die, and return how many did."""
        places, known = self._find(keys)
        gone = np.unique(places[known])
        if len(gone):
            self.alive = self.alive.copy()
            self.alive[self._rows[gone]] = False
            self._sorted, self._rows = np.delete(self._sorted, gone), np.delete(self._rows, gone)
        return len(gone)

    def _find(self, keys: Keys) -> tuple[Rows, Mask]:
        """Return where each key stands among the living, and whether it does."""
        if not len(self):
            return np.zeros(len(keys), dtype=np.int64), np.zeros(len(keys), dtype=bool)
        places = np.minimum(np.searchsorted(self._sorted, keys), len(self) - 1)
        return places, self._sorted[places] == keys
