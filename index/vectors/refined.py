"""Rows that codes name, ranked by their stored vectors inside FAISS."""

from functools import lru_cache
from typing import Any, Final

import faiss
import numpy as np

from index.planner import Probe
from index.vectors.codes import Codes
from index.vectors.half import HalfRows
from index.vectors.positions import Rows
from index.vectors.protocol import Vectors
from index.vectors.threads import cores, use_threads

# Settings that are kept, with the selectors in them.
_REMEMBERED: Final = 16


class Refined:
    """Codes and the rows that they are of, which stay those of their owner."""

    def __init__(self, codes: Codes, rows: HalfRows) -> None:
        library: Any = faiss
        self._codes, self._rows = codes, rows.index
        # Made of both at once, it refuses codes behind which more rows were added.
        empty = library.IndexFlatIP(codes.dim)
        self._index: Any = library.IndexRefine(empty, empty)
        self._index.base_index, self._index.refine_index = self._codes.index, self._rows
        self.grow()
        # To make them takes as long as to search some lists.
        self._parameters = lru_cache(_REMEMBERED)(_parameters)

    def grow(self) -> None:
        """Take in what was added to both."""
        self._index.ntotal = len(self._codes)

    def nearest(
        self, queries: Vectors, count: int, probe: Probe, selector: Any = None
    ) -> tuple[Vectors, Rows]:
        """Return inner products and rows (Q, count) likely nearest to queries (Q, D), the nearest first.

        Where no more are found the row is -1.

        Args:
            queries: What to search for.
            count: How many rows for each.
            probe: How many lists to search, and how many candidates to rank by their vectors.
            selector: FAISS's selector of the rows that may be found; None for all.
        """
        use_threads(cores() if len(queries) > 1 else 1)
        parameters = self._parameters(probe.lists, probe.candidates, count, selector)
        products, rows = self._index.search(np.ascontiguousarray(queries), count, params=parameters)
        return products, rows


def _parameters(lists: int, candidates: int, count: int, selector: Any) -> Any:
    library: Any = faiss
    inverted = library.SearchParametersIVF(nprobe=lists, sel=selector)
    return library.IndexRefineSearchParameters(
        k_factor=max(1.0, candidates / count),
        base_index_params=library.SearchParametersPreTransform(index_params=inverted),
    )
