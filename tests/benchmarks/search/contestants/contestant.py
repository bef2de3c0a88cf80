"""What a contestant can do."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Final

from tests.benchmarks.search.made_vectors import Vectors
from tests.benchmarks.search.workload import Condition, Source, Workload

# The same graph for every engine that builds one.
LINKS: Final = 32
BUILD_EFFORT: Final = 128
_GRAPH_EFFORTS: Final = (
    10,
    16,
    24,
    32,
    40,
    48,
    64,
    80,
    96,
    128,
    160,
    192,
    256,
    384,
    512,
    768,
    1024,
    1536,
    2048,
)

# What was found for each query, best first: fewer than asked for, where an engine finds fewer.
Found = list[Sequence[int]]


class Contestant(ABC):
    """An engine in the setting that its documentation recommends; one lives in a process of its own.

    Attributes:
        package: What pip installs it by.
        setting: How it is set up, in a few words.
        carries_payload: Whether hits come with what is stored beside their vectors.
        efforts: The search parameter, rising until the recall is enough; one value if there is none.
    """

    package: ClassVar[str]
    setting: ClassVar[str]
    carries_payload: ClassVar[bool] = False
    efforts: ClassVar[Sequence[int]] = _GRAPH_EFFORTS

    def __init__(self, threads: int) -> None:
        self.threads = threads

    @abstractmethod
    def build(self, workload: Workload, folder: Path) -> None:
        """Make everything that `open` needs, in an empty folder."""

    @abstractmethod
    def open(self, folder: Path) -> None:
        """Make ready to search."""

    def finalise(self) -> None:  # noqa: B027 - most have nothing to do
        """Do what continues in the background after a start."""

    @abstractmethod
    def prepare(self, workload: Workload, condition: Condition) -> Any:
        """Turn a condition into the engine's own form of filter, once for many searches."""

    @abstractmethod
    def search(
        self, query: Vectors, k: int, effort: int, filter: Any = None, source: Source = "text"
    ) -> Sequence[int]:
        """Search for one query (D,) of a text or an image, and read what is stored beside the hits."""

    def search_batch(self, queries: Vectors, k: int, effort: int) -> Found:
        """Search for many queries (Q, D) at once; here, one by one in every thread."""
        return self.in_threads(lambda query: self.search(query, k, effort), queries)

    def in_threads(self, search: Callable[[Vectors], Sequence[int]], queries: Vectors) -> Found:
        """Search for queries (Q, D), each by itself, from as many threads as all contestants have."""
        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(search, queries, chunksize=16))
