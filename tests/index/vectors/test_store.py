"""Vectors in files against the reference, also shared by processes, and threads that build and yield."""

import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index.errors import ViewError
from index.vectors import store
from index.vectors.protocol import Vectors, encode_vectors, rounded_vectors, unit
from index.vectors.rows import FilterMask
from index.vectors.store import MappedStore, SharedStore, VectorStore, lower_priority, memory_of, write_header
from index.vectors.view import CosineView
from index.views.manager import Views
from tests.index.meanwhile import note_calls
from tests.index.samples import unit_vectors
from tests.index.vectors.coding import Both, prefer_codes, same

DIM = 32


def _stored(count: int, seed: int) -> Vectors:
    """Vectors as the catalogue has rounded them."""
    return rounded_vectors(encode_vectors(unit_vectors(count, DIM, seed)), DIM)


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
    both = Both(DIM, shared=True)
    centres = unit_vectors(60, DIM, 2).repeat(100, axis=0)
    both.append(unit(centres + np.float32(0.5) * _stored(6000, 1)))
    view = both.view
    view.write(tmp_path, "before")
    assert view.build("ivf")
    assert (view.name, view.unshared) == ("ivf", 0)
    again = CosineView(DIM, shared=True)
    again.read(view.write(tmp_path, "after"))
    prefer_codes(again)
    queries = unit(view.vectors(np.arange(0, 6000, 500)) + 0.4 * unit_vectors(12, DIM, 5))
    neighbours = again.search_many(queries, 10)
    expected = [both.reference.search(query, 10) for query in queries]
    assert sum(len(np.intersect1d(a.keys, b.keys)) for a, b in zip(neighbours, expected, strict=True)) > 115


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
    np.testing.assert_array_equal(memory_of(shared.index)[:500], plain.buffer)


@pytest.fixture
def _few_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_BUFFER_BYTES", "_MORE_ADDRESSES"):
        monkeypatch.setattr(store, name, 100 * DIM * 2)


def _fill(both: Both, random: np.random.Generator, folder: Path) -> None:
    """Write, remove and replace some keys, with a snapshot at any time."""
    for step in range(6):
        keys = random.choice(2000, int(random.integers(1, 400)), replace=False).astype(np.int64)
        both.add(keys, unit_vectors(len(keys), DIM, int(random.integers(10**6))))
        both.remove(random.choice(2000, int(random.integers(0, 300)), replace=False).astype(np.int64))
        if random.random() < 0.5:
            both.view.write(folder, f"step{step}")
            assert both.view.mapped or both.view.unshared == 0


