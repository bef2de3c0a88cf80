"""Rows in 8 bits beside those in float16: a scan reads half as much, and misses nothing for certain."""

from typing import Any, Final

import faiss
import numpy as np

from index.vectors.positions import Rows
from index.vectors.protocol import Vectors
from index.vectors.stored import SUMMATION, Found, Halves

# The largest number of 8 bits with a sign, and what FAISS stores for zero.
_LARGEST: Final = 127
_ZERO: Final = 128


class CoarseRows:
    """Vectors (N, D) rounded to whole numbers of steps, of 8 bits each.

    By Cauchy and Schwarz, what rounding takes off a vector changes its inner product with one of length one
    by no more than its own length.

    Args:
        dim: Length of a vector.
        largest: The largest number, without its sign, that vectors have; larger ones are cut off.
    """

    def __init__(self, dim: int, largest: float) -> None:
        library: Any = faiss
        kind = library.ScalarQuantizer.QT_8bit_direct_signed
        self.index = library.IndexScalarQuantizer(dim, kind, faiss.METRIC_INNER_PRODUCT)
        self.index.is_trained = True
        self._step = _step(largest)
        self._lost = 0.0

    @property
    def memory_bytes(self) -> int:
        """Memory that the rows hold."""
        return int(self.index.ntotal * self.index.d)

    def append(self, vectors: Halves) -> None:
        """Round vectors (N, D) as they are stored in float16."""
        if not len(vectors):
            return
        steps, lost = _rounded(vectors.astype(np.float32), self._step)
        self._lost = max(self._lost, lost)
        self.index.add_sa_codes((steps + _ZERO).astype(np.uint8))

    def question(self, query: Vectors, tolerance: float = 0.0) -> "Question":
        """Return what a scan of these rows is asked for a query (D,) of length one.

        Args:
            query: What is searched for.
            tolerance: By how much more what ranks the rows may be off their inner products in float16.
        """
        step = _step(float(np.abs(query).max()))
        steps, lost = _rounded(query[None], step)
        # What is off a vector, and what is off the query times the length of what is left of the vector.
        error = self._lost + lost * (1 + self._lost) + 2 * SUMMATION + tolerance
        return Question(steps[0], float(step * self._step), error)


class Question:
    """A query (D,) in whole numbers.

    Args:
        steps: The query.
        unit: What one in an inner product with it is worth.
        error: By how much an inner product may be off that in float16.
    """

    def __init__(self, steps: Vectors, unit: float, error: float) -> None:
        self.steps = steps
        self._unit = np.float32(unit)
        self.error = error

    def products(self, found: Vectors) -> Vectors:
        """Return the inner products (N,) of float16 rows that those of a scan stand for."""
        products: Vectors = found * self._unit
        return products

    def reaching(self, found: Found, count: int) -> Rows | None:
        """Return which of the rows that a scan found may be among the `count` nearest in float16.

        Args:
            found: The scan's best inner products and their rows; more than `count`.
            count: How many are the nearest.

        Returns:
            None where others may be as well, which it did not find.
        """
        products = self.products(found[0])
        surely = np.partition(products, -count)[-count] - self.error
        if products.min() + self.error >= surely:
            return None
        rows: Rows = found[1][products + self.error >= surely]
        return rows


def _step(largest: float) -> np.float32:
    return np.float32(largest / _LARGEST if largest else 1)


def _rounded(vectors: Vectors, step: np.float32) -> tuple[Vectors, float]:
    """Return vectors (N, D) in steps, and the length of the most that this takes off one of them."""
    steps = np.clip(np.rint(vectors / step), -_LARGEST, _LARGEST)
    off = vectors - steps * step
    return steps, float(np.sqrt(np.vecdot(off, off).max()))
