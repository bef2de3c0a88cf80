"""recoquest's view of vectors alone: keys in, keys out, as with the graph libraries."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

import numpy as np

from index.catalogue.collections import Generation
from index.vectors.protocol import Keys, ViewName
from index.vectors.view import CosineView
from index.views.manager import choose_view
from index.views.snapshots import read_snapshot, write_snapshot
from tests.benchmarks.search.contestants.contestant import Contestant, Found
from tests.benchmarks.search.made_vectors import Vectors
from tests.benchmarks.search.workload import Condition, Source, Workload

_ROWS_AT_ONCE: Final = 10_000


class OurView(Contestant):
    """The view that recoquest chooses for so many vectors; nothing is left to set."""

    package = "recoquest"
    setting = "float16, codes where the planner wants them"
    efforts = (0,)
    wanted: ClassVar[ViewName | None] = None

    def build(self, workload: Workload, folder: Path) -> None:
        view = filled_view(workload)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        choices = choose_view(len(view), view.dim, memory, self.wanted)
        if any(choice.chosen and choice.name == "ivf" for choice in choices) and not view.build():
            raise RuntimeError("the view was not built")
        write_snapshot(folder, view, _identity(view.dim), 1)
        (folder / "dim").write_text(str(view.dim))

    def open(self, folder: Path) -> None:
        found = read_snapshot(folder, _identity(int((folder / "dim").read_text())))
        if found is None or not isinstance(found[0], CosineView):
            raise RuntimeError("the snapshot is not read")
        self._view = found[0]

    def prepare(self, workload: Workload, condition: Condition) -> Keys:
        return workload.passing(condition)

    def search(
        self, query: Vectors, k: int, effort: int, filter: Keys | None = None, source: Source = "text"
    ) -> Sequence[int]:
        keys: list[int] = self._view.search(query, k, allowed=filter).keys.tolist()
        return keys

    def search_batch(self, queries: Vectors, k: int, effort: int) -> Found:
        return [found.keys.tolist() for found in self._view.search_many(queries, k)]


class OurExactView(OurView):
    """The same without codes: every answer is exact."""

    setting = "float16, every vector compared"
    wanted = "exact"


def filled_view(workload: Workload) -> CosineView:
    """Return a view of all vectors that answers exactly."""
    view = CosineView(workload.dim)
    for start in range(0, len(workload.vectors), _ROWS_AT_ONCE):
        block = np.ascontiguousarray(workload.vectors[start : start + _ROWS_AT_ONCE])
        view.add(np.arange(start, start + len(block)), block)
    return view


def _identity(dim: int) -> Generation:
    return Generation(1, "benchmark", 1, "c", "model", "benchmark", dim, 1, unsigned=False)
