"""Vectors copied for a filter: every page is the reference's, among equal vectors and after writes too."""

import gc
import math
import weakref
from pathlib import Path

import numpy as np
import pytest

from index.vectors.codec import decode_vectors, encode_vectors, unit
from index.vectors.copied import CoarseCopies, CopiedVectors, RankedCopies, copies_of
from index.vectors.cosine import CosineView
from index.vectors.half import HalfRows
from index.vectors.passing import Met, Passing, SearchedCopy
from index.vectors.protocol import After, Neighbours, Vectors
from index.vectors.reference import ReferenceView
from tests.index.samples import unit_vectors

DIM = 24


Kind = type[CoarseCopies | CopiedVectors | RankedCopies]
KINDS: list[Kind] = [RankedCopies, CopiedVectors, CoarseCopies]


def _both(kind: Kind, count: int, copies: int) -> tuple[SearchedCopy, ReferenceView]:
    """Return vectors of which each comes several times, under keys in no order, twice."""
    stored = HalfRows(DIM)
    # Others lie between.
    stored.add(unit_vectors(3 * count * copies, DIM, seed=8))
    rows = np.arange(1, 3 * count * copies, 3)
    stored.held[rows] = np.tile(unit_vectors(count, DIM), (copies, 1))
    keys = np.random.default_rng(1).permutation(10 * len(rows))[: len(rows)]
    reference = ReferenceView(DIM)
    reference.add(keys, stored.get(rows))
    if issubclass(kind, CoarseCopies):
        return kind(keys, rows, stored), reference
    return kind(keys, stored.get(rows)), reference


def stored_as(vectors: Vectors) -> Vectors:
    """Return vectors (N, D) as a catalogue gives them back."""
    return decode_vectors(encode_vectors(vectors), vectors.shape[1])


def _asked(count: int, queries: Vectors) -> Passing:
    """Return that all of so many rows pass, and what was asked of them."""
    passing = Passing(np.arange(count), np.ones(count, dtype=bool), count)
    passing.asked.extend(queries)
    return passing


def _same(found: Neighbours | None, expected: Neighbours) -> None:
    assert found is not None and found.exact
    assert found.keys.tolist() == expected.keys.tolist()
    assert found.scores.tolist() == expected.scores.tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count, copies", [(1, 1), (9, 1), (300, 1), (40, 7), (2, 60)])
def test_pages_are_those_of_the_reference(kind: Kind, count: int, copies: int) -> None:
    copied, reference = _both(kind, count, copies)
    for query in unit_vectors(5, DIM, seed=3):
        after, rank = None, 0
        while True:
            expected = reference.search(query, 7, after=after)
            _same(copied.search(query, 7, after), expected)
            if not len(expected.keys):
                break
            rank += len(expected.keys)
            after = After(float(expected.scores[-1]), int(expected.keys[-1]), rank)
        assert rank == count * copies


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_goes_on_where_more_lie_before_it_than_it_knows_of(kind: Kind) -> None:
    copied, reference = _both(kind, 200, 1)
    query = unit_vectors(1, DIM, seed=3)[0]
    twentieth = reference.search(query, 20)
    after = After(float(twentieth.scores[-1]), int(twentieth.keys[-1]), 3)
    _same(copied.search(query, 5, after), reference.search(query, 5, after=after))


def test_vectors_that_8_bits_hold_without_loss_are_ranked_by_their_cosines() -> None:
    """They are off their inner products: float16 made the vectors a little longer or shorter than one."""
    steps = np.pad(np.rint(16 * unit_vectors(6000, DIM - 1)), ((0, 0), (1, 0)), constant_values=127)
    steps = steps[np.abs(np.square(steps).sum(axis=1) / 128**2 - 1) < 8e-4][:600]
    stored = HalfRows(DIM)
    stored.append((steps / 128).astype("<f2"))
    reference = ReferenceView(DIM)
    reference.add(np.arange(600), stored.get(np.arange(600)))
    copied, told = CoarseCopies(np.arange(600), np.arange(600), stored), 0
    for query in stored.get(np.arange(0, 600, 7)):
        found = copied.search(query, 10)
        if found is not None:
            told += 1
            _same(found, reference.search(query, 10))
    assert told > 20


