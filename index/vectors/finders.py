"""Which finder goes with which rows."""

from collections.abc import Mapping
from pathlib import Path

from index.vectors.coded_rows import CodedRows
from index.vectors.codes import Codes
from index.vectors.finder import Finder
from index.vectors.graph import Graph
from index.vectors.half import HalfRows
from index.vectors.mapped import MappedRows
from index.vectors.planner import ViewName
from index.vectors.protocol import Vectors


def new_finder(name: ViewName, rows: HalfRows | MappedRows, sample: Vectors, count: int) -> Finder:
    """Return a finder that has learnt no rows yet.

    Args:
        name: The view that it makes of rows in memory; those in files have but one.
        rows: What it finds.
        sample: Some of the vectors (S, D).
        count: How many there are.
    """
    if name == Graph.name and isinstance(rows, HalfRows):
        return Graph.empty(rows)
    return CodedRows(Codes.train(sample, count), rows)


def read_finder(files: Mapping[str, Path], rows: HalfRows | MappedRows) -> Finder | None:
    """Return the finder of rows that was written into one of these files, if one of them fits the rows.

    Raises:
        ValueError: It is not of these rows.
    """
    # Codes are the same wherever rows are stored.
    codes = files.get("ivf") or files.get("mapped")
    if codes is not None:
        return CodedRows.read(codes, rows)
    return Graph.read(files, rows) if Graph.name in files and isinstance(rows, HalfRows) else None
