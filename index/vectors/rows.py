"""Rows of vectors: the row of each key, and masks of the rows that pass a filter.

Rows are only appended: a removed or replaced vector leaves a dead row.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from index.vectors.protocol import Keys, Mask, Rows

# From so many keys on, a table of rows by key is faster than binary searches, ...
_WORTH_TABLE: Final = 2000
# ... if there are at least this share of all keys between the lowest and the highest.
_DENSE: Final = 0.25
# One bit a row; the first row is the lowest bit of the first byte, as in FAISS.
Bits = NDArray[np.uint8]

# Numbers of so many rows are kept, as searches scan them; of more, a mask is smaller.
_FEW: Final = 16_384


class IdMap:
    """The key of each row, which rows are alive, and the row of each key.

    Attributes:
        keys: Keys (N,) of rows.
        alive: Which rows are alive (N,).
        rising: The keys of living rows, rising.
    """

    def __init__(self, keys: Keys | None = None) -> None:
        """Take the keys (N,) of rows; a row of key -1 is dead."""
        self.keys: Keys = np.empty(0, dtype=np.int64) if keys is None else keys
        self.alive: Mask = self.keys >= 0
        rows = np.flatnonzero(self.alive)
        # The row of each of the rising keys.
        self._rows: Rows = rows[np.argsort(self.keys[rows], kind="stable")]
        self.rising: Keys = self.keys[self._rows]
        self._table: NDArray[np.int32] | None = None

    @property
    def stored(self) -> Keys:
        """Copy of the keys (N,) for `write_keys`, -1 for dead rows."""
        stored: Keys = np.where(self.alive, self.keys, -1)
        return stored

    @staticmethod
    def write_keys(path: Path, stored: Keys) -> None:
        """Write `stored` keys into a file."""
        with path.open("wb") as file:
            np.save(file, stored)

    @classmethod
    def read(cls, path: Path, count: int) -> "IdMap":
        """Return the map of `count` rows that `write_keys` put into a file."""
        with path.open("rb") as file:
            keys = np.load(file, allow_pickle=False)
        if keys.dtype != np.int64 or keys.shape != (count,):
            raise ValueError("the files do not hold one key for each vector")
        return cls(keys)

    @property
    def memory_bytes(self) -> int:
        """Memory that it holds."""
        table = 0 if self._table is None else self._table.nbytes
        return self.keys.nbytes + self.alive.nbytes + self.rising.nbytes + self._rows.nbytes + table

    def find(self, keys: Keys) -> Rows:
        """Return the row of each key; -1 for keys without one."""
        if not len(self.rising) or not len(keys):
            return np.full(len(keys), -1, dtype=np.int64)
        first, last = self.rising[0], self.rising[-1]
        if len(keys) >= _WORTH_TABLE and len(self.rising) >= _DENSE * float(last - first + 1):
            if self._table is None:
                table = np.full(last - first + 1, -1, dtype=np.int32)
                table[self.rising - first] = self._rows
                self._table = table
            rows: Rows = self._table.take(keys - first, mode="clip").astype(np.int64)
            if keys.min() < first or keys.max() > last:
                rows[(keys < first) | (keys > last)] = -1
            return rows
        positions = np.minimum(np.searchsorted(self.rising, keys), len(self.rising) - 1)
        return np.where(self.rising[positions] == keys, self._rows[positions], -1)

    def append(self, keys: Keys) -> None:
        """Put different keys in new rows; the rows that they had are dead."""
        self.drop(keys)
        rows = np.arange(len(self.keys), len(self.keys) + len(keys))
        order = np.argsort(keys, kind="stable")
        positions = np.searchsorted(self.rising, keys[order])
        # New arrays, so that a reader of the old ones sees them whole.
        self.rising = np.insert(self.rising, positions, keys[order])
        self._rows = np.insert(self._rows, positions, rows[order])
        self.keys = np.concatenate((self.keys, keys))
        self.alive = np.concatenate((self.alive, np.ones(len(keys), dtype=bool)))
        self._table = None

    def drop(self, keys: Keys) -> int:
        """Let the rows of keys die, and return how many did."""
        rows = self.find(keys)
        gone = np.unique(rows[rows >= 0])
        if len(gone):
            self.alive = self.alive.copy()
            self.alive[gone] = False
            left = self.alive[self._rows]
            self.rising, self._rows, self._table = self.rising[left], self._rows[left], None
        return len(gone)


@dataclass
class FilterMask:
    """Mask of the selectable rows.

    Attributes:
        mask: Mask (N,) of the selectable rows.
        count: Number of selectable rows.
        filtered: Whether a filter selects them; otherwise they are all living rows.
        allowed: Keys that a filter allows. Masks are looked up by its identity: no other array may get it.
        list_counts: Selectable rows of each list of the inverted file, once they are counted.
    """

    mask: Mask
    count: int
    filtered: bool = True
    allowed: Keys | None = None
    list_counts: NDArray[np.int64] | None = None

    @property
    def is_all(self) -> bool:
        """Whether all rows are selectable."""
        return self.count == len(self.mask)

    @property
    def rows(self) -> Rows:
        """The selectable rows, rising."""
        return self._few_rows if self.count <= _FEW else np.flatnonzero(self.mask)

    @cached_property
    def _few_rows(self) -> Rows:
        return np.flatnonzero(self.mask)

    @cached_property
    def bits(self) -> Bits | None:
        """The mask as a bitmap; None if all rows are selectable."""
        return None if self.is_all else np.packbits(self.mask, bitorder="little")

    @property
    def nbytes(self) -> int:
        """Upper bound of its memory."""
        return len(self.mask) * 9 // 8 + 8 * min(self.count, _FEW)


def filter_mask(allowed: Keys | None, ids: IdMap) -> FilterMask:
    """Return the living rows of the keys that a filter allows; None: all living rows."""
    if allowed is None:
        return FilterMask(ids.alive, len(ids.rising), filtered=False)
    # The last element takes the keys without a row, -1.
    mask = np.zeros(len(ids.keys) + 1, dtype=bool)
    mask[ids.find(allowed)] = True
    mask = mask[:-1]
    return FilterMask(mask, int(np.count_nonzero(mask)), allowed=allowed)
