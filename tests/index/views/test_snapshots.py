"""Snapshots: used when they are whole and fit, rebuilt in every other case, and when they are written."""

import logging
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from index.engine import SearchEngine
from index.search.request import SearchRequest
from index.vectors.protocol import Vectors
from index.vectors.view import CosineView, new_view
from index.views import manager, snapshots
from index.views.manager import Views
from index.views.snapshots import read_snapshot, stored_snapshot, write_snapshot
from tests.index.homes import open_home
from tests.index.meanwhile import note_calls
from tests.index.samples import make_records, put_records, put_vectors, snapshot_of, unit_vectors
from tests.index.views.held import active, current

DIM = 8
MANY = 400
OF = snapshot_of("generation", "digest", DIM)


def _view(count: int = 30, seed: int = 0) -> CosineView:
    view = CosineView(DIM)
    view.add(np.arange(count), unit_vectors(count, DIM, seed))
    return view


def _files(folder: Path, ending: str) -> list[Path]:
    return sorted(folder.glob(f"*.{ending}"))


@pytest.mark.parametrize("unsigned", [False, True])
def test_a_snapshot_holds_the_view(tmp_path: Path, unsigned: bool) -> None:
    of = snapshot_of("generation", "digest", DIM, unsigned=unsigned)
    view = new_view(DIM, unsigned=unsigned)
    view.add(np.arange(30), unit_vectors(30, DIM))
    write_snapshot(tmp_path, view, of, 7)
    snapshot = read_snapshot(tmp_path, of)
    assert snapshot is not None
    again, sequence = snapshot
    assert sequence == 7
    query = unit_vectors(1, DIM, 5)[0]
    np.testing.assert_array_equal(again.search(query, 30).keys, view.search(query, 30).keys)
    np.testing.assert_array_equal(again.search(query, 30).scores, view.search(query, 30).scores)


def test_a_later_snapshot_replaces_the_one_before_and_none_that_is_newer(tmp_path: Path) -> None:
    for count, sequence, newest in ((10, 1, (10, 1)), (20, 2, (20, 2)), (10, 1, (20, 2))):
        written = write_snapshot(tmp_path, _view(count), OF, sequence)
        assert written == (stored_snapshot(tmp_path, OF) if sequence == newest[1] else None)
        snapshot = read_snapshot(tmp_path, OF)
        assert snapshot is not None
        assert (len(snapshot[0]), snapshot[1]) == newest
    assert len(list(tmp_path.iterdir())) == 3
    other = snapshot_of("another generation", "digest", DIM)
    write_snapshot(tmp_path, _view(10), other, 1)
    assert read_snapshot(tmp_path, other) is not None


def test_a_failed_write_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_snapshot(tmp_path, _view(10), OF, 1)

    def full_disk(self: CosineView, folder: Path, stem: str, on_copied: None) -> dict[str, Path]:
        (folder / f"{stem}.rows").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CosineView, "write", full_disk)
    with pytest.raises(OSError, match="No space"):
        write_snapshot(tmp_path, _view(20), OF, 2)
    snapshot = read_snapshot(tmp_path, OF)
    assert snapshot is not None
    assert snapshot[1] == 1
    assert len(list(tmp_path.iterdir())) == 3


def _truncate(folder: Path) -> None:
    path = _files(folder, "rows")[0]
    path.write_bytes(path.read_bytes()[:-100])


def _flip_a_bit(folder: Path) -> None:
    path = _files(folder, "rows")[0]
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def _exchange_vectors(folder: Path) -> None:
    """Another index of the same size and dimension."""
    path = _files(folder, "rows")[0]
    size = path.stat().st_size
    other = _view(seed=99).write(folder, "other")
    other["rows"].replace(path)
    other["keys"].unlink()
    assert path.stat().st_size == size


def _reorder_keys(folder: Path) -> None:
    path = _files(folder, "keys")[0]
    with path.open("r+b") as file:
        keys = np.load(file)
        file.seek(0)
        np.save(file, keys[::-1].copy())


def _halve_manifest(folder: Path) -> None:
    path = folder / "snapshot.json"
    path.write_bytes(path.read_bytes()[:50])


def _name_a_file_outside(folder: Path) -> None:
    path = folder / "snapshot.json"
    name = _files(folder, "rows")[0].name
    path.write_text(path.read_text().replace(name, f"../{folder.name}/{name}"))


