"""Scans by 8 bits against those by float16: nothing is missed, and little is ranked."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index.vectors.coarse import CoarseRows
from index.vectors.codec import encode_vectors, rounded_vectors, unit
from index.vectors.cosine import CosineView
from index.vectors.half import HalfRows
from index.vectors.passing import Passing
from index.vectors.positions import Rows
from index.vectors.protocol import Vectors
from index.vectors.reference import ReferenceView
from tests.index.samples import unit_vectors

DIM = 32


def _stored(vectors: Vectors) -> Vectors:
    return rounded_vectors(encode_vectors(vectors), vectors.shape[1])


def _filled(vectors: Vectors, largest: float) -> HalfRows:
    """Rows of which the first half was there when the coarse ones were made."""
    rows = HalfRows(DIM)
    half = len(vectors) // 2
    rows.add(vectors[:half])
    rows.coarse = CoarseRows(DIM, largest)
    for block in rows.blocks():
        rows.coarse.append(block)
    rows.add(vectors[half:])
    return rows


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    spread=st.sampled_from([1e-4, 1e-2, 0.2, 1.0]),
    largest=st.sampled_from([0.01, 0.3, 1.0]),
    share=st.sampled_from([0.2, 1.0]),
    count=st.integers(1, 200),
)
def test_the_rows_are_those_of_the_scan_in_float16(
    seed: int, spread: float, largest: float, share: float, count: int
) -> None:
    random = np.random.default_rng(seed)
    # From all but equal vectors to any; steps that fit, and such that cut numbers off.
    vectors = _stored(
        unit(unit_vectors(1, DIM, seed) + np.float32(spread) * unit_vectors(3000, DIM, seed + 1))
    )
    quick, plain = _filled(vectors, largest), HalfRows(DIM)
    plain.add(vectors)
    mask = random.random(3000) < share
    passing = Passing(None, mask, int(np.count_nonzero(mask)))
    query = unit_vectors(1, DIM, seed + 2)[0]
    products = vectors @ query
    found, expected = (np.sort(products[rows.nearest(query, count, passing)]) for rows in (quick, plain))
    # Of equals, either may be taken.
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_error_bounds_what_rounding_and_cutting_off_change() -> None:
    vectors = _stored(unit_vectors(2000, DIM, 1))
    for largest in (1.0, 0.2, 0.0):
        coarse = CoarseRows(DIM, largest)
        coarse.append(vectors.astype("<f2"))
        for query in unit_vectors(20, DIM, 2):
            question = coarse.question(query)
            products, rows = coarse.index.search(question.steps[None], 2000)
            off = np.abs(question.products(products[0]) - vectors[rows[0]] @ query)
            assert off.max() <= question.error


def test_few_rows_are_ranked_where_vectors_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = _stored(unit_vectors(5000, DIM, 1))
    rows = _filled(vectors, float(np.abs(vectors).max()))
    ranked: list[int] = []

    def counted(self: HalfRows, query: Vectors, count: int, among: Rows) -> Rows:
        ranked.append(len(among))
        return among

    monkeypatch.setattr(HalfRows, "nearest_of", counted)
    monkeypatch.setattr(HalfRows, "_scan", None)
    passing = Passing(None, np.ones(5000, dtype=bool), 5000)
    for query in unit_vectors(20, DIM, 2):
        rows.nearest(query, 10, passing)
    assert len(ranked) == 20
    assert max(ranked) < 60


def test_a_view_stays_exact_through_writes_removals_and_codes() -> None:
    vectors = _stored(unit_vectors(4000, DIM, 1))
    view, reference = CosineView(DIM), ReferenceView(DIM)

    def add(start: int, stop: int) -> None:
        view.add(np.arange(start, stop), vectors[start:stop])
        reference.add(np.arange(start, stop), unit(vectors[start:stop].copy()))

    def check() -> None:
        for query in unit_vectors(5, DIM, 2):
            found, expected = view.search(query, 10), reference.search(query, 10)
            assert found.keys.tolist() == expected.keys.tolist()
            np.testing.assert_array_equal(found.scores, expected.scores)

    add(0, 3000)
    before = view.memory_bytes
    view.quicken()
    assert view.memory_bytes == before + 3000 * DIM
    add(3000, 4000)
    check()
    for one in (view, reference):
        one.remove(np.arange(0, 2000, 2))
    check()
    # When rows move up, what has 8 bits is let go.
    for one in (view, reference):
        one.remove(np.arange(1, 1000, 2))
    check()
    view.quicken()
    check()
    before = view.memory_bytes
    assert view.build()
    assert view.memory_bytes < before
