"""Rows of vectors in memory."""

from pathlib import Path

import numpy as np

from index.vectors.store import VectorStore, write_header
from tests.index.samples import unit_vectors


def test_rows_that_were_read_stay_where_they_are_while_some_are_appended(tmp_path: Path) -> None:
    vectors, file = unit_vectors(6_600, 32), tmp_path / "rows"
    rows = VectorStore(32)
    rows.add(vectors[:6_400])
    with file.open("wb") as written:
        write_header(written, len(rows), 32)
        written.write(rows.held.data)
    read = VectorStore(32)
    read.read(file)
    place = read.held.ctypes.data
    for start in range(6_400, 6_600, 20):
        read.add(vectors[start : start + 20])
    assert read.held.ctypes.data == place
    np.testing.assert_array_equal(read.held, vectors.astype("<f2"))
    # A vector has 64 bytes; it may move now, and nothing is lost.
    read.add(vectors)
    np.testing.assert_array_equal(read.held[6_600:], vectors.astype("<f2"))
