"""Exhaustive search by a similarity that is no inner product: k-blades, and vectors without a sign."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from index.vectors.filter_mask import FilterMask
from index.vectors.id_map import IdMap, Mask, Rows
from index.vectors.protocol import After, Neighbours, Scores, Vectors
from index.vectors.ranking import best_first, page_offset
from index.vectors.vector_view import VectorView
from training.evaluation.similarity import determinants, similarity

# Rough scores this close are ranked by float64 sums.
_TIE: Final = 1e-5
# Vectors that are compared at once: their products stay in the processor's cache.
_BLOCK: Final = 4096


class FlatView(VectorView):
    """All vectors in float32, compared with the query in NumPy, block by block.

    A k-blade is held as an oriented orthonormal basis, so that its cosine with another is the determinant of
    their k * k dot products (ReCo's supplement, section 2).

    Args:
        dim: Length of a vector.
        blades: k, of `dim / k` numbers each; 1: vectors are compared by cosine.
        unsigned: Whether a vector and its opposite are the same, such as QUEST's normals.
    """

    def __init__(self, dim: int, blades: int = 1, *, unsigned: bool = False) -> None:
        super().__init__(dim)
        self._blades = blades
        self._unsigned = unsigned
        self._room: Vectors = np.empty((0, dim), dtype=np.float32)

    @property
    def memory_bytes(self) -> int:
        """Memory that the view holds."""
        return super().memory_bytes + self._room.nbytes

    def write(self, folder: Path, stem: str, on_copied: Callable[[], None] | None = None) -> dict[str, Path]:
        """Write the view into files of this folder, by part; see `VectorView`."""
        files = {part: folder / f"{stem}.{part}" for part in ("rows", "keys")}
        with self._lock.reading():
            with files["rows"].open("wb") as file:
                np.save(file, self._room[: len(self._ids.keys)])
            IdMap.write_keys(files["keys"], self._ids.stored)
        if on_copied is not None:
            on_copied()
        return files

    def read(self, files: Mapping[str, Path]) -> None:
        """Take what `write` put into files in place of what the view holds; see `VectorView`."""
        with files["rows"].open("rb") as file:
            room = np.load(file, allow_pickle=False)
        if room.dtype != np.float32 or room.ndim != 2 or room.shape[1] != self.dim:
            raise ValueError("the file holds no float32 vectors of this dimension")
        ids = IdMap.read(files["keys"], len(room))
        with self._lock.writing():
            self._room, self._ids = room, ids
            self._masks.clear()

    def _append(self, vectors: Vectors) -> None:
        first = len(self._ids.keys)
        last = first + len(vectors)
        if last > len(self._room):
            room = np.empty((max(last, 3 * first // 2), self.dim), dtype=np.float32)
            room[:first] = self._room[:first]
            self._room = room
        self._room[first:last] = self._held(vectors)

    def _keep(self, alive: Mask) -> None:
        self._room = self._room[: len(alive)][alive]

    def _get(self, rows: Rows) -> Vectors:
        return self._room[rows]

    def _nearest(self, query: Vectors, k: int, passing: FilterMask, after: After | None) -> Neighbours:
        rows, rough = passing.rows, self._rough_scores(query, passing)
        wanted = k if after is None else k + after.rank
        while True:
            likely = _likely(rough, wanted)
            if after is not None:
                likely = likely[rough[likely] <= np.float32(after.score + 2 * _TIE)]
            keys, scores = best_first(self._ids.keys[rows[likely]], self._score(query, rows[likely]))
            first = page_offset(keys, scores, after)
            if first + k <= len(keys) or wanted >= len(rows):
                return Neighbours(keys[first : first + k], scores[first : first + k], exact=True)
            wanted *= 2

    def _rough_scores(self, query: Vectors, passing: FilterMask) -> Scores:
        """Return the scores of the rows that pass, summed in float32; `_score` has them exactly."""
        query, rows = self._held(query[None])[0], passing.rows
        scores = np.empty(len(rows), dtype=np.float32)
        for start in range(0, len(rows), _BLOCK):
            block = slice(start, start + _BLOCK)
            # A slice needs no copy.
            vectors = (self._room[block] if passing.is_all else self._room[rows[block]])[: len(rows[block])]
            if self._blades == 1:
                scores[block] = vectors @ query
            else:
                scores[block] = similarity(self._bases(query[None]), self._bases(vectors))[0]
        return np.abs(scores) if self._unsigned else scores

    def _score(self, query: Vectors, rows: Rows) -> Scores:
        query = self._held(query[None])[0]
        scores = np.empty(len(rows), dtype=np.float32)
        for start in range(0, len(rows), _BLOCK):
            block = slice(start, start + _BLOCK)
            vectors = self._room[rows[block]]
            if self._blades == 1:
                scores[block] = np.vecdot(vectors.astype(np.float64), query.astype(np.float64))
            else:
                own, others = self._bases(query[None])[0], self._bases(vectors)
                scores[block] = determinants(np.einsum("nid,jd->nij", others, own, dtype=np.float64))
        return np.abs(scores) if self._unsigned else scores

    def _held(self, vectors: Vectors) -> Vectors:
        return vectors if self._blades == 1 else oriented_bases(vectors, self._blades)

    def _bases(self, vectors: Vectors) -> Vectors:
        return vectors.reshape(len(vectors), self._blades, self.dim // self._blades)


def _likely(rough: Scores, count: int) -> Rows:
    """Return the places of the `count` best rough scores, and of those within the rounding error below."""
    if len(rough) <= count:
        return np.arange(len(rough))
    least = np.partition(rough, len(rough) - count)[len(rough) - count]
    likely: Rows = np.flatnonzero(rough >= least - 2 * _TIE)
    return likely


def oriented_bases(vectors: Vectors, blades: int) -> Vectors:
    """Return blades (N, k * D) as orthonormal bases of the same subspaces and orientations.

    Rounding and a change of length are undone by it. A blade whose vectors are not independent stays a
    basis of some subspace: its cosines mean nothing, but they are numbers.
    """
    bases: NDArray[np.float64] = vectors.reshape(len(vectors), blades, -1).astype(np.float64)
    q, r = np.linalg.qr(bases.transpose(0, 2, 1))
    signs = np.where(np.diagonal(r, axis1=1, axis2=2) < 0, -1.0, 1.0)
    oriented = (q * signs[:, None, :]).transpose(0, 2, 1)
    return np.ascontiguousarray(oriented.reshape(len(vectors), -1), dtype=np.float32)
