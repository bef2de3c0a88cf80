"""A restored catalogue answers as the one before, and files of a restore stay for those who use them."""

import itertools
import json
import multiprocessing
import os
import shutil
import signal
import tarfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from app.cli.main import run
from index.audit.chain import Trail
from index.audit.event import Actor, Event
from index.backup import restore, restore_backup, write, write_backup
from index.cases import put_list, save_case
from index.catalogue.collections import names_of, require_collection
from index.catalogue.jobs import add_job, claim_job, list_jobs
from index.catalogue.studies import Followed, KnownStudy, Position, note_study, write_position
from index.catalogue.tables import ImageRow, OrphanRow, RemovalRow, TextRow
from index.engine import SearchEngine
from index.errors import BackupError, StoreError
from index.feedback import JudgedQuery, judgements, record_judgement
from index.files.image_store import ImageStore
from index.generations.activation import activate
from index.generations.names import list_aliases, put_alias, rename_collection
from index.generations.reindex import generation_for, reindex
from index.keys.api_keys import create_key
from index.reports import add_reports
from index.search.request import SearchRequest
from index.writes.deletion import collect_garbage
from index.writes.live import remove_images
from tests.index.comparing import answers, rows
from tests.index.homes import open_home
from tests.index.meanwhile import at_first, note_calls
from tests.index.samples import ingest, make_manifest, make_picture, make_records
from training.clinical.reports.study_report import StudyReport
from training.clinical.text.sections import clinical_sections
from training.models.encoder import Encoder, load_encoder


@pytest.fixture
def full(engine: SearchEngine, encoder: Encoder, other_encoder: Encoder, tmp_path: Path) -> SearchEngine:
    """Two collections, one judged and with a retired generation; the images with the last keys are gone."""
    records = [replace(record, report="Cardiomegaly in report 7.") for record in make_records(20)]
    manifest = make_manifest(tmp_path / "data", records)
    for name in ("c", "d"):
        ingest(engine, encoder, manifest, name)
    generation = generation_for(engine.home, "d", other_encoder)
    reindex(engine, generation, other_encoder, show_progress=False)
    with engine.home.catalogue.write() as session:
        activate(session, generation, texts=True)
        for number, relevant in ((1, True), (2, False)):
            query = JudgedQuery(texts=("text 3.0",), unlike_images=("image-004",))
            record_judgement(session, "d", query, f"image-{number:03}", relevant, limit=10)
    remove_images(engine.home, "d", ["image-018", "image-019"])
    return engine


def test_everything_comes_back_where_nothing_else_is_left(
    full: SearchEngine, encoder: Encoder, other_encoder: Encoder, tmp_path: Path, again: SearchEngine
) -> None:
    with full.home.catalogue.write() as session:
        claim_job(session, add_job(session, "tidy", []).id, "a worker of this machine")
        create_key(session, "viewer", {"c": frozenset({"reader"})}, days=1)
        put_alias(session, "current", "c")
        followed = Followed(require_collection(session, "c").id, "a" * 16)
        note_study(session, followed, "b" * 16, KnownStudy("c" * 16, "d" * 16, None, {"e" * 16: "taken"}))
        write_position(session, followed, Position(7, 1, "f" * 16))
        report = StudyReport(("study:1.2.3.4",), None, None, "final", None, clinical_sections("No effusion."))
        add_reports(session, require_collection(session, "c").id, [report])
        put_list(session, "c", "taught", "Taught")
        save_case(session, "c", "taught", "image-001", "A note.")
        for old, new in (("d", "e"), ("e", "d")):
            rename_collection(session, old, new)
    seen = Event(action="view", actor=Actor("key", "1", "viewer"), collection="c", objects=["a"])
    Trail(full.home.catalogue, b"k" * 32).append([seen])
    summary = write_backup(full.home, tmp_path / "backup.tar", show_progress=False)
    assert (summary.collections, summary.images, summary.missing) == ({"c": 20, "d": 18}, 20, [])
    assert (tmp_path / "backup.tar").stat().st_mode & 0o777 == 0o600
    before = rows(full)
    answered = {name: answers(full, name, model) for name, model in (("c", encoder), ("d", other_encoder))}
    for lost in ("home", "data"):
        shutil.rmtree(tmp_path / lost)
    assert restore_backup(again.home, tmp_path / "backup.tar", show_progress=False) == summary
    assert rows(again) == before
    assert [name for name, result in rows(again).items() if not result] == []
    with again.home.catalogue.read() as session:
        assert [(alias.name, alias.collection) for alias in list_aliases(session)] == [("current", "c")]
        assert names_of(session, "d") == ["d", "e"]
        assert [message.relevant for message in judgements(session, "d")] == [True, False]
        # The worker that has a job continues with it where it was submitted.
        assert list_jobs(session) == []
    for name, expected in answered.items():
        assert answers(again, name, load_encoder(again.active(name).bundle, "cpu")) == expected
    check_new_keys(again, encoder, tmp_path)


