"""recoquest's view of vectors alone: keys in, keys out, as with the graph libraries."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from index.generations import find_active
from index.vectors.protocol import Keys, VectorView
from index.views import Views
from tests.benchmarks.search.contestants.contestant import Contestant
from tests.benchmarks.search.contestants.our_engine import COLLECTION, fill_catalogue, open_engine
from tests.benchmarks.search.made_vectors import Vectors
from tests.benchmarks.search.workload import Condition, Workload

# The catalogue counts images from one.
_FIRST_KEY: Final = 1


class OurView(Contestant):
    """The view that recoquest chooses; nothing is left to set."""

    package = "recoquest"
    setting = "the view that it chooses"
    efforts = (0,)
    counted = "snapshots"

    def fill(self, workload: Workload, folder: Path) -> None:
        engine = open_engine(folder)
        fill_catalogue(engine, workload)
        engine.close()

    def build(self, workload: Workload, folder: Path) -> None:
        engine = open_engine(folder)
        engine.save_snapshot(COLLECTION)
        engine.close()

    def open(self, folder: Path) -> None:
        engine = open_engine(folder)
        with engine.catalogue.read() as session:
            found = find_active(session, COLLECTION)
            if found is None:
                raise RuntimeError("the collection was not built")
            self._view: VectorView = Views(engine.snapshots_folder).current(session, *found)

    def prepare(self, workload: Workload, condition: Condition) -> Keys:
        return workload.passing(condition) + _FIRST_KEY

    def search(self, query: Vectors, k: int, effort: int, filter: Keys | None = None) -> Sequence[int]:
        keys: list[int] = (self._view.search(query, k, allowed=filter).keys - _FIRST_KEY).tolist()
        return keys
