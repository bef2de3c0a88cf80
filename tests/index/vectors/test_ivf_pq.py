"""The PQ codes of rows and the lists that they are in."""

from itertools import pairwise
from pathlib import Path

import numpy as np

from index.vectors.ann import IvfPq
from tests.index.samples import unit_vectors

DIM = 32


def test_lists_of_rows_that_were_added_in_parts_are_those_of_a_whole_reading(tmp_path: Path) -> None:
    vectors = unit_vectors(4000, DIM, seed=1)
    codes = IvfPq.train(vectors, len(vectors))
    edges = [0, 1500, 1500, 1501, 1757, 4000]
    for start, stop in pairwise(edges):
        codes.add(vectors[start:stop])
        assert len(codes.list_of_row) == stop
    codes.write(tmp_path / "codes")
    whole = IvfPq.read(tmp_path / "codes")
    assert codes.lists > 16
    np.testing.assert_array_equal(codes.list_of_row, whole.list_of_row)
    np.testing.assert_array_equal(codes._sizes, whole._sizes)
    np.testing.assert_array_equal(codes._sizes, np.bincount(whole.list_of_row, minlength=codes.lists))
    whole.add(vectors[:300])
    # The same vectors lie in the same lists.
    np.testing.assert_array_equal(whole.list_of_row[4000:], whole.list_of_row[:300])
