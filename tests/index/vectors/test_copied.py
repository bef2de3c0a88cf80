"""Vectors copied for a filter: every page is the reference's, among equal vectors and after writes too."""

import math

import numpy as np
import pytest

from index.vectors.copied import CoarseCopies, CopiedVectors, Copies, copies_of
from index.vectors.cosine import CosineView
from index.vectors.half import HalfRows
from index.vectors.passing import Met
from index.vectors.protocol import After, Neighbours
from index.vectors.reference import ReferenceView
from tests.index.samples import unit_vectors

DIM = 24


def _both(kind: type[Copies], count: int, copies: int) -> tuple[Copies, ReferenceView]:
    """Return vectors of which each comes several times, under keys in no order, twice."""
    stored = HalfRows(DIM)
    # Others lie between.
    stored.add(unit_vectors(3 * count * copies, DIM, seed=8))
    rows = np.arange(1, 3 * count * copies, 3)
    stored.held[rows] = np.tile(unit_vectors(count, DIM), (copies, 1))
    keys = np.random.default_rng(1).permutation(10 * len(rows))[: len(rows)]
    reference = ReferenceView(DIM)
    reference.add(keys, stored.get(rows))
    if kind is CoarseCopies:
        return CoarseCopies(keys, rows, stored), reference
    return CopiedVectors(keys, stored.get(rows)), reference


def _same(found: Neighbours, expected: Neighbours) -> None:
    assert found.exact
    assert found.keys.tolist() == expected.keys.tolist()
    assert found.scores.tolist() == expected.scores.tolist()


# Of many equal ones, 8 bits name more than come close enough at first.
@pytest.mark.parametrize("kind", [CopiedVectors, CoarseCopies])
@pytest.mark.parametrize("count, copies", [(1, 1), (9, 1), (300, 1), (40, 7), (2, 600)])
def test_pages_are_those_of_the_reference(kind: type[Copies], count: int, copies: int) -> None:
    copied, reference = _both(kind, count, copies)
    page = 7 if copies < 100 else 101
    for query in unit_vectors(5, DIM, seed=3):
        after, rank = None, 0
        while True:
            found = copied.search(query, page, after)
            _same(found, reference.search(query, page, after=after))
            if not len(found.keys):
                break
            rank += len(found.keys)
            after = After(float(found.scores[-1]), int(found.keys[-1]), rank)
        assert rank == count * copies


@pytest.mark.parametrize("kind", [CopiedVectors, CoarseCopies])
def test_a_page_goes_on_where_more_lie_before_it_than_it_knows_of(kind: type[Copies]) -> None:
    copied, reference = _both(kind, 200, 1)
    query = unit_vectors(1, DIM, seed=3)[0]
    twentieth = reference.search(query, 20)
    after = After(float(twentieth.scores[-1]), int(twentieth.keys[-1]), 3)
    _same(copied.search(query, 5, after), reference.search(query, 5, after=after))


def test_few_vectors_are_copied_whole_and_many_in_8_bits_and_both_are_timed() -> None:
    dim = 2048
    stored = HalfRows(dim)
    stored.add(unit_vectors(600, dim))
    few = copies_of(np.arange(512), np.arange(512), stored)
    many = copies_of(np.arange(600), np.arange(600), stored)
    assert isinstance(few, CopiedVectors) and isinstance(many, CoarseCopies)
    assert few.memory_bytes == 512 * (4 * dim + 8)
    assert many.memory_bytes == 600 * (dim + 16)
    assert 0 < few.cost < math.inf and 0 < many.cost < math.inf


def test_no_vectors_give_no_hits() -> None:
    copied = copies_of(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), HalfRows(DIM))
    assert not len(copied.search(unit_vectors(1, DIM)[0], 3).keys)


def test_a_view_copies_what_passes_a_filter_that_comes_again_if_it_is_a_small_part() -> None:
    view = CosineView(DIM)
    view.add(np.arange(10_000), unit_vectors(10_000, DIM))
    plain = view.memory_bytes
    query = unit_vectors(1, DIM, seed=3)[0]
    half, few = np.arange(0, 10_000, 2), np.arange(0, 10_000, 100)
    for _ in range(9):
        view.search(query, 5, allowed=half)
    assert view.memory_bytes == plain
    before = [view.search(query, 5, allowed=few) for _ in range(2)]
    assert view.memory_bytes == plain
    _same(view.search(query, 5, allowed=few), before[0])
    assert view.memory_bytes == plain + len(few) * (4 * DIM + 8)
    view.remove(few[:1])
    assert view.memory_bytes <= plain


def test_what_was_met_near_queries_is_forgotten_slowly() -> None:
    met = Met(0.5)
    met.forget(0.1)
    assert 0.48 < met.share < 0.5
    for _ in range(500):
        met.forget(0.1)
    assert met.share == pytest.approx(0.1, abs=1e-3)
