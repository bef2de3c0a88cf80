"""Rows on a device, torch's CPU here: they name what is nearest, within the error that they tell."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from index.vectors.device import DeviceRows
from index.vectors.positions import Rows
from index.vectors.protocol import Vectors
from tests.index.samples import unit_vectors
from tests.index.vectors.test_device import CPU, DIM, _passing, _rows, _stored, _strange_queries


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 300),
    block=st.integers(1, 320),
    count=st.integers(1, 320),
    share=st.sampled_from([0.0, 0.01, 0.3, 0.9, 1.0]),
)
def test_the_nearest_are_those_of_a_comparison_in_float64(
    seed: int, rows: int, block: int, count: int, share: float
) -> None:
    random = np.random.default_rng(seed)
    vectors = _stored(unit_vectors(rows, DIM, seed))
    device = DeviceRows(DIM, CPU, block)
    for part in np.split(vectors.astype("<f2"), np.sort(random.integers(0, rows, 3))):
        device.append(part)
    assert len(device) == rows
    mask = random.random(rows) < share
    queries = unit_vectors(3, DIM, seed + 1)
    many = device.nearest_many(queries, count, mask)
    assert many.shape == (3, count)
    for query, near in zip(queries, many, strict=True):
        products = vectors.astype(np.float64) @ query
        best = np.sort(products[mask])[::-1][:count]
        found = device.nearest(query, count, _passing(mask))
        assert len(np.unique(found)) == len(found)
        np.testing.assert_allclose(np.sort(products[found])[::-1], best, atol=2 * device.error)
        # Best first, and none in place of those that are missing.
        assert (near[len(best) :] == -1).all()
        np.testing.assert_allclose(products[near[: len(best)]], best, atol=2 * device.error)
        assert mask[found].all()
        assert mask[near[: len(best)]].all()


def test_the_error_bounds_what_an_inner_product_is_off() -> None:
    vectors = _stored(np.concatenate((unit_vectors(2000, DIM), _strange_queries())))
    device = _rows(vectors)
    for query in (*unit_vectors(20, DIM, seed=1), *_strange_queries()):
        scores, rows = device._nearest(query[None], len(vectors), None)
        exact = vectors[rows[0]].astype(np.float64) @ query.astype(np.float64)
        assert np.abs(scores[0] - exact).max() <= device.error
        assert len(np.unique(rows)) == len(vectors)


def test_multiplying_with_eleven_digits_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    device = _rows(_stored(unit_vectors(1000, DIM)))
    queries = np.concatenate((unit_vectors(20, DIM, seed=1), _strange_queries()))
    before = device._nearest(queries, 50, None)
    multiply = Tensor.__matmul__

    def digits(numbers: Tensor) -> Tensor:
        """What TF32 leaves."""
        return (numbers.contiguous().view(torch.int32) & -0x2000).view(torch.float32)

    with monkeypatch.context() as coarse:
        coarse.setattr(Tensor, "__matmul__", lambda one, other: multiply(digits(one), digits(other.T).T))
        for found, expected in zip(device._nearest(queries, 50, None), before, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_many_queries_are_taken_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    device = _rows(_stored(unit_vectors(1000, DIM)))
    queries = unit_vectors(50, DIM, seed=1)
    everything = np.ones(1000, dtype=bool)
    expected = device.nearest_many(queries, 20, everything)
    taken: list[int] = []
    nearest = DeviceRows._nearest

    def noted(self: DeviceRows, some: Vectors, count: int, barred: Tensor | None) -> tuple[Vectors, Rows]:
        taken.append(len(some))
        return nearest(self, some, count, barred)

    monkeypatch.setattr(DeviceRows, "_nearest", noted)
    monkeypatch.setattr("index.vectors.device._PRODUCTS", 2 * 500 * 15)
    np.testing.assert_array_equal(device.nearest_many(queries, 20, everything), expected)
    assert taken == [15, 15, 15, 5]


def test_room_is_made_for_more_rows_but_not_for_many_that_are_not_there() -> None:
    device = DeviceRows(DIM, CPU, 1000)
    vectors = _stored(unit_vectors(2300, DIM)).astype("<f2")
    for start in range(0, 2300, 10):
        device.append(vectors[start : start + 10])
        assert device.device_bytes <= 2 * DIM * min(2 * len(device), len(device) + 1000)
    assert device.device_bytes >= 2 * DIM * 2300
    query = vectors[2155].astype(np.float32)
    assert device.nearest(query, 1, _passing(np.ones(2300, dtype=bool))).tolist() == [2155]


def test_a_query_of_another_length_or_type_is_no_failure_of_the_device() -> None:
    rows = DeviceRows(8, torch.device("cpu"))
    vectors = unit_vectors(20, 8)
    rows.append(vectors.astype("<f2"))
    everything = np.ones(20, dtype=bool)
    with pytest.raises(ValueError, match="queries have 7 numbers, vectors 8"):
        rows.nearest_many(unit_vectors(1, 7), 3, everything)
    wide = rows.nearest_many(vectors[:4].astype(np.float64), 3, everything)
    assert wide.tolist() == rows.nearest_many(vectors[:4], 3, everything).tolist()
