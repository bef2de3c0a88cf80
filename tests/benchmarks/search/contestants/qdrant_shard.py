"""Qdrant Edge: a shard on disk with payload, in this process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import qdrant_edge as qdrant

from tests.benchmarks.search.contestants.contestant import BUILD_EFFORT, LINKS, Contestant, Found
from tests.benchmarks.search.made_vectors import Vectors
from tests.benchmarks.search.workload import FIELDS, Condition, Source, Workload

_POINTS_AT_ONCE: Final = 2000


class QdrantShard(Contestant):
    """One segment, an index on each filtered field before the graph is built, both as its pages recommend."""

    package = "qdrant-edge-py"
    setting = f"float32, m {LINKS}, ef_construct {BUILD_EFFORT}, one segment, payload indexes"
    carries_payload = True

    def build(self, workload: Workload, folder: Path) -> None:
        shard = qdrant.EdgeShard.create(str(folder), self._config(workload.dim))
        for field in FIELDS:
            shard.update(qdrant.UpdateOperation.create_field_index(field, qdrant.PayloadSchemaType.Integer))
        values = {name: own.tolist() for name, own in workload.fields().items()}
        for start in range(0, len(workload.vectors), _POINTS_AT_ONCE):
            block = workload.vectors[start : start + _POINTS_AT_ONCE].tolist()
            points = [
                qdrant.Point(
                    key, vector, {"id": f"image-{key}"} | {name: values[name][key] for name in FIELDS}
                )
                for key, vector in enumerate(block, start)
            ]
            shard.update(qdrant.UpdateOperation.upsert_points(points))
        shard.flush()
        shard.optimize()
        shard.close()

    def open(self, folder: Path) -> None:
        self._shard = qdrant.EdgeShard.load(str(folder))

    def prepare(self, workload: Workload, condition: Condition) -> Condition:
        return condition

    def search(
        self, query: Vectors, k: int, effort: int, filter: Condition | None = None, source: Source = "text"
    ) -> Sequence[int]:
        found = self._shard.query(self._request(query, k, effort, filter))
        return [_read(point) for point in found]

    def search_batch(self, queries: Vectors, k: int, effort: int) -> Found:
        requests = [self._request(query, k, effort, None) for query in queries]
        found = self._shard.query_batch(qdrant.QueryBatchRequest(requests))
        return [[_read(point) for point in points] for points in found]

    def _config(self, dim: int) -> qdrant.EdgeConfig:
        return qdrant.EdgeConfig(
            vectors=qdrant.EdgeVectorParams(size=dim, distance=qdrant.Distance.Dot),
            hnsw_config=qdrant.HnswIndexConfig(
                m=LINKS,
                ef_construct=BUILD_EFFORT,
                full_scan_threshold=10_000,
                max_indexing_threads=self.threads,
            ),
            optimizers=qdrant.EdgeOptimizersConfig(default_segment_number=1, max_segment_size=100_000_000),
            max_search_threads=self.threads,
        )

    def _request(
        self, query: Vectors, k: int, effort: int, condition: Condition | None
    ) -> qdrant.QueryRequest:
        return qdrant.QueryRequest(
            limit=k,
            query=qdrant.Query.Nearest(query.tolist()),
            params=qdrant.SearchParams(hnsw_ef=effort),
            filter=None if condition is None else _filter(condition),
            with_payload=True,
        )


def _filter(condition: Condition) -> qdrant.Filter:
    return qdrant.Filter(
        must=[
            qdrant.FieldCondition(part.field, range=qdrant.RangeFloat(gte=part.low, lt=part.high))
            for part in condition.ranges
        ]
    )


def _read(point: Any) -> int:
    if point.payload is None:
        raise RuntimeError("a hit came without its payload")
    key: int = point.id
    return key
