"""What names the rows that are likely nearest to a query without comparing all: codes, or a graph."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from index.vectors.flat import FlatCodes
from index.vectors.planner import Probe, ViewName
from index.vectors.positions import Rows
from index.vectors.protocol import Vectors


class Finder(Protocol):
    """Learnt of some rows; its owner sees to it that nobody searches while rows are added."""

    @property
    def name(self) -> ViewName:
        """The view that it makes of the rows."""

    @property
    def lists(self) -> int:
        """In how many lists the rows lie, of which a search may take some."""

    @property
    def memory_bytes(self) -> int:
        """Memory that it holds beside the rows."""

    @property
    def nested(self) -> bool:
        """Whether the first of many candidates are those that a search for fewer finds."""

    def __len__(self) -> int:
        """Return the number of rows that it knows: those that are there first."""

    def search(self, queries: Vectors, probe: Probe, threads: int | None = None) -> Rows:
        """Return the likely nearest rows (Q, C) to queries (Q, D), likeliest first; -1 for none.

        Args:
            queries: What to search for.
            probe: How.
            threads: On how many; by default on all cores where that is worth it.
        """

    def learn(self, vectors: Vectors) -> None:
        """Take in the vectors (N, D) of the next rows, which are there already."""

    def settle(self, vectors: Vectors) -> None:
        """Use the rows themselves in place of any copy; vectors (N, D) came behind those that it knows."""

    def append(self, vectors: Vectors) -> None:
        """Append vectors (N, D) to the rows, and learn them if it finds any others as surely as these."""

    def with_learnt(self, vectors: Vectors, selector: Any = None) -> Callable[[Vectors, Probe], Rows] | None:
        """Return what `search` would be once it had learnt the vectors (N, D) of the next rows.

        Args:
            vectors: As they were rounded.
            selector: FAISS's selector of the rows that may be found; None for all.

        Returns:
            None where it never has rows to learn.
        """

    def flat(self, sample: Vectors) -> FlatCodes | None:
        """Return codes for some of the rows, learnt from a sample (S, D), if it makes codes: none yet."""

    @property
    def outgrown(self) -> bool:
        """Whether it has so many more rows than it was made for that another would be faster."""

    def write(self, folder: Path, stem: str) -> dict[str, Path]:
        """Write it into files of this folder, by part, without the rows."""
