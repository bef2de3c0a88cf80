"""Milvus Lite: a collection on disk with scalar fields, through the engine's own Python interface.

Its documentation recommends that interface where the Milvus protocol is not needed; no network is in it.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.search.contestants.contestant import BUILD_EFFORT, LINKS, Contestant, Found
from tests.benchmarks.search.made_vectors import Vectors
from tests.benchmarks.search.workload import FIELDS, Condition, Source, Workload

_ROWS_AT_ONCE: Final = 5000
_NAME: Final = "vectors"
# Read when it is imported: fewer, larger segments are searched faster.
_SEGMENT_BYTES: Final = ("MILVUS_LITE_MEMTABLE_MEMORY_LIMIT_BYTES", str(1 << 30))


class MilvusCollection(Contestant):
    """HNSW, with an inverted index on each filtered field."""

    package = "milvus-lite"
    setting = f"float32, M {LINKS}, efConstruction {BUILD_EFFORT}, scalar indexes"
    carries_payload = True

    def build(self, workload: Workload, folder: Path) -> None:
        milvus = self._library()
        fields = [
            milvus.FieldSchema(name="id", dtype=milvus.DataType.INT64, is_primary=True),
            milvus.FieldSchema(name="vector", dtype=milvus.DataType.FLOAT_VECTOR, dim=workload.dim),
            *(milvus.FieldSchema(name=name, dtype=milvus.DataType.INT64) for name in FIELDS),
        ]
        values = {name: own.tolist() for name, own in workload.fields().items()}
        with milvus.MilvusLite(str(folder / "data")) as database:
            collection = database.create_collection(_NAME, milvus.CollectionSchema(fields=fields))
            for start in range(0, len(workload.vectors), _ROWS_AT_ONCE):
                block = workload.vectors[start : start + _ROWS_AT_ONCE].tolist()
                rows = [
                    {"id": key, "vector": vector} | {name: values[name][key] for name in FIELDS}
                    for key, vector in enumerate(block, start)
                ]
                collection.insert(rows)
            collection.flush()
            graph = {"M": LINKS, "efConstruction": BUILD_EFFORT}
            collection.create_index("vector", {"index_type": "HNSW", "metric_type": "IP", "params": graph})
            for field in FIELDS:
                collection.create_index(field, {"index_type": "INVERTED"})
            collection.load()

    def open(self, folder: Path) -> None:
        self._database = self._library().MilvusLite(str(folder / "data"))
        self._collection = self._database.get_collection(_NAME)
        self._collection.load()

    def prepare(self, workload: Workload, condition: Condition) -> str:
        ends = (f"{part.field} >= {part.low} and {part.field} < {part.high}" for part in condition.ranges)
        return " and ".join(ends)

    def search(
        self, query: Vectors, k: int, effort: int, filter: str | None = None, source: Source = "text"
    ) -> Sequence[int]:
        return self._search(query[None], k, effort, filter)[0]

    def search_batch(self, queries: Vectors, k: int, effort: int) -> Found:
        return self._search(queries, k, effort, None)

    def _search(self, queries: Vectors, k: int, effort: int, filter: str | None) -> Found:
        found = self._collection.search(
            list(queries),
            top_k=k,
            metric_type="IP",
            expr=filter,
            output_fields=list(FIELDS),
            search_params={"ef": effort},
        )
        return [[hit["id"] for hit in hits] for hits in found]

    def _library(self) -> Any:
        os.environ.setdefault(*_SEGMENT_BYTES)
        import milvus_lite

        return milvus_lite
