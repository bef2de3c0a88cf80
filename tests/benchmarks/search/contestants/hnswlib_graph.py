"""hnswlib: a graph in memory; a filter is a Python function of a key."""

from collections.abc import Callable, Sequence
from pathlib import Path

import hnswlib
import numpy as np

from tests.benchmarks.search.contestants.contestant import BUILD_EFFORT, LINKS, Contestant, Found
from tests.benchmarks.search.contestants.graph_filter import GraphFilter
from tests.benchmarks.search.made_vectors import Vectors
from tests.benchmarks.search.workload import Condition, Source, Workload

Passes = Callable[[int], int]


class HnswlibGraph(Contestant):
    """As its README recommends for high recall in many dimensions."""

    package = "hnswlib"
    setting = f"float32, M {LINKS}, ef_construction {BUILD_EFFORT}"

    def build(self, workload: Workload, folder: Path) -> None:
        index = hnswlib.Index(space="ip", dim=workload.dim)
        index.init_index(len(workload.vectors), M=LINKS, ef_construction=BUILD_EFFORT)
        index.add_items(workload.vectors, num_threads=self.threads)
        index.save_index(str(folder / "index"))
        (folder / "dim").write_text(str(workload.dim))

    def open(self, folder: Path) -> None:
        self._index = hnswlib.Index(space="ip", dim=int((folder / "dim").read_text()))
        self._index.load_index(str(folder / "index"))

    def prepare(self, workload: Workload, condition: Condition) -> GraphFilter:
        return GraphFilter(workload.passing(condition), len(workload.vectors))

    def search(
        self, query: Vectors, k: int, effort: int, filter: GraphFilter | None = None, source: Source = "text"
    ) -> Sequence[int]:
        passes = None if filter is None else filter.bytes.__getitem__
        # Its README: with a filter in Python, one thread.
        return self._search(query[None], k, effort, passes, 1)[0]

    def search_batch(self, queries: Vectors, k: int, effort: int) -> Found:
        return self._search(queries, k, effort, None, self.threads)

    def _search(self, queries: Vectors, k: int, effort: int, filter: Passes | None, threads: int) -> Found:
        self._index.set_ef(max(effort, k))
        try:
            keys, _ = self._index.knn_query(queries, k, num_threads=threads, filter=filter)
        except RuntimeError as error:
            # So it says that fewer than k were found.
            if "ef or M is too small" not in str(error):
                raise
            return [() for _ in queries]
        found: Found = keys.astype(np.int64).tolist()
        return found
