"""Rows that are found by codes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from index.vectors.codes import Codes
from index.vectors.flat import FlatCodes
from index.vectors.mapped import MappedRows
from index.vectors.planner import Probe, ViewName
from index.vectors.positions import Rows
from index.vectors.protocol import Vectors
from index.vectors.stored import StoredRows


class CodedRows:
    """Codes of the first rows, and the rows; see `Finder`."""

    def __init__(self, codes: Codes, rows: StoredRows) -> None:
        self._codes, self._rows = codes, rows

    @property
    def name(self) -> ViewName:
        """The view that they make of the rows."""
        return "mapped" if isinstance(self._rows, MappedRows) else "ivf"

    def __len__(self) -> int:
        """Return the number of rows that have codes."""
        return len(self._codes)

    @property
    def lists(self) -> int:
        """Number of lists."""
        return self._codes.lists

    @property
    def nested(self) -> bool:
        """True: lists are searched whole; see `Finder`."""
        return True

    @property
    def memory_bytes(self) -> int:
        """Memory that the codes hold."""
        return self._codes.memory_bytes

    def search(self, queries: Vectors, probe: Probe, threads: int | None = None) -> Rows:
        """Return the likely nearest rows (Q, C) by their codes; see `Finder`."""
        return self._codes.search(queries, probe.lists, probe.candidates, threads)

    def learn(self, vectors: Vectors) -> None:
        """Code the vectors (N, D) of the next rows; see `Finder`."""
        self._codes.add(vectors)

    def settle(self, vectors: Vectors) -> None:
        """Go on: there is no copy; see `Finder`."""

    def append(self, vectors: Vectors) -> None:
        """Append vectors (N, D) to the rows, without codes: these might not tell them apart; see `Finder`."""
        self._rows.add(vectors)

    def with_learnt(self, vectors: Vectors, selector: Any = None) -> Callable[[Vectors, Probe], Rows]:
        """Return a search by the codes of its rows and of vectors (N, D) beside them; see `Finder`."""
        both = self._codes.with_more(vectors, selector)
        return lambda queries, probe: both(queries, probe.lists, probe.candidates)

    @property
    def outgrown(self) -> bool:
        """Whether so many rows need many more lists."""
        return self._codes.outgrown

    def flat(self, sample: Vectors) -> FlatCodes:
        """Return codes that know no rows yet; see `Finder`."""
        return self._codes.flat(sample)

    def write(self, folder: Path, stem: str) -> dict[str, Path]:
        """Write the codes into a file; see `Finder`."""
        path = folder / f"{stem}.{self.name}"
        self._codes.write(path)
        return {self.name: path}

    @classmethod
    def read(cls, path: Path, rows: StoredRows) -> Self:
        """Return what `write` put into a file, for these rows.

        Raises:
            ValueError: It holds no codes of them.
        """
        codes = Codes.read(path)
        if codes.dim != rows.dim or len(codes) > len(rows):
            raise ValueError("the files hold no codes of these vectors")
        return cls(codes, rows)
