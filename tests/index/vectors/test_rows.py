"""Rows of vectors: their bytes, masks of them, their lists of codes, and their place in memory."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from index.vectors.ann import IvfPq, list_count, sample_size
from index.vectors.protocol import Keys, decode_vectors, encode_vectors
from index.vectors.rows import IdMap, filter_mask
from index.vectors.store import VectorStore, write_header
from index.vectors.view import CosineView
from tests.index.samples import unit_vectors

DIM = 32
_COUNT = 5_000


def test_vectors_come_back_of_length_one_and_close() -> None:
    vectors = unit_vectors(40, 512)
    values = encode_vectors(vectors)
    assert [len(value) for value in values] == [1024] * 40
    again = decode_vectors(values, 512)
    assert again.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(again, axis=1), 1, atol=1e-6)
    assert (again * vectors).sum(axis=1).min() > 1 - 1e-6


def test_golden_bytes() -> None:
    assert encode_vectors(np.array([[1.0, -2.0, 0.5]], dtype=np.float32)) == [b"\x00\x3c\x00\xc0\x00\x38"]


def test_zero_stays_zero() -> None:
    assert decode_vectors(encode_vectors(np.zeros((1, 3), np.float32)), 3).tolist() == [[0, 0, 0]]


def test_a_value_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="does not have 3 numbers"):
        decode_vectors([b"\0" * 6, b"\0" * 4], 3)


def test_nothing_gives_nothing() -> None:
    assert decode_vectors([], 3).shape == (0, 3)


@pytest.mark.parametrize("step", [1, 7], ids=["dense", "sparse"])
@pytest.mark.parametrize("requested", [50, 3_000], ids=["few", "many"])
def test_a_mask_has_the_living_rows_of_its_keys(step: int, requested: int) -> None:
    random = np.random.default_rng(requested)
    ids = IdMap(step * random.permutation(_COUNT) + 1_000)
    ids.drop(ids.keys[::11])
    wider = np.arange(0, step * _COUNT + 3_000)
    allowed: Keys = np.sort(random.choice(wider, requested, replace=False))
    made = filter_mask(allowed, ids)
    expected = np.isin(ids.keys, allowed) & ids.alive
    assert np.array_equal(made.mask, expected)
    assert made.count == np.count_nonzero(expected)
    assert np.array_equal(made.rows, np.flatnonzero(expected))


def test_masks_of_fifty_filters_of_half_of_all_are_kept() -> None:
    count = 400_000
    view, keys = CosineView(2), np.arange(count)
    view.add(keys, np.zeros((count, 2), dtype=np.float32))
    filters = [keys[start : start + count // 2] for start in range(50)]
    made = [view._passing(allowed) for allowed in filters]
    assert all(view._passing(allowed) is mask for allowed, mask in zip(filters, made, strict=True))


def test_there_are_about_one_and_a_half_times_the_root_of_lists() -> None:
    counts = (0, 100, 250, 60_000, 10**6, 10**9)
    assert [list_count(count) for count in counts] == [16, 16, 32, 512, 2048, 8192]
    assert [sample_size(count) for count in counts] == [0, 100, 250, 96 * 512, 96 * 2048, 96 * 8192]


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


def test_rows_that_were_read_stay_where_they_are_while_some_are_appended(tmp_path: Path) -> None:
    vectors, file = unit_vectors(6_600, 32), tmp_path / "rows"
    rows = VectorStore(32)
    rows.add(vectors[:6_400])
    with file.open("wb") as written:
        write_header(written, len(rows), 32)
        written.write(rows.buffer.data)
    read = VectorStore(32)
    read.read(file)
    position = read.buffer.ctypes.data
    for start in range(6_400, 6_600, 20):
        read.add(vectors[start : start + 20])
    assert read.buffer.ctypes.data == position
    np.testing.assert_array_equal(read.buffer, vectors.astype("<f2"))
    # A vector has 64 bytes; it may move now, and nothing is lost.
    read.add(vectors)
    np.testing.assert_array_equal(read.buffer[6_600:], vectors.astype("<f2"))