DAMAGES: list[Callable[[Path], None]] = [
    _truncate,
    _flip_a_bit,
    _exchange_vectors,
    _reorder_keys,
    lambda folder: _files(folder, "keys")[0].unlink(),
    lambda folder: (folder / "snapshot.json").unlink(),
    _halve_manifest,
    _name_a_file_outside,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_snapshot_is_not_used(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    write_snapshot(tmp_path / "s", _view(), OF, 7)
    damage(tmp_path / "s")
    assert read_snapshot(tmp_path / "s", OF) is None


def test_an_empty_manifest_is_told_of_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_snapshot(tmp_path, _view(), OF, 7)
    (tmp_path / "snapshot.json").write_bytes(b"")
    assert read_snapshot(tmp_path, OF) is None
    assert caplog.messages == [
        f"the snapshot in {tmp_path} is not used and will be rebuilt: its manifest is unreadable"
    ]


def test_a_snapshot_of_something_else_is_not_used(tmp_path: Path) -> None:
    write_snapshot(tmp_path, _view(), OF, 7)
    for other in (("g2", "digest", DIM), ("generation", "d2", DIM), ("generation", "digest", 9)):
        assert read_snapshot(tmp_path, snapshot_of(*other)) is None


def _found(engine: SearchEngine) -> list[tuple[str, float]]:
    page = engine.search(engine.active("c"), unit_vectors(1, DIM, 3)[0], SearchRequest(k=100))
    return [(hit.id, hit.score) for hit in page.hits]


@pytest.mark.parametrize("damage", [_truncate, _halve_manifest])
def test_a_start_with_a_damaged_snapshot_answers_the_same(
    engine: SearchEngine, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    generation = put_records(engine, make_records(30), DIM)
    engine.save_snapshot("c")
    expected = _found(engine)
    damage(tmp_path / "home" / "snapshots" / generation.uid)
    again = open_home(tmp_path / "home", engine.home.catalogue.url)
    assert _found(again) == expected
    again.close()


def test_a_start_reads_the_snapshot_and_catches_up(
    engine: SearchEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generation = put_records(engine, make_records(30), DIM)
    engine.save_snapshot("c")
    put_vectors(engine, generation, make_records(40)[25:], unit_vectors(15, DIM, seed=8))
    added = note_calls(monkeypatch, CosineView, "add", lambda _, keys, __: len(keys))
    again = open_home(tmp_path / "home", engine.home.catalogue.url)
    result = _found(again)
    again.close()
    # 25 of 40 came from the snapshot: five were replaced and ten are new.
    assert added == [15]
    assert len(result) == 40
    assert result == _found(engine)


def test_a_snapshot_of_a_catalogue_that_was_lost_is_not_used(engine: SearchEngine, tmp_path: Path) -> None:
    put_records(engine, make_records(30), DIM)
    engine.save_snapshot("c")
    old = tmp_path / "home"
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    shutil.copytree(old / "snapshots", fresh / "snapshots")
    again = open_home(fresh)
    assert put_records(again, make_records(30), DIM, seed=50).id == 1
    query = unit_vectors(30, DIM, seed=50)[4]
    assert again.search(again.active("c"), query, SearchRequest(k=1)).hits[0].id == "image-004"
    again.close()


def test_a_snapshot_ahead_of_a_restored_catalogue_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = open_home(tmp_path / "home")
    generation = put_records(engine, make_records(30), DIM)
    with closing(sqlite3.connect(tmp_path / "home" / "catalogue.db")) as source:
        source.execute("VACUUM INTO ?", (str(tmp_path / "backup.db"),))
    put_vectors(engine, generation, make_records(40), unit_vectors(40, DIM, seed=8))
    engine.save_snapshot("c")
    engine.close()
    home = tmp_path / "home"
    for path in home.glob("catalogue.db*"):
        path.unlink()
    shutil.move(tmp_path / "backup.db", home / "catalogue.db")
    again = open_home(home)
    with caplog.at_level(logging.WARNING):
        assert len(_found(again)) == 30
    assert "does not fit the catalogue" in caplog.text
    # Else it would seem to fit once the catalogue has come as far on another way.
    assert not list(home.rglob("snapshot.json"))
    again.close()


def test_what_killed_writers_left_is_removed_after_a_day(tmp_path: Path) -> None:
    write_snapshot(tmp_path, _view(10), OF, 1)
    old, young = tmp_path / "0.rows", tmp_path / "1.rows"
    for path, age in ((old, 25 * 3600), (young, 23 * 3600), (_files(tmp_path, "keys")[0], 99 * 3600)):
        path.touch()
        os.utime(path, (time.time() - age,) * 2)
    write_snapshot(tmp_path, _view(20), OF, 2)
    assert not old.exists()
    assert young.exists()
    assert read_snapshot(tmp_path, OF) is not None


@pytest.fixture
def home(sqlite: SearchEngine) -> SearchEngine:
    put_records(sqlite, make_records(MANY), DIM)
    sqlite.save_snapshot("c")
    return sqlite


def _put(engine: SearchEngine, first: int, stop: int) -> Vectors:
    vectors = unit_vectors(stop - first, DIM, seed=first)
    put_vectors(engine, active(engine)[0], make_records(stop)[first:], vectors)
    return vectors


def _times(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (folder / "home" / "snapshots").rglob("*.*")}


def test_a_few_images_leave_the_snapshot_as_it_is_do_not_even_load_it_and_are_found_after_a_start(
    home: SearchEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _times(tmp_path)
    assert before
    vectors = _put(home, MANY, MANY + 10)
    home._views.keep([], [])
    with monkeypatch.context() as watched:
        read = note_calls(watched, manager, "read_snapshot")
        home.save_snapshot("c")
    assert (_times(tmp_path), read) == (before, [])
    again = open_home(tmp_path / "home")
    hits = again.search(again.active("c"), vectors[3], SearchRequest(k=1)).hits
    assert [hit.id for hit in hits] == [f"image-{MANY + 3:03d}"]
    again.close()


def test_changes_of_a_share_write_the_snapshot_again(home: SearchEngine, tmp_path: Path) -> None:
    before = _times(tmp_path)
    _put(home, MANY, MANY + 10)
    # The same images once more count as well: their rows are others.
    _put(home, MANY, MANY + 10)
    _put(home, MANY + 10, MANY + 22)
    home.save_snapshot("c")
    assert _times(tmp_path) != before


def test_another_view_writes_the_snapshot_again(home: SearchEngine, tmp_path: Path) -> None:
    before = _times(tmp_path)
    home.set_view("c", "ivf")
    home.save_snapshot("c")
    after = _times(tmp_path)
    assert after != before
    home.save_snapshot("c")
    assert _times(tmp_path) == after


def test_a_start_that_reads_much_from_the_catalogue_writes_the_snapshot(
    home: SearchEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("index.views.manager._WORTH_A_SNAPSHOT", 10)
    generation, sequence = active(home)
    folder = tmp_path / "home" / "snapshots" / generation.uid
    of = snapshot_of(generation.uid, generation.digest, DIM)
    for stop, expected in ((MANY + 10, sequence), (MANY + 100, sequence + 2)):
        _put(home, MANY, stop)
        views = Views(tmp_path / "home" / "snapshots")
        assert len(current(home, views)) == stop
        views.close()
        stored = stored_snapshot(folder, of)
        assert stored is not None
        assert stored.sequence == expected


def _mapped(folder: Path) -> CosineView:
    view = CosineView(DIM, folder)
    view.add(np.arange(1, 301), unit_vectors(300, DIM))
    return view


def test_vectors_that_stay_in_their_file_are_not_read_at_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_snapshot(tmp_path, _mapped(tmp_path), OF, 7)
    hashed = note_calls(monkeypatch, snapshots, "_sha256", lambda path: path.suffix)
    assert read_snapshot(tmp_path, OF, mapped=True) is not None
    assert hashed == [".keys"]
    # In memory they are read in any case.
    assert read_snapshot(tmp_path, OF) is not None
    assert sorted(hashed) == [".keys", ".keys", ".rows"]


def test_vectors_that_were_changed_in_their_file_are_found_out(tmp_path: Path) -> None:
    write_snapshot(tmp_path, _mapped(tmp_path), OF, 7)
    (rows,) = tmp_path.glob("*.rows")
    content = bytearray(rows.read_bytes())
    rows.write_bytes(content)
    # The same bytes, written later, are read once more and are right.
    assert read_snapshot(tmp_path, OF, mapped=True) is not None
    content[-5] ^= 1
    rows.write_bytes(content)
    assert read_snapshot(tmp_path, OF, mapped=True) is None
