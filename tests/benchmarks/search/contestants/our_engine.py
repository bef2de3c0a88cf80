"""recoquest's whole engine: the catalogue's filters, and hits with their texts and metadata."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from app.engine import open_engine
from app.settings import Settings
from index.filters.grammar import parse_filter
from index.search.request import BatchEntry, SearchRequest
from index.search.results import SearchPage
from tests.benchmarks.search.contestants.contestant import Contestant, Found
from tests.benchmarks.search.made_vectors import Vectors
from tests.benchmarks.search.workload import FIELDS, Condition, Source, Workload

COLLECTION: Final = "vectors"
_ROWS_AT_ONCE: Final = 2000


class OurEngine(Contestant):
    """A home folder on SQLite, as the service sets it up; each image has an embedded text."""

    package = "recoquest"
    setting = "SQLite, the view that it chooses"
    carries_payload = True
    efforts = (0,)
    texts: ClassVar[bool] = True

    def build(self, workload: Workload, folder: Path) -> None:
        self._engine = open_engine(Settings(home=folder))
        self._fill(workload)
        self._engine.save_snapshot(COLLECTION)
        self._engine.close()

    def open(self, folder: Path) -> None:
        self._engine = open_engine(Settings(home=folder))
        # As the service does before it is ready.
        self._engine.warm(self._engine.active(COLLECTION).generation)

    def finalise(self) -> None:
        self._engine.warm_filters(self._engine.active(COLLECTION).generation)

    def prepare(self, workload: Workload, condition: Condition) -> dict[str, Any]:
        return condition.as_filter

    def search(
        self,
        query: Vectors,
        k: int,
        effort: int,
        filter: dict[str, Any] | None = None,
        source: Source = "text",
    ) -> Sequence[int]:
        parsed = None if filter is None else parse_filter(filter)
        request = SearchRequest(k=k, filter=parsed, kind=source)
        return _read(self._engine.search(self._engine.active(COLLECTION), query, request))

    def search_batch(self, queries: Vectors, k: int, effort: int) -> Found:
        active = self._engine.active(COLLECTION)
        request = SearchRequest(k=k, kind="text")
        pages = self._engine.search_batch(active, [BatchEntry(query, request, None) for query in queries])
        return [_read(page) for page in pages if isinstance(page, SearchPage)]

    def _fill(self, workload: Workload) -> None:
        # They bring torch, which a start is not to load.
        from index.generations.models import register_model
        from tests.index.samples import begin_generation, make_bundle, put_vectors
        from training.common.manifest import Record

        with tempfile.TemporaryDirectory() as folder:
            made = make_bundle(Path(folder) / "bundle", dim=workload.dim)
            digest = register_model(self._engine.home, made.folder).digest
        generation = begin_generation(self._engine, COLLECTION, workload.dim, digest=digest)
        values = {name: own.tolist() for name, own in workload.fields().items()}
        for start in range(0, len(workload.vectors), _ROWS_AT_ONCE):
            block = workload.vectors[start : start + _ROWS_AT_ONCE]
            records = [
                Record(
                    id=str(key),
                    image=f"{key}.png",
                    split="test",
                    texts=(f"text {key}",) if self.texts else (),
                    metadata={name: values[name][key] for name in FIELDS},
                )
                for key in range(start, start + len(block))
            ]
            texts = workload.texts[start : start + _ROWS_AT_ONCE] if self.texts else None
            put_vectors(self._engine, generation, records, block, texts)


class OurEngineWithoutTexts(OurEngine):
    """The same where no image has a text, as in most archives."""

    setting = "SQLite, the view that it chooses, no embedded text"
    texts = False


def _read(page: SearchPage) -> list[int]:
    """Read everything that the service sends of a page."""
    hits = [int(hit.id) for hit in page.hits if dict(hit.image.metadata)]
    cursor, unusual = page.next_cursor, page.z_scores
    if len(hits) < len(page.hits) or unusual is None or cursor == "":
        raise RuntimeError("a page lacks metadata or z-scores")
    return hits
