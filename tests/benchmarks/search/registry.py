"""The contestants by name, loaded only when they are asked for."""

import importlib
import importlib.util
from dataclasses import dataclass
from typing import Final

from tests.benchmarks.search.contestants.contestant import Contestant

_PACKAGE: Final = "tests.benchmarks.search.contestants"


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a contestant is found; `needs` is the module that must be installed for it."""

    module: str
    kind: str
    needs: str

    def load(self) -> type[Contestant]:
        """Import it with its engine."""
        loaded: type[Contestant] = getattr(importlib.import_module(f"{_PACKAGE}.{self.module}"), self.kind)
        return loaded

    @property
    def installed(self) -> bool:
        """Whether its engine can be imported."""
        return importlib.util.find_spec(self.needs) is not None


CONTESTANTS: Final = {
    "recoquest view": Entry("our_view", "OurView", "faiss"),
    "recoquest exact": Entry("our_view", "OurExactView", "faiss"),
    "hnswlib": Entry("hnswlib_graph", "HnswlibGraph", "hnswlib"),
    "usearch f32": Entry("usearch_graph", "UsearchGraph", "usearch"),
    "usearch i8": Entry("usearch_graph", "UsearchBytes", "usearch"),
    "recoquest": Entry("our_engine", "OurEngine", "faiss"),
    "recoquest without texts": Entry("our_engine", "OurEngineWithoutTexts", "faiss"),
    "qdrant-edge": Entry("qdrant_shard", "QdrantShard", "qdrant_edge"),
    "milvus-lite": Entry("milvus_collection", "MilvusCollection", "milvus_lite"),
}
