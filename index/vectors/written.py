"""Rows in a file of their own, written while others search and append."""

from pathlib import Path
from typing import Final

import numpy as np

from index.vectors.mapped import MappedRows
from index.vectors.stored import Guard, StoredRows

# Rows that are copied while appending waits.
_BLOCK: Final = 16_384


def write_rows(path: Path, rows: StoredRows, count: int, reading: Guard, writing: Guard) -> None:
    """Write the first rows into a file, from which those that lie in files are read ever after.

    Args:
        path: The file.
        rows: What is written; only appended to meanwhile.
        count: How many rows.
        reading: Held whenever rows are read, and let go in between.
        writing: Held while it changes where rows lie.
    """
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f2", "fortran_order": False, "shape": (count, rows.dim)}
        )
        for start in range(0, count, _BLOCK):
            with reading():
                halves = rows.halves(np.arange(start, min(start + _BLOCK, count)))
            file.write(halves.data)
    if isinstance(rows, MappedRows):
        with writing():
            rows.move_to(path, count)
