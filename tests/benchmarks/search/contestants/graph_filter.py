"""Filters of graph libraries, which know keys alone."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.search.brute_force import Keys


class GraphFilter:
    """Keys that pass, as recoquest's view gets them; the first search makes a mask of them.

    Args:
        keys: Keys that pass.
        count: Number of all vectors.
    """

    def __init__(self, keys: Keys, count: int) -> None:
        self._keys = keys
        self._count = count

    @cached_property
    def mask(self) -> NDArray[np.bool_]:
        """Mask (N,) by key."""
        mask = np.zeros(self._count, dtype=bool)
        mask[self._keys] = True
        return mask

    @cached_property
    def bytes(self) -> bytes:
        """The mask as bytes, of which Python reads one sooner than of an array."""
        return self.mask.tobytes()