@pytest.mark.slow
def test_a_catalogue_of_sqlite_comes_back_in_postgresql(
    in_sqlite: SearchEngine, encoder: Encoder, postgresql_url: str, tmp_path: Path
) -> None:
    remove_images(in_sqlite.home, "c", ["image-019"])
    write_backup(in_sqlite.home, tmp_path / "backup.tar", show_progress=False)
    server = open_home(tmp_path / "server", postgresql_url)
    restore_backup(server.home, tmp_path / "backup.tar", show_progress=False)
    assert rows(server) == rows(in_sqlite)
    assert answers(server, "c", encoder) == answers(in_sqlite, "c", encoder)
    check_new_keys(server, encoder, tmp_path)
    server.close()


def test_images_written_after_a_restore_are_not_searched_by_the_vectors_of_lost_ones(
    encoder: Encoder, tmp_path: Path
) -> None:
    home, data = tmp_path / "home", tmp_path / "data"
    records = make_records(20)
    engine = open_home(home)
    ingest(engine, encoder, make_manifest(data, records[:10]))
    write_backup(engine.home, tmp_path / "backup.tar", show_progress=False)
    ingest(engine, encoder, make_manifest(data, records))
    engine.close()
    for file in home.glob("catalogue.db*"):
        file.unlink()
    again = open_home(home)
    restore_backup(again.home, tmp_path / "backup.tar", show_progress=False)
    others = [
        replace(record, id=f"other-{record.id}", image=f"images/other-{number}.png")
        for number, record in enumerate(records[10:])
    ]
    for number, record in enumerate(others):
        make_picture(data / record.image, seed=1000 + number)
    # As many as were lost, under the same sequence number.
    manifest = make_manifest(data, [*records[:10], *others])
    ingest(again, encoder, manifest)
    active = again.active("c")
    for record in others:
        hit = again.search(active, again.vector_of(active, record.id), SearchRequest(k=1)).hits[0]
        assert hit.id == record.id
        assert hit.score == pytest.approx(1, abs=1e-5)
    again.close()


def check_new_keys(engine: SearchEngine, encoder: Encoder, folder: Path) -> None:
    """What is written to a restored catalogue takes no key of what was removed from the first."""
    with engine.home.catalogue.read() as session:
        removed = set(session.execute(select(RemovalRow.target, RemovalRow.key)).all())
    assert removed
    records = make_records(25)
    ingest(engine, encoder, make_manifest(folder / "data", records))
    with engine.home.catalogue.read() as session:
        issued = {("images", key) for key in session.execute(select(ImageRow.id)).scalars()}
        issued |= {("texts", key) for key in session.execute(select(TextRow.id)).scalars()}
    assert not issued & removed


def test_what_is_removed_meanwhile_is_in_the_backup_and_goes_afterwards(
    full: SearchEngine, encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: SearchEngine
) -> None:
    before = answers(full, "c", encoder)
    files = list((tmp_path / "home/images/originals").glob("*/*"))

    def remove_all() -> None:
        everything = [record.id for record in make_records(20)]
        assert len(remove_images(full.home, "c", everything)) == 20
        assert len(remove_images(full.home, "d", everything)) == 18
        assert all(file.exists() for file in files)

    at_first(monkeypatch, write, "_add_files", remove_all)
    write_backup(full.home, tmp_path / "backup.tar", show_progress=False)
    assert not any(file.exists() for file in files)
    restore_backup(again.home, tmp_path / "backup.tar", show_progress=False)
    assert answers(again, "c", encoder) == before


def test_a_backup_that_is_whole_is_no_error_whatever_cannot_be_removed_afterwards(
    in_sqlite: SearchEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    again: SearchEngine,
) -> None:
    def fail(_: object) -> None:
        raise StoreError("it cannot be removed")

    monkeypatch.setattr(write, "collect_garbage", fail)
    assert write_backup(in_sqlite.home, tmp_path / "backup.tar", show_progress=False).images == 20
    assert "failed: it cannot be removed" in caplog.text
    assert restore_backup(again.home, tmp_path / "backup.tar", show_progress=False).images == 20


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_bytes(b"other bytes")])
def test_a_file_that_was_missing_or_damaged_is_named_and_the_rest_comes_back(
    in_sqlite: SearchEngine, tmp_path: Path, spoil: Callable[[Path], object], again: SearchEngine
) -> None:
    path = in_sqlite.image_path("c", "image-003")
    path.chmod(0o600)
    spoil(path)
    summary = write_backup(in_sqlite.home, tmp_path / "backup.tar", show_progress=False)
    assert (summary.missing, summary.images) == ([path.name], 19)
    assert restore_backup(again.home, tmp_path / "backup.tar", show_progress=False).missing == [path.name]
    assert again.collection("c").count == 20


