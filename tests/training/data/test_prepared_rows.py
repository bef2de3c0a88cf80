"""Rows on disk: made once, found by later runs, remade where a file changed, and never half-written."""

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from training.common import memory
from training.common.errors import DataError, ImageError
from training.common.manifest import Manifest, Record, Rejections
from training.data import prepared_rows
from training.data.prepared_rows import (
    PreparedRows,
    RowCache,
    RowMaker,
    SourceFile,
    cache_folder,
    find_room,
    image_files,
    prepare,
)
from training.trainer.run_state.processes import Processes

COUNT = 6
BROKEN = 2
Row = np.ndarray[Any, np.dtype[np.uint8]]


@pytest.fixture(autouse=True)
def on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a few rows go to the disk."""
    monkeypatch.setattr(prepared_rows, "_FEW", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


class Data:
    """A folder of files of one byte each; a row is that byte twice. One file is broken."""

    def __init__(self, folder: Path) -> None:
        self.records = tuple(Record(str(n), f"{n}.bin", "train", line=n + 1) for n in range(COUNT))
        self.folder = folder
        if not folder.exists():
            folder.mkdir()
            for number, record in enumerate(self.records):
                (folder / record.image).write_bytes(bytes([number]))
        self.made: list[str] = []
        self.fault: Callable[[], None] = lambda: None

    def prepare(
        self, records: Sequence[Record] | None = None, *, key: str = "", max_share: float = 1.0
    ) -> PreparedRows:
        """The rows of some records."""
        manifest = Manifest(self.folder, tuple(records or self.records), Rejections(COUNT))
        self.made, self.rejections = [], Rejections(COUNT, max_share)

        def make(rows: Sequence[int]) -> Iterable[Row | ImageError]:
            for row in rows:
                name = manifest.records[row].image
                self.made.append(name)
                self.fault()
                yield self._make(name)

        def reject(row: int, reason: str) -> None:
            self.rejections.add(manifest.records[row].line, reason)

        maker = RowMaker(
            manifest.folder,
            len(manifest.records),
            partial(image_files, manifest),
            (2,),
            np.dtype(np.uint8),
            key,
            "rows",
            make,
        )
        room = find_room(maker.nbytes, len(manifest.records), on_disk=True, processes=Processes())
        rows = prepare(maker, reject, room, show_progress=False)
        assert rows is not None
        return rows

    def _make(self, name: str) -> Row | ImageError:
        if name == f"{BROKEN}.bin":
            return ImageError("it is broken")
        try:
            return np.frombuffer((self.folder / name).read_bytes() * 2, np.uint8)
        except OSError as cause:
            return unreadable(cause)


def unreadable(cause: OSError) -> ImageError:
    error = ImageError("it cannot be read")
    error.__cause__ = cause
    return error


@pytest.fixture
def data(tmp_path: Path) -> Data:
    return Data(tmp_path / "data")


def values(rows: PreparedRows) -> list[list[int]]:
    return [row.tolist() for row in rows.array[rows.places]]


def test_rows_are_made_once_and_mapped(data: Data, caplog: pytest.LogCaptureFixture) -> None:
    first = data.prepare()
    assert data.made == [f"{n}.bin" for n in range(COUNT)]
    assert str(cache_folder()) in caplog.text
    again = data.prepare()
    assert data.made == []
    for rows in (first, again):
        assert isinstance(rows.array.base, np.memmap)
        assert list(rows.readable) == [0, 1, 3, 4, 5]
        assert values(rows) == [[n, n] for n in (0, 1, 3, 4, 5)]
    (broken,) = data.rejections.items
    assert (broken.line, broken.reason) == (BROKEN + 1, "it is broken")


def test_only_the_user_may_see_rows(data: Data, tmp_path: Path) -> None:
    data.prepare()
    (folder,) = cache_folder().iterdir()
    for path in (tmp_path / "cache", cache_folder().parent, cache_folder(), folder):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert {path.name for path in folder.iterdir()} == {"rows", "index.jsonl", "made-of.txt"}


def test_a_folder_that_is_shared_stays_so(data: Data) -> None:
    cache_folder().mkdir(parents=True)
    cache_folder().chmod(0o775)
    data.prepare()
    assert stat.S_IMODE(cache_folder().stat().st_mode) == 0o775


def test_splits_share_rows_and_only_new_files_are_made(data: Data) -> None:
    data.prepare(data.records[:2])
    assert values(data.prepare(data.records[1:])) == [[n, n] for n in (1, 3, 4, 5)]
    assert data.made == ["2.bin", "3.bin", "4.bin", "5.bin"]
    assert values(data.prepare([*data.records[4:], data.records[0], data.records[4]])) == [
        [n, n] for n in (4, 5, 0, 4)
    ]
    assert data.made == []


def test_rows_of_changed_files_take_the_place_of_the_old(data: Data) -> None:
    data.prepare()
    (data.folder / "1.bin").write_bytes(b"\x09")
    os.utime(data.folder / "1.bin", ns=(1, 1))
    rows = data.prepare()
    assert data.made == ["1.bin"]
    assert values(rows) == [[n, n] for n in (0, 9, 3, 4, 5)]
    assert len(rows.array) == COUNT - 1


def test_rows_made_in_another_way_are_others(data: Data) -> None:
    data.prepare()
    data.prepare(key="other")
    assert len(data.made) == COUNT
    assert len(list(cache_folder().iterdir())) == 2


def test_a_file_that_only_the_system_kept_from_being_read_is_tried_again(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = unreadable(PermissionError(errno.EACCES, "Permission denied"))
    with monkeypatch.context() as patch:
        patch.setattr(data, "_make", lambda _: refused)
        assert values(data.prepare()) == []
        assert len(data.rejections) == COUNT
    assert len(values(data.prepare())) == COUNT - 1


def test_a_run_that_adds_nothing_does_not_say_where_rows_are_kept(
    data: Data, caplog: pytest.LogCaptureFixture
) -> None:
    (data.folder / "0.bin").unlink()
    for logged in (True, False):
        caplog.clear()
        assert values(data.prepare()) == [[n, n] for n in (1, 3, 4, 5)]
        assert ("are kept in" in caplog.text) == logged


def test_too_many_broken_files_stop_the_work(data: Data) -> None:
    with pytest.raises(DataError, match="it is broken"):
        data.prepare(max_share=0.0)
    assert data.made == ["0.bin", "1.bin", "2.bin"]
    with pytest.raises(DataError, match="it is broken"):
        data.prepare(max_share=0.0)


def test_interrupted_work_goes_on_where_it_stopped(data: Data) -> None:
    def stop() -> None:
        if len(data.made) == 4:
            raise KeyboardInterrupt

    data.fault = stop
    with pytest.raises(KeyboardInterrupt):
        data.prepare()
    data.fault = lambda: None
    assert values(data.prepare()) == [[n, n] for n in (0, 1, 3, 4, 5)]
    assert data.made == ["3.bin", "4.bin", "5.bin"]


def make_rows(folder: Path, killed: bool) -> None:
    """Make rows in another process, which may end with the fourth of them without a word."""
    again = Data(folder)
    again.fault = lambda: os._exit(9) if killed and len(again.made) == 4 else None
    again.prepare()


def test_a_killed_process_leaves_nothing_that_is_half(data: Data) -> None:
    killed = get_context("fork").Process(target=make_rows, args=(data.folder, True))
    killed.start()
    killed.join()
    assert killed.exitcode == 9
    (index,) = cache_folder().glob("*/index.jsonl")
    index.write_bytes(index.read_bytes() + b'["0.bin", 1,')
    assert values(data.prepare()) == [[n, n] for n in (0, 1, 3, 4, 5)]
    assert values(data.prepare()) == [[n, n] for n in (0, 1, 3, 4, 5)]
    assert data.made == []


def test_processes_at_once_make_each_row_once(data: Data) -> None:
    context = get_context("fork")
    others = [context.Process(target=make_rows, args=(data.folder, False)) for _ in range(2)]
    for process in others:
        process.start()
    for process in others:
        process.join()
    assert [process.exitcode for process in others] == [0, 0]
    rows = data.prepare()
    assert data.made == []
    assert len(rows.array) == COUNT - 1


@pytest.mark.parametrize("damage", ["rows", "no JSON", "5"])
def test_a_damaged_cache_is_rebuilt_while_others_use_it(data: Data, damage: str) -> None:
    mapped = data.prepare()
    (rows,), (index,) = cache_folder().glob("*/rows"), cache_folder().glob("*/index.jsonl")
    if damage == "rows":
        shutil.copy(rows, rows.with_name("copy"))
        rows.with_name("copy").replace(rows)
        os.truncate(rows, 3)
    else:
        index.write_bytes(f"{damage}\n".encode())
    assert values(data.prepare()) == [[n, n] for n in (0, 1, 3, 4, 5)]
    assert len(data.made) == COUNT
    assert values(mapped) == [[n, n] for n in (0, 1, 3, 4, 5)]


def test_without_room_on_the_disk_rows_are_kept_in_memory(
    data: Data, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1))
    assert values(data.prepare()) == [[n, n] for n in (0, 1, 3, 4, 5)]
    assert "cannot be kept on disk (0.0 GB are needed, 0.0 GB are free)" in caplog.text


def test_a_disk_that_becomes_full_leaves_whole_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = RowCache(tmp_path / "cache", (2,), np.dtype(np.uint8))
    written = os.pwrite

    def full(descriptor: int, content: bytes, offset: int) -> int:
        if offset == 2 and len(content) == 2:
            written(descriptor, content[:1], offset)
            raise OSError(errno.ENOSPC, "No space left on device")
        return written(descriptor, content, offset)

    monkeypatch.setattr(os, "pwrite", full)
    files = [SourceFile(str(n), 1, 1) for n in range(2)]
    with pytest.raises(OSError, match="No space left"), cache.writer() as writer:
        writer.begin(files)
        for number, file in enumerate(files):
            writer.add(file, np.full(2, number, np.uint8))
    assert cache.read().keys() == {"0"}
    assert cache.map().tolist() == [[0, 0]]


def test_where_neither_disk_nor_memory_suffice_nothing_is_kept(
    data: Data, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    monkeypatch.setattr(memory, "_SHARE_OF_CACHES", 0.0)
    with pytest.raises(AssertionError):
        data.prepare()
    assert "more than the memory" in caplog.text
    assert "/dev/null/recoquest/images" in caplog.text


def test_caches_of_data_that_are_gone_or_long_unused_are_removed(data: Data, tmp_path: Path) -> None:
    data.prepare()
    data.folder.rename(tmp_path / "moved")
    other = Data(tmp_path / "other")
    other.prepare()
    (kept,) = cache_folder().iterdir()
    os.utime(kept / "made-of.txt", (0, 0))
    other.prepare(key="another")
    assert kept not in cache_folder().iterdir()
    assert len(list(cache_folder().iterdir())) == 1


def test_a_cache_that_the_user_may_not_remove_does_not_disturb(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data.prepare()
    data.folder.rename(tmp_path / "moved")

    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(prepared_rows, "remove_folder", refuse)
    Data(tmp_path / "other").prepare()
    assert len(list(cache_folder().iterdir())) == 2
    assert "cannot be kept" not in caplog.text


def test_data_in_a_folder_whose_name_is_not_utf_8_are_prepared(tmp_path: Path) -> None:
    data = Data(tmp_path / os.fsdecode(b"d\xe4ten"))
    data.prepare()
    data.prepare(key="other")
    assert len(list(cache_folder().iterdir())) == 2


def test_the_rest_of_a_cache_whose_removal_was_killed_goes(data: Data) -> None:
    rest = cache_folder() / ".0123.45.old"
    rest.mkdir(parents=True)
    (rest / "rows").write_bytes(b"rest")
    data.prepare()
    assert not rest.exists()
