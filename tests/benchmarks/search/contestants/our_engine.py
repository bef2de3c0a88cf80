"""recoquest's whole engine: the catalogue's filters, and hits with their texts and metadata."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from index.catalogue import open_catalogue
from index.engine import SearchEngine
from index.filters import Filter, parse_filter
from index.request import SearchRequest
from index.store import ImageStore
from tests.benchmarks.search.contestants.contestant import Contestant, Found
from tests.benchmarks.search.made_vectors import Vectors
from tests.benchmarks.search.workload import Condition, Workload

_COLLECTION: Final = "vectors"
_ROWS_AT_ONCE: Final = 2000


class OurEngine(Contestant):
    """On SQLite, with everything as the service sets it up."""

    package = "recoquest"
    setting = "SQLite, the view that it chooses"
    carries_payload = True
    efforts = (0,)
    warms = True

    def build(self, workload: Workload, folder: Path) -> None:
        engine = _engine(folder)
        _fill(engine, workload)
        engine.save_snapshot(_COLLECTION)
        engine.close()

    def open(self, folder: Path) -> None:
        self._engine = _engine(folder)
        self._active = self._engine.active(_COLLECTION)

    def prepare(self, workload: Workload, condition: Condition) -> Filter:
        return parse_filter({"field": condition.field, "lt": condition.limit})

    def search(self, query: Vectors, k: int, effort: int, filter: Filter | None = None) -> Sequence[int]:
        page = self._engine.search(self._active, query, SearchRequest(k=k, filter=filter))
        return [int(hit.id) for hit in page.hits]

    def search_batch(self, queries: Vectors, k: int, effort: int, filter: Filter | None = None) -> Found:
        pages = self._engine.search_many(self._active, queries, SearchRequest(k=k, filter=filter))
        return [[int(hit.id) for hit in page.hits] for page in pages]


def _engine(folder: Path) -> SearchEngine:
    catalogue = open_catalogue(f"sqlite:///{folder / 'catalogue.db'}")
    return SearchEngine(catalogue, ImageStore(folder / "images"), folder / "bundles")


def _fill(engine: SearchEngine, workload: Workload) -> None:
    # They bring torch, which a start is not to load.
    from tests.index.samples import begin_generation, put_vectors
    from training.data.manifest import Record

    generation = begin_generation(engine, _COLLECTION, workload.dim)
    numbers, places = workload.field("number").tolist(), workload.field("place").tolist()
    for start in range(0, len(numbers), _ROWS_AT_ONCE):
        block = workload.vectors[start : start + _ROWS_AT_ONCE]
        records = [
            Record(
                id=str(key),
                image=f"{key}.png",
                split="test",
                metadata={"number": numbers[key], "place": places[key]},
            )
            for key in range(start, start + len(block))
        ]
        put_vectors(engine, generation, records, block)