def test_a_catalogue_that_is_not_empty_is_left_alone(in_sqlite: SearchEngine, tmp_path: Path) -> None:
    write_backup(in_sqlite.home, tmp_path / "backup.tar", show_progress=False)
    before = rows(in_sqlite)
    with pytest.raises(BackupError, match="is not empty"):
        restore_backup(in_sqlite.home, tmp_path / "backup.tar", show_progress=False)
    with pytest.raises(BackupError, match="exists already"):
        write_backup(in_sqlite.home, tmp_path / "backup.tar", show_progress=False)
    assert rows(in_sqlite) == before


def _cut_between_files(path: Path) -> None:
    with tarfile.open(path) as tar:
        last = tar.getmembers()[-1]
    os.truncate(path, last.offset)


def _change(member: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with tarfile.open(path) as tar:
            result = next(one for one in tar if one.name.startswith(member))
        with path.open("r+b") as file:
            file.seek(result.offset_data + result.size // 2)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))

    return change


def _outside(path: Path) -> None:
    other = path.with_name("outside")
    other.write_text("x")
    with tarfile.open(path, "w") as tar:
        tar.add(other, "bundles/aa/../../../../outside-of-it")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: os.truncate(path, path.stat().st_size // 2), "is no whole backup"),
        (_cut_between_files, "was cut off"),
        (_change("images/"), "has other bytes"),
        (_change("catalogue"), "has other bytes"),
        (_change("bundles/"), "has other bytes"),
        (lambda path: path.write_bytes(b"hello" * 1000), "is no whole backup"),
        (_outside, "which no backup of recoquest does"),
    ],
)
def test_a_damaged_backup_is_refused_and_nothing_of_it_can_be_searched(
    in_sqlite: SearchEngine,
    damage: Callable[[Path], object],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, home = tmp_path / "backup.tar", tmp_path / "again"
    write_backup(in_sqlite.home, path, show_progress=False)
    whole = path.read_bytes()
    damage(path)
    arguments = ["recoquest", "restore", str(path), "--home", str(home)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", arguments)
        with pytest.raises(SystemExit) as ended:
            run()
        assert (ended.value.code, message in capsys.readouterr().err) == (1, True)
        assert [entry.name for entry in home.glob(".restore*")] == []
        path.write_bytes(whole)
        with pytest.raises(SystemExit) as ended:
            run()
    assert (ended.value.code, capsys.readouterr().out) == (0, "c: 20 images.\n")


def _back_up(home: Path, path: Path) -> None:
    write_backup(open_home(home).home, path, show_progress=False)


@pytest.mark.slow
def test_a_killed_backup_leaves_no_file_and_keeps_nothing_from_being_removed(
    in_sqlite: SearchEngine, tmp_path: Path
) -> None:
    path = tmp_path / "backup.tar"
    process = multiprocessing.get_context("spawn").Process(target=_back_up, args=(tmp_path / "home", path))
    process.start()
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob(".backup.tar.*")) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    if path.exists():
        pytest.skip("the backup was done before it could be killed")
    file = in_sqlite.image_path("c", "image-001")
    remove_images(in_sqlite.home, "c", ["image-001"])
    assert not file.exists()
    summary = write_backup(in_sqlite.home, path, show_progress=False)
    assert [left.name for left in tmp_path.glob(".*")] == []
    with tarfile.open(path) as tar:
        content = tar.extractfile("backup.json")
        assert content is not None
        assert json.load(content)["images"] == summary.images == 19


@pytest.fixture
def backup(in_sqlite: SearchEngine, tmp_path: Path) -> Path:
    write_backup(in_sqlite.home, tmp_path / "backup.tar", show_progress=False)
    return tmp_path / "backup.tar"


def _files(home: Path) -> set[str]:
    return {path.name for path in (home / "images" / "originals").glob("*/*")}


def _loose(engine: SearchEngine) -> set[str]:
    with engine.home.catalogue.read() as session:
        return set(session.execute(select(OrphanRow.sha256)).scalars())


def test_what_a_restore_that_failed_has_put_into_the_store_is_removed_later(
    backup: Path, again: SearchEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore, "_NOTED_AT_ONCE", 4)
    puts = itertools.count()

    def take_seven(*_: object) -> None:
        if next(puts) >= 7:
            raise StoreError("the disk does not take it")

    with monkeypatch.context() as patched:
        note_calls(patched, ImageStore, "put", take_seven)
        with pytest.raises(StoreError):
            restore_backup(again.home, backup, show_progress=False)
    left = _files(tmp_path / "again")
    assert len(left) == 7
    assert left <= _loose(again)
    collect_garbage(again.home)
    assert (_files(tmp_path / "again"), _loose(again)) == (set(), set())
    assert restore_backup(again.home, backup, show_progress=False).images == 20


def test_nobody_removes_the_files_of_a_restore_before_images_use_them(
    backup: Path, again: SearchEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_first(monkeypatch, restore, "_take_catalogue", lambda: collect_garbage(again.home))
    assert restore_backup(again.home, backup, show_progress=False).images == 20
    assert len(_files(tmp_path / "again")) == 20
    assert _loose(again) == set()
