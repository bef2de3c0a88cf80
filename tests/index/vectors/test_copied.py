"""Vectors copied for a filter: every page is the reference's, among equal vectors and after writes too."""

import numpy as np
import pytest

from index.vectors.copied import CopiedVectors
from index.vectors.protocol import After, Neighbours
from index.vectors.reference import ReferenceView
from tests.index.samples import unit_vectors

DIM = 24


def _both(count: int, copies: int) -> tuple[CopiedVectors, ReferenceView]:
    """Return vectors of which each comes several times, under keys in no order, twice."""
    vectors = np.tile(unit_vectors(count, DIM), (copies, 1))
    keys = np.random.default_rng(1).permutation(10 * len(vectors))[: len(vectors)]
    reference = ReferenceView(DIM)
    reference.add(keys, vectors)
    rising = reference.keys()
    return CopiedVectors(rising, reference.vectors(rising)), reference


def _same(found: Neighbours, expected: Neighbours) -> None:
    assert found.exact
    assert found.keys.tolist() == expected.keys.tolist()
    assert found.scores.tolist() == expected.scores.tolist()


@pytest.mark.parametrize("count, copies", [(1, 1), (9, 1), (300, 1), (40, 7)])
def test_pages_are_those_of_the_reference(count: int, copies: int) -> None:
    copied, reference = _both(count, copies)
    for query in unit_vectors(5, DIM, seed=3):
        after, rank = None, 0
        while True:
            found = copied.search(query, 7, after)
            _same(found, reference.search(query, 7, after=after))
            if not len(found.keys):
                break
            rank += len(found.keys)
            after = After(float(found.scores[-1]), int(found.keys[-1]), rank)
        assert rank == count * copies


def test_a_page_goes_on_where_more_lie_before_it_than_it_knows_of() -> None:
    copied, reference = _both(50, 1)
    query = unit_vectors(1, DIM, seed=3)[0]
    twentieth = reference.search(query, 20)
    after = After(float(twentieth.scores[-1]), int(twentieth.keys[-1]), 3)
    _same(copied.search(query, 5, after), reference.search(query, 5, after=after))


def test_no_vectors_give_no_hits() -> None:
    copied = CopiedVectors(np.empty(0, dtype=np.int64), np.empty((0, DIM), dtype=np.float32))
    assert not len(copied.search(unit_vectors(1, DIM)[0], 3).keys)
