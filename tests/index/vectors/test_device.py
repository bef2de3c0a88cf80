"""Scans on a device of torch's against the reference; the CPU stands in for a GPU."""

import logging
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from index.vectors.codec import encode_vectors, rounded_vectors, unit
from index.vectors.cosine import CosineView
from index.vectors.device import DeviceRows
from index.vectors.half import HalfRows
from index.vectors.passing import Passing
from index.vectors.planned import PlannedSearch
from index.vectors.planner import ViewName
from index.vectors.positions import Mask
from index.vectors.protocol import After, Keys, Neighbours, Vectors
from index.vectors.reference import ReferenceView
from index.vectors.stored import Halves
from index.vectors.written import write_rows
from tests.index.samples import unit_vectors
from tests.index.vectors.coding import once_measured

DIM = 32
COUNT = 3000
CPU = torch.device("cpu")


class _Reference(ReferenceView):
    """Holds rounded vectors as the catalogue gives them to everybody: of length one."""

    def add(self, keys: Keys, vectors: Vectors) -> None:
        super().add(keys, unit(vectors.copy()))


def _stored(vectors: Vectors) -> Vectors:
    return rounded_vectors(encode_vectors(vectors), vectors.shape[1])


def _rows(vectors: Vectors, block: int = 500) -> DeviceRows:
    rows = DeviceRows(vectors.shape[1], CPU, block)
    rows.append(vectors.astype("<f2"))
    return rows


def _passing(mask: Mask) -> Passing:
    return Passing(None, mask, int(np.count_nonzero(mask)))


def _same(found: Neighbours, expected: Neighbours) -> None:
    assert found.exact
    assert found.keys.tolist() == expected.keys.tolist()
    np.testing.assert_array_equal(found.scores, expected.scores)


def _views(count: int = COUNT) -> tuple[CosineView, ReferenceView]:
    views = CosineView(DIM), _Reference(DIM)
    for view in views:
        view.add(np.arange(count), _stored(unit_vectors(count, DIM)))
    return views


def _same_answers(view: CosineView, reference: ReferenceView) -> None:
    queries = unit_vectors(6, DIM, seed=9)
    allowed = np.arange(0, 2 * COUNT, 3)
    for query, found in zip(queries, view.search_many(queries, 10), strict=True):
        _same(found, reference.search(query, 10))
        _same(view.search(query, 10), reference.search(query, 10))
        _same(view.search(query, 10, allowed=allowed), reference.search(query, 10, allowed=allowed))


def _strange_queries() -> Vectors:
    """Queries of length one: some with one large number, some with numbers of every size."""
    random = np.random.default_rng(3)
    sizes = 10.0 ** random.uniform(-38, 0, (20, DIM))
    queries = np.concatenate((np.eye(DIM), sizes * random.choice([-1, 1], sizes.shape), np.ones((1, DIM))))
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    return queries.astype(np.float32)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("index.vectors.device._BLOCK_NUMBERS", 500 * DIM)