@pytest.mark.usefixtures("_few_in_memory")
@pytest.mark.parametrize("shared", [False, True])
@settings(max_examples=30, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_as_the_reference_with_rows_in_snapshot_file_and_memory(shared: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as name:
        both = Both(DIM, None if shared else Path(name), shared=shared)
        view, reference = both.view, both.reference
        _fill(both, random, Path(name))
        assert view.keys().tolist() == reference.keys().tolist()
        np.testing.assert_array_equal(view.vectors(view.keys()), reference.vectors(view.keys()))
        allowed = np.sort(random.choice(2000, int(random.integers(1, 1500)), replace=False)).astype(np.int64)
        for query in unit_vectors(3, DIM, seed + 1):
            for among in (None, allowed):
                both.check(query, 10, allowed=among)
        (many,) = view.search_many(query[None], 20)
        same(many, reference.search(query, 20))


@pytest.mark.usefixtures("_few_in_memory")
def test_scans_by_several_threads_find_what_is_found_in_memory(tmp_path: Path) -> None:
    vectors = unit_vectors(30_000, DIM, 1)
    files, memory = MappedStore(DIM, tmp_path), VectorStore(DIM)
    for start in range(0, 30_000, 7_001):
        for rows in (files, memory):
            rows.add(vectors[start : start + 7_001])
    with (tmp_path / "rows").open("wb") as written:
        write_header(written, 30_000, DIM)
        written.write(files.take(np.arange(30_000)).data)
    files.move_to(tmp_path / "rows", 30_000)
    files.add(vectors[:50])
    memory.add(vectors[:50])
    # A filter may pass nothing of what one of the threads scans.
    for mask in (np.random.default_rng(2).random(30_050) < 0.4, np.arange(30_050) < 12_000):
        passing = FilterMask(mask, int(np.count_nonzero(mask)))
        for query in unit_vectors(5, DIM, 3):
            assert set(files.nearest(query, 12, passing)[1]) == set(memory.nearest(query, 12, passing)[1])


@pytest.mark.usefixtures("_few_in_memory")
def test_snapshots_and_rows_in_memory_are_read_from_one_another(tmp_path: Path) -> None:
    both = Both(DIM)
    both.append(unit_vectors(3000, DIM, 1))
    view, reference = both.view, both.reference
    assert view.build("mapped", tmp_path)
    assert (view.name, view.mapped) == ("mapped", True)
    files = view.write(tmp_path, "one")
    in_memory, in_files = CosineView(DIM), CosineView(DIM, tmp_path)
    for again, name in ((in_memory, "ivf"), (in_files, "mapped")):
        again.read(files)
        assert (again.name, again.operating_point) == (name, view.operating_point)
    assert in_memory.memory_bytes - in_files.memory_bytes == 3000 * DIM * 2
    # Where they are wanted otherwise they move while they can be searched.
    assert in_files.build("ivf")
    assert not in_files.mapped
    view.drop()
    assert (view.name, view.mapped) == ("exact", False)
    for query in unit_vectors(3, DIM, 5):
        for one in (view, in_memory, in_files):
            same(one.search(query, 10), reference.search(query, 10))


@pytest.mark.usefixtures("_few_in_memory")
def test_searches_go_on_while_vectors_are_copied_back_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = CosineView(DIM, tmp_path)
    view.add(np.arange(500), unit_vectors(500, DIM, 1))
    query, result = unit_vectors(1, DIM, 5)[0], []
    expected = view.search(query, 10)

    def search(*_: object) -> None:
        # A search from another thread would wait for a writer.
        searching = threading.Thread(target=lambda: result.append(view.search(query, 10)), daemon=True)
        searching.start()
        searching.join(10)

    with monkeypatch.context() as during:
        note_calls(during, VectorStore, "append", search)
        assert view.drop()
    assert not view.mapped
    for one in (result[0], view.search(query, 10)):
        same(one, expected)


@pytest.mark.usefixtures("_few_in_memory")
def test_a_replaced_snapshot_is_read_on_until_it_is_let_go(tmp_path: Path) -> None:
    both = Both(DIM, tmp_path)
    both.append(unit_vectors(500, DIM, 1))
    files = both.view.write(tmp_path, "old")
    other = CosineView(DIM, tmp_path)
    other.read(files)
    newer = both.view.write(tmp_path, "new")
    for path in files.values():
        path.unlink()
    newer["rows"].replace(files["rows"])
    files["rows"].write_bytes(b"something else")
    query = unit_vectors(1, DIM, 5)[0]
    same(other.search(query, 10), both.reference.search(query, 10))


@pytest.mark.usefixtures("_few_in_memory")
def test_a_file_that_is_cut_short_is_noticed_before_it_is_touched(tmp_path: Path) -> None:
    view = CosineView(DIM, tmp_path)
    view.add(np.arange(5000), unit_vectors(5000, DIM, 1))
    files = view.write(tmp_path, "v")
    assert view.search(unit_vectors(1, DIM, 5)[0], 10).exact
    assert not view.damaged
    os.truncate(files["rows"], 4096)
    with pytest.raises(ViewError, match="cut short"):
        view.search(unit_vectors(1, DIM, 5)[0], 10)
    assert view.damaged
    with pytest.raises(ValueError, match="no float16 rows"):
        CosineView(DIM, tmp_path).read(files)


@pytest.mark.usefixtures("_few_in_memory")
def test_a_full_disk_leaves_new_vectors_in_memory_until_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    both, vectors = Both(DIM, tmp_path), unit_vectors(900, DIM, 1)
    both.append(vectors[:150])
    write = os.pwrite

    def half(file: int, rows: memoryview, position: int) -> int:
        write(file, rows[: len(rows) // 2], position)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full, caplog.at_level(logging.WARNING):
        full.setattr(os, "pwrite", half)
        both.append(vectors[150:400])
    assert "No space" in caplog.text
    bytes_before = both.view.memory_bytes
    query = unit_vectors(1, DIM, 5)[0]
    both.check(query, 400)
    # It is tried again when there is twice as much.
    both.append(vectors[400:500])
    assert both.view.memory_bytes > bytes_before
    both.append(vectors[500:700])
    assert both.view.memory_bytes < bytes_before
    both.check(query, 700)


@pytest.mark.usefixtures("_few_in_memory")
def test_what_was_moved_to_a_file_leaves_no_file_behind(tmp_path: Path) -> None:
    view = CosineView(DIM, tmp_path / "new")
    view.add(np.arange(1000), unit_vectors(1000, DIM, 1))
    assert view.memory_bytes < 1000 * 2 * DIM
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.usefixtures("_few_in_memory")
def test_only_candidates_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = CosineView(DIM, tmp_path)
    centres = unit_vectors(60, DIM, 2).repeat(100, axis=0)
    view.add(np.arange(6000), unit(centres + np.float32(0.5) * unit_vectors(6000, DIM, 1)))
    assert view.build("mapped")
    view.write(tmp_path, "v")
    prefer_codes(view)
    query = unit(view.vectors(np.array([7])) + 0.4 * unit_vectors(1, DIM, 5))[0]
    taken = note_calls(monkeypatch, MappedStore, "take", lambda _, rows, *__: len(rows))
    assert len(view.search(query, 10).keys) == 10
    assert 10 <= sum(taken) < 600


def _priority() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


_BUILD = """
import json, os
from concurrent.futures import ThreadPoolExecutor
import faiss
import numpy as np
from index.vectors.store import use_threads, lower_priority

def build():
    use_threads(3)
    vectors = np.random.default_rng(0).random((4000, 16), dtype=np.float32)
    made = faiss.index_factory(16, "IVF16,PQ4x4fs")
    made.train(vectors)
    made.add(vectors)
    # Now: the threads of a build end with its thread.
    return sorted(os.getpriority(os.PRIO_PROCESS, int(name)) for name in os.listdir("/proc/self/task"))

print(json.dumps(ThreadPoolExecutor(1, initializer=lower_priority).submit(build).result()))
"""


def test_a_thread_that_yields_lowers_no_other() -> None:
    with ThreadPoolExecutor(1, initializer=lower_priority) as pool:
        assert pool.submit(_priority).result() == 10
    assert _priority() < 10


def test_the_threads_that_faiss_begins_for_a_build_yield_too() -> None:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "3"}
    shown = subprocess.run(
        [sys.executable, "-c", _BUILD],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    priorities = json.loads(shown.stdout)
    assert priorities.count(10) >= 2
    assert priorities[0] < 10


def test_views_are_built_by_a_thread_that_yields(tmp_path: Path) -> None:
    views = Views(tmp_path)
    assert views._builder.submit(_priority).result() == 10
    views.close()
