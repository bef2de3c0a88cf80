"""Masks of the rows that pass a filter, and a cache of them."""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from index.vectors.id_map import IdMap, Mask, Rows
from index.vectors.protocol import Keys

# One bit a row; the first row is the lowest bit of the first byte, as in FAISS.
Bits = NDArray[np.uint8]

_CACHE_BYTES: Final = 64 * 1024**2
# Numbers of so many rows are kept, as searches scan them; of more, a mask is smaller.
_FEW: Final = 16_384


@dataclass
class FilterMask:
    """Mask of the selectable rows.

    Attributes:
        mask: Mask (N,) of the selectable rows.
        count: Number of selectable rows.
        filtered: Whether a filter selects them; else they are all living rows.
        list_counts: Selectable rows of each list of the inverted file, once they are counted.
    """

    mask: Mask
    count: int
    filtered: bool = True
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
    def memory_bytes(self) -> int:
        """Upper bound of its memory."""
        return len(self.mask) * 9 // 8 + 8 * min(self.count, _FEW)


class FilterMasks:
    """Filter masks of the latest filters, by the identity of their arrays of keys."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[int, tuple[Keys | None, FilterMask]] = OrderedDict()
        self._bytes = 0

    @property
    def memory_bytes(self) -> int:
        """Memory that the masks hold."""
        return self._bytes

    def clear(self) -> None:
        """Forget all, as rows have come, gone or moved."""
        with self._lock:
            self._known.clear()
            self._bytes = 0

    def get(self, allowed: Keys | None, ids: IdMap) -> FilterMask:
        """Return the living rows of the keys that a filter allows; None: all living rows."""
        place = id(allowed)
        with self._lock:
            if place in self._known:
                self._known.move_to_end(place)
                return self._known[place][1]
        made = _mask(allowed, ids)
        with self._lock:
            if place not in self._known:
                # A reference to the keys keeps another array from getting their id().
                self._known[place] = allowed, made
                self._bytes += made.memory_bytes
            while self._bytes > _CACHE_BYTES and len(self._known) > 1:
                _, (_, oldest) = self._known.popitem(last=False)
                self._bytes -= oldest.memory_bytes
        return made


def _mask(allowed: Keys | None, ids: IdMap) -> FilterMask:
    if allowed is None:
        return FilterMask(ids.alive, len(ids), filtered=False)
    # The last place takes the keys without a row, -1.
    mask = np.zeros(len(ids.keys) + 1, dtype=bool)
    mask[ids.find(allowed)] = True
    mask = mask[:-1]
    return FilterMask(mask, int(np.count_nonzero(mask)))