@pytest.fixture
def no_host_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make sure that it is the device that answers."""

    def scanned(*_: object, **__: object) -> NoReturn:
        raise AssertionError("the host scanned")

    monkeypatch.setattr("index.vectors.half.scan_index", scanned)
    monkeypatch.setattr("index.vectors.stored.faiss.knn", scanned)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 500),
    distinct=st.integers(1, 60),
    block=st.integers(1, 600),
    k=st.integers(1, 100),
    share=st.floats(0, 1),
    removed=st.floats(0, 0.9),
)
def test_a_view_is_as_the_reference_with_ties_filters_pages_removed_and_replaced_keys(
    seed: int, count: int, distinct: int, block: int, k: int, share: float, removed: float
) -> None:
    random = np.random.default_rng(seed)
    vectors = _stored(unit_vectors(distinct, DIM, seed))[random.integers(0, distinct, count)]
    keys = random.choice(10 * count, count, replace=False).astype(np.int64)
    gone = random.choice(keys, int(removed * count), replace=False)
    view, reference = CosineView(DIM), _Reference(DIM)
    with pytest.MonkeyPatch.context() as small:
        small.setattr("index.vectors.device._BLOCK_NUMBERS", block * DIM)
        for one in (view, reference):
            one.add(keys[: count // 2], vectors[: count // 2])
        assert view.upload(CPU)
    for one in (view, reference):
        one.add(keys[count // 2 :], vectors[count // 2 :])
        one.add(keys[: count // 3], vectors[::-1][: count // 3])
        one.remove(gone)
    assert view.name == "gpu"
    query = unit_vectors(1, DIM, seed + 1)[0]
    allowed = np.sort(random.choice(10 * count, int(share * 10 * count), replace=False)).astype(np.int64)
    for among in (None, allowed):
        page = reference.search(query, k, allowed=among)
        _same(view.search(query, k, allowed=among), page)
        if len(page.keys):
            after = After(float(page.scores[-1]), int(page.keys[-1]), len(page.keys))
            _same(
                view.search(query, k, allowed=among, after=after),
                reference.search(query, k, allowed=among, after=after),
            )
    if len(view):
        _same(view.search_many(query[None], k)[0], reference.search(query, k))


def test_rounding_that_turns_the_order_on_the_device_does_not_turn_ours(
    small_blocks: None, no_host_scans: None
) -> None:
    # All but equal vectors, whose rounded lengths differ more than their cosines.
    vectors = _stored(unit_vectors(1, DIM) + np.float32(1e-3) * unit_vectors(COUNT, DIM, seed=3))
    view, reference = CosineView(DIM), _Reference(DIM)
    for one in (view, reference):
        one.add(np.arange(COUNT), vectors)
    assert view.upload(CPU)
    for query in (*unit_vectors(4, DIM, seed=5), *_strange_queries()[-4:]):
        _same(view.search(query, 10), reference.search(query, 10))
        _same(view.search_many(query[None], 10)[0], reference.search(query, 10))


def test_a_view_stays_exact_through_writes_and_rows_that_move(
    small_blocks: None, no_host_scans: None
) -> None:
    view, reference = _views()
    before = view.memory_bytes
    assert (view.name, view.device_bytes) == ("exact", 0)
    assert view.upload(CPU)
    assert (view.name, view.memory_bytes) == ("gpu", before)
    assert view.device_bytes >= COUNT * DIM * 2
    _same_answers(view, reference)
    for one in (view, reference):
        one.add(np.arange(COUNT, COUNT + 700), _stored(unit_vectors(700, DIM, seed=4)))
        one.add(np.arange(100), _stored(unit_vectors(100, DIM, seed=5)))
        one.remove(np.arange(500, 900))
    _same_answers(view, reference)
    held = view.device_bytes
    for one in (view, reference):
        one.remove(np.arange(900, 2500))
    assert view.name == "gpu"
    assert view.device_bytes < held
    _same_answers(view, reference)
    for one in (view, reference):
        one.remove(np.arange(2 * COUNT))
    _same_answers(view, reference)
    view.upload(CPU)
    _same_answers(view, reference)


def test_a_filter_that_comes_again_is_sent_once(monkeypatch: pytest.MonkeyPatch, no_host_scans: None) -> None:
    view, reference = _views()
    view.upload(CPU)
    sent: list[int] = []
    barred = DeviceRows._barred

    def noted(self: DeviceRows, mask: Mask) -> Tensor:
        sent.append(int(np.count_nonzero(mask)))
        return barred(self, mask)

    monkeypatch.setattr(DeviceRows, "_barred", noted)
    allowed = np.arange(0, COUNT, 2)
    for query in unit_vectors(5, DIM, seed=9):
        _same(view.search(query, 10), reference.search(query, 10))
        _same(view.search(query, 10, allowed=allowed), reference.search(query, 10, allowed=allowed))
    assert sent == [COUNT // 2]
    for one in (view, reference):
        one.remove(np.arange(0, 100, 2))
    _same(view.search(query, 10, allowed=allowed), reference.search(query, 10, allowed=allowed))
    assert sent == [COUNT // 2, COUNT // 2 - 50]


def test_vectors_are_uploaded_beside_writes_and_searches(
    monkeypatch: pytest.MonkeyPatch, small_blocks: None
) -> None:
    monkeypatch.setattr("index.vectors.cosine._BLOCK", 50)
    vectors = _stored(unit_vectors(COUNT, DIM))
    view, reference = CosineView(DIM), _Reference(DIM)
    for one in (view, reference):
        one.add(np.arange(2000), vectors[:2000])
    began, go_on = threading.Event(), threading.Event()
    append = DeviceRows.append

    def waiting(self: DeviceRows, halves: Halves) -> None:
        began.set()
        assert go_on.wait(60)
        append(self, halves)

    monkeypatch.setattr(DeviceRows, "append", waiting)
    uploader = threading.Thread(target=view.upload, args=(CPU,))
    uploader.start()
    assert began.wait(60)
    for one in (view, reference):
        one.remove(np.arange(0, 500))
        one.add(np.arange(2000, COUNT), vectors[2000:])
    _same_answers(view, reference)
    assert not view.device_bytes
    go_on.set()
    uploader.join(60)
    assert view.name == "gpu"
    _same_answers(view, reference)


def test_an_upload_that_rows_moved_under_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    view, reference = _views()
    append = DeviceRows.append

    def moving(self: DeviceRows, halves: Halves) -> None:
        append(self, halves)
        for one in (view, reference):
            one.remove(np.arange(0, COUNT, 2))

    with monkeypatch.context() as moved:
        moved.setattr(DeviceRows, "append", moving)
        assert not view.upload(CPU)
    assert view.name == "exact"
    _same_answers(view, reference)


@pytest.mark.parametrize("name", ["ivf", "mapped"])
def test_codes_and_files_give_way_and_come_again(name: str, tmp_path: Path) -> None:
    view, reference = _views()
    assert view.build("mapped" if name == "mapped" else "ivf", tmp_path)
    assert view.upload(CPU)
    assert (view.name, view.mapped, view.planner) == ("gpu", False, None)
    _same_answers(view, reference)
    again = CosineView(DIM)
    again.read(view.write(tmp_path, "v"))
    assert again.name == "exact"
    _same_answers(again, reference)
    assert view.build("mapped" if name == "mapped" else "ivf", tmp_path)
    assert (view.name, view.device_bytes) == (name, 0)
    assert view.upload(CPU)
    view.drop()
    assert (view.name, view.device_bytes) == ("exact", 0)
    _same_answers(view, reference)


@pytest.mark.parametrize("name", ["ivf", pytest.param("hnsw", marks=pytest.mark.slow)])
def test_an_upload_during_a_build_leaves_no_copy_beside_what_was_built(
    monkeypatch: pytest.MonkeyPatch, name: ViewName
) -> None:
    view, reference = _views()
    once_measured(monkeypatch, lambda: view.upload(CPU))
    assert view.build(name)
    assert (view.name, view.device_bytes) == (name, 0)
    for one in (view, reference):
        one.add(np.array([COUNT]), _stored(unit_vectors(1, DIM, seed=9)))
    monkeypatch.setattr(PlannedSearch, "near", lambda *_: None)
    monkeypatch.setattr(PlannedSearch, "first", lambda *_: None)
    _same_answers(view, reference)


def test_there_are_no_8_bits_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("index.vectors.cosine._WORTH_COARSE", 1)
    view, _ = _views()
    before = view.memory_bytes
    view.quicken()
    assert view.upload(CPU)
    assert (view.memory_bytes, view.slow) == (before, False)
    view.quicken()
    assert view.memory_bytes == before
    view.drop()
    assert view.slow


def _failing(*_: object) -> NoReturn:
    raise torch.OutOfMemoryError("out of memory")


@pytest.mark.parametrize("many", [False, True])
def test_a_device_that_fails_is_let_go_and_the_same_search_answered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, many: bool
) -> None:
    view, reference = _views()
    view.upload(CPU)
    query = unit_vectors(1, DIM, seed=9)[0]
    monkeypatch.setattr(DeviceRows, "_nearest", _failing)
    with caplog.at_level(logging.WARNING):
        found = view.search_many(query[None], 10)[0] if many else view.search(query, 10)
        _same(found, reference.search(query, 10))
        assert (view.name, view.device_bytes) == ("exact", 0)
        _same_answers(view, reference)
    (record,) = caplog.records
    assert "out of memory" in record.getMessage()
    for one in (view, reference):
        one.add(np.array([COUNT]), _stored(query[None]))
    _same_answers(view, reference)


def test_searches_that_fail_at_once_are_all_answered_and_one_tells(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    view, reference = _views()
    view.upload(CPU)
    together = threading.Barrier(4, timeout=60)

    def failing(*_: object) -> NoReturn:
        together.wait()
        raise RuntimeError("lost")

    monkeypatch.setattr(DeviceRows, "_nearest", failing)
    queries = unit_vectors(4, DIM, seed=9)
    found: dict[int, Neighbours] = {}

    def ask(place: int) -> None:
        found[place] = view.search(queries[place], 10)

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(4)]
    with caplog.at_level(logging.WARNING):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    for place, query in enumerate(queries):
        _same(found[place], reference.search(query, 10))
    assert len(caplog.records) == 1


def test_vectors_that_the_device_does_not_take_are_searched_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    view, reference = _views()
    view.upload(CPU)
    with monkeypatch.context() as full, caplog.at_level(logging.WARNING):
        full.setattr(DeviceRows, "append", _failing)
        for one in (view, reference):
            one.add(np.array([COUNT]), _stored(unit_vectors(1, DIM, seed=9)))
    assert view.name == "exact"
    assert "out of memory" in caplog.text
    _same_answers(view, reference)
    with monkeypatch.context() as full:
        full.setattr(DeviceRows, "append", _failing)
        with pytest.raises(RuntimeError):
            view.upload(CPU)
    _same_answers(view, reference)
    assert view.upload(CPU)
    _same_answers(view, reference)


def test_rows_read_from_a_file_are_on_no_device(tmp_path: Path) -> None:
    rows, other = HalfRows(DIM), HalfRows(DIM)
    for some, seed in ((rows, 0), (other, 1)):
        some.add(_stored(unit_vectors(COUNT, DIM, seed=seed)))
    rows.scan_on(_rows(rows.rough(np.arange(COUNT))))
    write_rows(tmp_path / "rows", other, COUNT, nullcontext, nullcontext)
    rows.read(tmp_path / "rows")
    assert rows.device is None
    query = unit_vectors(1, DIM, seed=9)[0]
    everything = _passing(np.ones(COUNT, dtype=bool))
    assert np.sort(rows.nearest(query, 10, everything)).tolist() == (
        np.sort(other.nearest(query, 10, everything)).tolist()
    )
