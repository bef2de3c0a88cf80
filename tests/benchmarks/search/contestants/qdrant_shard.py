"""Qdrant Edge: a shard on disk with payload, in this process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import qdrant_edge as qdrant

from tests.benchmarks.search.contestants.contestant import BUILD_EFFORT, LINKS, Contestant, Found
from tests.benchmarks.search.made_vectors import Vectors
from tests.benchmarks.search.workload import Condition, Workload

_POINTS_AT_ONCE: Final = 2000


class QdrantShard(Contestant):
    """One segment, an index on each filtered field before the graph is built, both as its pages recommend."""

    package = "qdrant-edge-py"
    setting = f"float32, m {LINKS}, ef_construct {BUILD_EFFORT}, one segment, payload indexes"
    carries_payload = True

    def build(self, workload: Workload, folder: Path) -> None:
        shard = qdrant.EdgeShard.create(str(folder), self._config(workload.dim))
        for field in ("number", "place"):
            shard.update(qdrant.UpdateOperation.create_field_index(field, qdrant.PayloadSchemaType.Integer))
        numbers, places = workload.field("number").tolist(), workload.field("place").tolist()
        for start in range(0, len(numbers), _POINTS_AT_ONCE):
            block = workload.vectors[start : start + _POINTS_AT_ONCE].tolist()
            points = [
                qdrant.Point(
                    key, vector, {"id": f"image-{key}", "number": numbers[key], "place": places[key]}
                )
                for key, vector in enumerate(block, start)
            ]
            shard.update(qdrant.UpdateOperation.upsert_points(points))
        shard.flush()
        shard.optimize()
        shard.close()

    def open(self, folder: Path) -> None:
        self._shard = qdrant.EdgeShard.load(str(folder))

    def prepare(self, workload: Workload, condition: Condition) -> qdrant.Filter:
        below = qdrant.RangeFloat(lt=condition.limit)
        return qdrant.Filter(must=[qdrant.FieldCondition(condition.field, range=below)])

    def search(self, query: Vectors, k: int, effort: int, filter: Any = None) -> Sequence[int]:
        return [point.id for point in self._shard.query(self._request(query, k, effort, filter))]

    def search_batch(self, queries: Vectors, k: int, effort: int, filter: Any = None) -> Found:
        requests = [self._request(query, k, effort, filter) for query in queries]
        found = self._shard.query_batch(qdrant.QueryBatchRequest(requests))
        return [[point.id for point in points] for points in found]

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

    def _request(self, query: Vectors, k: int, effort: int, filter: Any) -> qdrant.QueryRequest:
        return qdrant.QueryRequest(
            limit=k,
            query=qdrant.Query.Nearest(query.tolist()),
            params=qdrant.SearchParams(hnsw_ef=effort),
            filter=filter,
            with_payload=True,
        )
