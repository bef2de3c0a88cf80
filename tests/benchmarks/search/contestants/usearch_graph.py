"""USearch: a graph in memory, with vectors in float32 or 8 bits; its Python interface has no filter."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from usearch.index import Index, MetricKind

from tests.benchmarks.search.brute_force import Keys
from tests.benchmarks.search.contestants.contestant import BUILD_EFFORT, LINKS, Contestant, Found
from tests.benchmarks.search.contestants.graph_filter import GraphFilter
from tests.benchmarks.search.made_vectors import Vectors
from tests.benchmarks.search.workload import Condition, Source, Workload

# As many are asked for and thrown away at most.
_MAX_CANDIDATES: Final = 100_000


class UsearchGraph(Contestant):
    """In float32. Filtered, it is asked for more and more until enough of them pass."""

    package = "usearch"
    setting = f"float32, connectivity {LINKS}, expansion_add {BUILD_EFFORT}"
    dtype: ClassVar[str] = "f32"

    def build(self, workload: Workload, folder: Path) -> None:
        index = Index(
            ndim=workload.dim,
            metric=MetricKind.Cos,
            dtype=self.dtype,
            connectivity=LINKS,
            expansion_add=BUILD_EFFORT,
        )
        vectors = np.ascontiguousarray(workload.vectors)
        index.add(np.arange(len(vectors)), vectors, threads=self.threads)
        index.save(str(folder / "index"))

    def open(self, folder: Path) -> None:
        restored = Index.restore(str(folder / "index"))
        if restored is None:
            raise RuntimeError("USearch does not read its own file")
        self._index = restored

    def prepare(self, workload: Workload, condition: Condition) -> GraphFilter:
        return GraphFilter(workload.passing(condition), len(workload.vectors))

    def search(
        self, query: Vectors, k: int, effort: int, filter: GraphFilter | None = None, source: Source = "text"
    ) -> Sequence[int]:
        self._index.expansion_search = effort
        if filter is None:
            keys: list[int] = self._index.search(query, k, threads=1).keys.tolist()
            return keys
        return self._passing(query, k, effort, filter.mask)

    def search_batch(self, queries: Vectors, k: int, effort: int) -> Found:
        self._index.expansion_search = effort
        found: Found = self._index.search(queries, k, threads=self.threads).keys.tolist()
        return found

    def _passing(self, query: Vectors, k: int, effort: int, mask: NDArray[np.bool_]) -> Sequence[int]:
        asked = max(k, effort)
        while True:
            found = self._index.search(query, asked, threads=1).keys
            kept: Keys = found[mask[found]]
            if len(kept) >= k or asked >= min(_MAX_CANDIDATES, len(mask)):
                passing: list[int] = kept[:k].tolist()
                return passing
            asked *= 4


class UsearchBytes(UsearchGraph):
    """In 8 bits, a quarter of the memory."""

    setting = f"8 bits, connectivity {LINKS}, expansion_add {BUILD_EFFORT}"
    dtype = "i8"
