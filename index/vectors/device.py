"""Rows copied to a device of torch's, such as a GPU, and scanned there; who has none does not load torch."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import torch
from torch import Tensor

from index.vectors.passing import Passing
from index.vectors.positions import Mask, Rows
from index.vectors.protocol import Vectors
from index.vectors.stored import Halves

# Numbers of a block of rows: 64 MiB of float16, widened to float32 one block at a time.
_BLOCK_NUMBERS: Final = 32 * 1024**2
# Inner products of many queries that are there at once.
_PRODUCTS: Final = 32 * 1024**2
# Sign, exponent and 10 digits of a float32's fraction, before which stands one more.
_ELEVEN_DIGITS: Final = np.int32(-0x2000)
# What two parts of 11 digits may leave of a number.
_LEFT: Final = 2.0**-20
# What a float32 sum loses for each number, in whatever order; tensor cores cut off where others round.
_SUMMED: Final = 2.0**-22


class DeviceRows:
    """Vectors (N, D) in float16, of which each block is widened to float32 and multiplied with queries.

    Torch may multiply float32 with 11 digits only (TF32), whoever set it so. Float16 has no more, and a query
    is taken in two parts that have no more: every product is exact, and only sums are rounded.

    Whatever fails on the device is a RuntimeError; the rows are of no use then.

    Args:
        dim: Length of a vector.
        device: Where they lie.
        block: How many rows lie in one piece.

    Attributes:
        error: Upper bound of what an inner product with a query of length one is off.
    """

    def __init__(self, dim: int, device: torch.device, block: int | None = None) -> None:
        self._dim = dim
        self._device = device
        self._block = block or max(1, _BLOCK_NUMBERS // dim)
        # All but the last are full.
        self._blocks: list[Tensor] = []
        self._count = 0
        self.error = dim * _SUMMED + _LEFT

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._count

    @property
    def device_bytes(self) -> int:
        """Memory that the rows hold on the device."""
        return sum(block.nbytes for block in self._blocks)

    def clear(self) -> None:
        """Let go of all rows."""
        self._blocks, self._count = [], 0

    def append(self, vectors: Halves) -> None:
        """Append vectors (N, D) as they are stored."""
        rows = _tensor(vectors)
        while len(rows):
            place = self._count % self._block
            added = min(len(rows), self._block - place)
            self._last(place, place + added)[place : place + added].copy_(rows[:added])
            self._count += added
            rows = rows[added:]

    def nearest(self, query: Vectors, count: int, passing: Passing) -> Rows:
        """Return the `count` rows with the largest inner products with a query (D,); see `StoredRows`."""
        (scores,), (rows,) = self._nearest(query[None], count, self._barred_for(passing))
        nearest: Rows = rows[scores > -np.inf]
        return nearest

    def nearest_many(self, queries: Vectors, count: int, among: Mask) -> Rows:
        """Return the nearest of all rows (Q, count) of each query (Q, D); see `StoredRows`."""
        barred = None if among.all() else self._barred(among)
        found = np.full((len(queries), count), -1, dtype=np.int64)
        step = max(1, _PRODUCTS // (2 * max(min(self._block, self._count), count, 1)))
        for start in range(0, len(queries), step):
            scores, rows = self._nearest(queries[start : start + step], count, barred)
            rows[scores == -np.inf] = -1
            order = np.argsort(-scores, axis=1)
            found[start : start + step, : rows.shape[1]] = np.take_along_axis(rows, order, axis=1)
        return found

    def _nearest(self, queries: Vectors, count: int, barred: Tensor | None) -> tuple[Vectors, Rows]:
        """Return the best inner products and their rows (Q, C), in no order; -inf for those barred."""
        if queries.shape[1] != self._dim:
            # Torch's own error would be taken for one of the device.
            raise ValueError(f"queries have {queries.shape[1]} numbers, vectors {self._dim}")
        first = _cut(queries)
        parts = _tensor(np.concatenate((first, _cut(queries - first)))).to(self._device)
        best = torch.empty((len(queries), 0), dtype=torch.float32, device=self._device)
        rows = torch.empty((len(queries), 0), dtype=torch.int64, device=self._device)
        for start, block in self._filled():
            products = parts @ block.float().T
            scores = products[: len(queries)] + products[len(queries) :]
            if barred is not None:
                scores.masked_fill_(barred[start : start + len(block)], -torch.inf)
            top, places = scores.topk(min(count, len(block)), dim=1, sorted=False)
            best, rows = torch.cat((best, top), dim=1), torch.cat((rows, places + start), dim=1)
            if best.shape[1] > count:
                best, chosen = best.topk(count, dim=1, sorted=False)
                rows = rows.gather(1, chosen)
        return best.cpu().numpy(), rows.cpu().numpy()

    def _filled(self) -> Iterator[tuple[int, Tensor]]:
        """Give each block without its spare room, and its first row."""
        for place, block in enumerate(self._blocks):
            start = place * self._block
            yield start, block[: self._count - start]

    def _last(self, filled: int, needed: int) -> Tensor:
        """Return the last block, a new one if it has none filled, with room for the rows that are needed."""
        if filled == 0:
            self._blocks.append(self._empty(needed))
        elif needed > len(self._blocks[-1]):
            larger = self._empty(min(self._block, max(needed, 2 * filled)))
            larger[:filled].copy_(self._blocks[-1][:filled])
            self._blocks[-1] = larger
        return self._blocks[-1]

    def _empty(self, count: int) -> Tensor:
        return torch.empty((count, self._dim), dtype=torch.float16, device=self._device)

    def _barred_for(self, passing: Passing) -> Tensor | None:
        """Return which rows do not pass; a filter that comes again is not sent again."""
        if passing.count == len(passing.mask):
            return None
        if passing.barred is None:
            passing.barred = self._barred(passing.mask)
        barred: Tensor = passing.barred
        return barred

    def _barred(self, mask: Mask) -> Tensor:
        return _tensor(~mask).to(self._device)


def _cut(numbers: Vectors) -> Vectors:
    """Return numbers cut off behind their first 11 digits."""
    cut: Vectors = (np.ascontiguousarray(numbers, dtype=np.float32).view(np.int32) & _ELEVEN_DIGITS).view(
        np.float32
    )
    return cut


def _tensor(array: Vectors | Halves | Mask) -> Tensor:
    # Torch warns of arrays that cannot be written to.
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))