def test_8_bits_do_not_tell_where_too_many_are_alike() -> None:
    copied, reference = _both(CoarseCopies, 2, 600)
    query = unit_vectors(1, DIM, seed=3)[0]
    assert copied.search(query, 7) is None
    _same(copied.search(query, 1200), reference.search(query, 1200))
    stored = HalfRows(2048)
    stored.add(np.repeat(unit_vectors(1, 2048), 700, axis=0))
    assert copies_of(_asked(700, unit_vectors(3, 2048, seed=3)), np.arange(700), stored) is None


@pytest.mark.parametrize("alike", [False, True])
def test_a_view_answers_a_filter_that_comes_again_as_the_reference(alike: bool) -> None:
    """Of vectors that 8 bits tell apart, and of such that they do for these queries alone."""
    vectors = unit_vectors(9000, 512)
    if alike:
        vectors[:6000] = vectors[0]
    view, reference = CosineView(512), ReferenceView(512)
    view.add(np.arange(9000), vectors)
    reference.add(np.arange(9000), stored_as(vectors))
    allowed, plain = np.arange(0, 9000, 4), view.memory_bytes
    for query in unit_vectors(5, 512, seed=3):
        expected = reference.search(query, 10, allowed=allowed)
        found = view.search(query, 10, allowed=allowed)
        assert found.keys.tolist() == expected.keys.tolist()
        assert found.scores.tolist() == expected.scores.tolist()
    assert view.memory_bytes > plain


def test_few_vectors_are_copied_whole_and_many_in_8_bits_and_both_are_timed() -> None:
    dim = 2048
    stored = HalfRows(dim)
    stored.add(unit(np.repeat(unit_vectors(60, dim), 10, axis=0) + unit_vectors(600, dim, seed=1)))
    least = copies_of(_asked(32, stored.get(np.arange(3))), np.arange(32), stored)
    few = copies_of(_asked(512, stored.get(np.arange(3))), np.arange(512), stored)
    many = copies_of(_asked(600, stored.get(np.arange(3))), np.arange(600), stored)
    assert isinstance(least, RankedCopies)
    assert isinstance(few, CopiedVectors)
    assert isinstance(many, CoarseCopies)
    assert least.memory_bytes == 32 * (8 * dim + 8)
    assert few.memory_bytes == 512 * (4 * dim + 8)
    assert many.memory_bytes == 600 * (dim + 16)
    assert 0 < few.cost < math.inf and 0 < many.cost < math.inf


def test_no_vectors_give_no_hits() -> None:
    copied = copies_of(_asked(0, unit_vectors(1, DIM)), np.empty(0, dtype=np.int64), HalfRows(DIM))
    assert copied is not None
    found = copied.search(unit_vectors(1, DIM)[0], 3)
    assert found is not None
    assert not len(found.keys)


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
    assert view.memory_bytes == plain + len(few) * (8 * DIM + 8)
    view.remove(few[:1])
    assert view.memory_bytes <= plain


def test_what_was_met_near_queries_is_forgotten_slowly() -> None:
    met = Met(0.5)
    met.forget(0.1)
    assert 0.48 < met.share < 0.5
    for _ in range(500):
        met.forget(0.1)
    assert met.share == pytest.approx(0.1, abs=1e-3)


def test_rows_of_a_large_filter_are_not_copied() -> None:
    view = CosineView(2048)
    view.add(np.arange(5000), unit_vectors(5000, 2048))
    before, allowed = view.memory_bytes, np.arange(4500)
    for query in unit_vectors(4, 2048, seed=1):
        view.search(query, 10, allowed=allowed)
    assert view.memory_bytes == before


def test_nothing_copied_keeps_rows_that_a_build_has_moved(tmp_path: Path) -> None:
    view = CosineView(512)
    view.add(np.arange(9000), unit_vectors(9000, 512))
    allowed, query = np.arange(0, 9000, 4), unit_vectors(1, 512, seed=2)[0]
    for _ in range(4):
        found = view.search(query, 5, allowed=allowed)
    rows = weakref.ref(view._rows)
    assert view.build("mapped", tmp_path)
    gc.collect()
    assert rows() is None
    assert view.search(query, 5, allowed=allowed).keys.tolist() == found.keys.tolist()
    for _ in range(4):
        view.search(query, 5, allowed=allowed)
    rows = weakref.ref(view._rows)
    view.drop()
    gc.collect()
    assert rows() is None
