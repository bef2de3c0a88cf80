"""When a snapshot is written again, and what a start reads of it."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from index.catalogue.collections import find_active
from index.engine import SearchEngine
from index.search.request import SearchRequest
from index.vectors.protocol import Vectors
from index.vectors.view import CosineView
from index.views import snapshots
from index.views.manager import Views
from index.views.snapshots import read_snapshot, stored_snapshot, write_snapshot
from tests.index.homes import open_home
from tests.index.samples import begin_generation, make_records, put_vectors, snapshot_of, unit_vectors

DIM = 16
COUNT = 400
OF = snapshot_of("generation", "digest", DIM)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[SearchEngine]:
    engine = open_home(tmp_path / "home")
    put_vectors(engine, begin_generation(engine, "c", DIM), make_records(COUNT), unit_vectors(COUNT, DIM))
    engine.save_snapshot("c")
    yield engine
    engine.close()


def _write(engine: SearchEngine, first: int, stop: int) -> Vectors:
    vectors = unit_vectors(stop - first, DIM, seed=first)
    with engine.home.catalogue.read() as session:
        found = find_active(session, "c")
    assert found is not None
    put_vectors(engine, found[0], make_records(stop)[first:], vectors)
    return vectors


def _written(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (folder / "home" / "snapshots").rglob("*.*")}


def test_a_few_images_leave_the_snapshot_as_it_is_and_are_found_after_a_start(
    home: SearchEngine, tmp_path: Path
) -> None:
    before = _written(tmp_path)
    assert before
    vectors = _write(home, COUNT, COUNT + 10)
    home.save_snapshot("c")
    assert _written(tmp_path) == before
    again = open_home(tmp_path / "home")
    hits = again.search(again.active("c"), vectors[3], SearchRequest(k=1)).hits
    assert [hit.id for hit in hits] == [f"image-{COUNT + 3:03d}"]
    again.close()


def test_a_few_images_do_not_even_load_the_view(home: SearchEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(home, COUNT, COUNT + 10)

    def fail(*_: object, **__: object) -> None:
        pytest.fail("the snapshot was read")

    monkeypatch.setattr("index.views.manager.read_snapshot", fail)
    home._views.keep([])
    home.save_snapshot("c")


def test_changes_of_a_share_write_the_snapshot_again(home: SearchEngine, tmp_path: Path) -> None:
    before = _written(tmp_path)
    _write(home, COUNT, COUNT + 10)
    # The same images once more count as well: their rows are others.
    _write(home, COUNT, COUNT + 10)
    _write(home, COUNT + 10, COUNT + 22)
    home.save_snapshot("c")
    assert _written(tmp_path) != before


def test_another_view_writes_the_snapshot_again(home: SearchEngine, tmp_path: Path) -> None:
    before = _written(tmp_path)
    home.set_view("c", "ivf")
    home.save_snapshot("c")
    after = _written(tmp_path)
    assert after != before
    home.save_snapshot("c")
    assert _written(tmp_path) == after


def test_a_start_that_reads_much_from_the_catalogue_writes_the_snapshot(
    home: SearchEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("index.views.manager._WORTH_A_SNAPSHOT", 10)
    with home.home.catalogue.read() as session:
        found = find_active(session, "c")
    assert found is not None
    generation, sequence = found
    folder = tmp_path / "home" / "snapshots" / generation.uid
    of = snapshot_of(generation.uid, generation.digest, DIM)
    for stop, expected in ((COUNT + 10, sequence), (COUNT + 100, sequence + 2)):
        _write(home, COUNT, stop)
        views = Views(tmp_path / "home" / "snapshots")
        with home.home.catalogue.reading() as reading:
            active = find_active(reading.session, "c")
            assert active is not None
            assert len(views.current(reading, *active)[1]) == stop
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
    hashed: list[str] = []
    sha256 = snapshots._sha256

    def recorded(path: Path) -> str:
        hashed.append(path.suffix)
        return sha256(path)

    monkeypatch.setattr(snapshots, "_sha256", recorded)
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
