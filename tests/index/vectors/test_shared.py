"""Vectors of a snapshot's file that processes share, against the reference, whatever is added to them."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index.vectors import store
from index.vectors.protocol import Vectors, encode_vectors, rounded_vectors, unit
from index.vectors.store import SharedStore, VectorStore, memory_of
from index.vectors.view import CosineView
from tests.index.samples import unit_vectors
from tests.index.vectors.coding import prefer_codes
from tests.index.vectors.reference import ReferenceView

DIM = 32


def _stored(count: int, seed: int) -> Vectors:
    """Vectors as the catalogue has rounded them."""
    return rounded_vectors(encode_vectors(unit_vectors(count, DIM, seed)), DIM)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_as_the_reference_with_rows_in_the_file_behind_it_and_in_memory(seed: int) -> None:
    random = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as few:
        few.setattr(store, "_MORE_ADDRESSES", 100 * DIM * 2)
        view, reference = CosineView(DIM, shared=True), ReferenceView(DIM)
        for step in range(6):
            keys = random.choice(2000, int(random.integers(1, 400)), replace=False).astype(np.int64)
            vectors = _stored(len(keys), int(random.integers(10**6)))
            view.add(keys, vectors)
            reference.add(keys, unit(vectors.copy()))
            gone = random.choice(2000, int(random.integers(0, 300)), replace=False).astype(np.int64)
            for one in (view, reference):
                one.remove(gone)
            if random.random() < 0.5:
                view.write(Path(name), f"step{step}")
                assert view.unshared == 0
        np.testing.assert_array_equal(view.vectors(view.keys()), reference.vectors(view.keys()))
        allowed = np.sort(random.choice(2000, int(random.integers(1, 1500)), replace=False)).astype(np.int64)
        for query in unit_vectors(3, DIM, seed + 1):
            for among in (None, allowed):
                found = view.search(query, 10, allowed=among)
                expected = reference.search(query, 10, allowed=among)
                assert found.keys.tolist() == expected.keys.tolist()
                np.testing.assert_array_equal(found.scores, expected.scores)


def test_rows_behind_the_file_stay_out_of_it(tmp_path: Path) -> None:
    vectors = _stored(3000, 1)
    written = CosineView(DIM)
    written.add(np.arange(3000), vectors)
    files = written.write(tmp_path, "v")
    before = files["rows"].read_bytes()
    one, other = CosineView(DIM, shared=True), CosineView(DIM, shared=True)
    for view in (one, other):
        view.read(files)
    one.add(np.arange(3000, 3100), _stored(100, 2))
    other.add(np.arange(3000, 3100), _stored(100, 3))
    np.testing.assert_array_equal(one.vectors(np.arange(3000, 3100)), unit(_stored(100, 2)))
    np.testing.assert_array_equal(other.vectors(np.arange(3000, 3100)), unit(_stored(100, 3)))
    assert one.unshared == 100
    assert files["rows"].read_bytes() == before


def test_codes_are_built_and_searched_over_a_file(tmp_path: Path) -> None:
    view, reference = CosineView(DIM, shared=True), ReferenceView(DIM)
    centres = unit_vectors(60, DIM, 2).repeat(100, axis=0)
    vectors = rounded_vectors(encode_vectors(unit(centres + np.float32(0.5) * _stored(6000, 1))), DIM)
    view.add(np.arange(6000), vectors)
    reference.add(np.arange(6000), unit(vectors.copy()))
    view.write(tmp_path, "before")
    assert view.build("ivf")
    assert (view.name, view.unshared) == ("ivf", 0)
    again = CosineView(DIM, shared=True)
    again.read(view.write(tmp_path, "after"))
    prefer_codes(again)
    queries = unit(view.vectors(np.arange(0, 6000, 500)) + 0.4 * unit_vectors(12, DIM, 5))
    found = again.search_many(queries, 10)
    expected = [reference.search(query, 10) for query in queries]
    assert sum(len(np.intersect1d(a.keys, b.keys)) for a, b in zip(found, expected, strict=True)) > 115


def test_where_no_addresses_are_given_the_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(12, "no addresses")

    plain = VectorStore(DIM)
    plain.add(_stored(500, 1))
    written = CosineView(DIM)
    written.add(np.arange(500), _stored(500, 1))
    path = written.write(tmp_path, "v")["rows"]
    monkeypatch.setattr(store, "_map", refuse)
    shared = SharedStore(DIM)
    shared.read(path)
    shared.add(_stored(10, 2))
    assert (len(shared), shared.own_rows) == (510, 510)
    np.testing.assert_array_equal(memory_of(shared.index)[:500], plain.held)
