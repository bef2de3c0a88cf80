"""Erasure: no byte of an image, a patient or a study is left, and what still holds one is named."""

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update
from sqlalchemy.orm import Session

from app.audit.trail import ImageChanges, open_trail
from app.collections.names import rename
from app.health.doctor import examine_home
from app.images import deletion
from app.images.deletion import Erasure, erase, without
from app.jobs.folder import JobFolder
from app.radiology.jobs import study_sync
from app.radiology.reports import ReportIntake
from index.audit.event import Actor
from index.audit.listing import Selection, all_events, read_events
from index.audit.verify import verify_trail
from index.backup import write_backup
from index.catalogue import open_catalogue
from index.catalogue.connections import Patience
from index.catalogue.database import Catalogue
from index.catalogue.jobs import add_job
from index.catalogue.tables import JobRow, ReportRow
from index.erasure import keep_others_away
from index.errors import CollectionInUseError, JobStateError, NoErasureError
from index.files.image_store import ImageStore
from index.ingest import ingest_manifest
from index.keys.home_secret import patient_key
from tests.app.commands import plain_output
from tests.app.conftest import COLLECTION, Indexed, serve
from tests.app.radiology.films import give_studies
from tests.training.clinical.reports.documents import PATIENT, STUDY, hl7_report
from training.clinical.pseudonyms import keyed_hash
from training.clinical.reports.hl7 import parse_message, read_message
from training.clinical.reports.study_report import deidentified
from training.common.atomic import atomic_file
from training.common.manifest import read_manifest, write_manifest
from training.models.encoder import load_encoder

HERE = f"/v1/collections/{COLLECTION}"
TEXT = "Zirkulaerer Verschluss xylophonartig"
WORD = b"xylophonartig"


def holding(folder: Path, content: bytes) -> list[str]:
    """Name the files below a folder whose bytes or name hold something."""
    names = {path: str(path.relative_to(folder)) for path in folder.rglob("*")}
    return [
        name
        for path, name in names.items()
        if content in name.encode() or (path.is_file() and content in path.read_bytes())
    ]


def sha256_of(indexed: Indexed, image: str = "image-5") -> str:
    with indexed.engine() as engine:
        return engine.image(COLLECTION, image).sha256


def vector_of(indexed: Indexed) -> bytes:
    catalogue = sqlite3.connect(indexed.settings.home / "catalogue.sqlite3")
    result = catalogue.execute(
        "SELECT vector FROM embeddings JOIN images ON images.id = image_id WHERE external_id = 'image-5'"
    ).fetchone()
    catalogue.close()
    return bytes(result[0])


def job_in(session: Session, state: str, kind: str, arguments: list[str], **values: Any) -> int:
    """Add a job that is in some state already."""
    number = add_job(session, kind, arguments).id
    session.execute(update(JobRow).where(JobRow.id == number).values(state=state, **values))
    return number


def write_old_jobs(indexed: Indexed, sha256: str) -> None:
    """Leave the results and folders of jobs that name the image."""
    with indexed.write() as session:
        groups = {"groups": [{"ids": ["image-5", "image-6"], "same_file": False}]}
        job = job_in(session, "done", "duplicates", [COLLECTION], result=groups)
        job_in(session, "done", "duplicates", ["elsewhere"], result={"groups": [{"ids": ["image-5"]}]})
    folder = indexed.settings.home / "jobs" / str(job) / "retraining"
    (folder / "images").mkdir(parents=True)
    (folder / "images" / sha256).symlink_to("/nowhere")
    lines = [{"id": "image-5", "texts": [TEXT]}, {"id": "image-51", "texts": ["b"]}]
    (folder / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "result.json").write_text(json.dumps({"shown": [{"id": "image-5", "text": TEXT}], "count": 2}))
    (folder / "weights.bin").write_bytes(b"\x00\x01 image-5 \x00")


def rename_now(indexed: Indexed) -> None:
    with indexed.engine() as engine:
        actor = Actor("command")
        rename(indexed.settings, engine.home, COLLECTION, "renamed", actor, operation="rename", request=None)


def erase_now(indexed: Indexed, *ids: str) -> Erasure:
    with indexed.engine() as engine:
        actor = Actor("command")
        return erase(indexed.settings, engine.home, COLLECTION, ids or ("image-5",), actor, operation="erase")


@pytest.fixture
def marked(own: Indexed) -> Indexed:
    """A home in which one image has a text like no other."""
    folder, records = own.manifest.folder, list(own.manifest.records)
    records[5] = replace(records[5], texts=(TEXT,), report=f"Report: {TEXT}.")
    write_manifest(folder, records)
    again = replace(own, manifest=read_manifest(folder))
    again.index(COLLECTION, own.bundle)
    with own.engine() as engine:
        engine.save_snapshot(COLLECTION)
    return again


@pytest.fixture
def service(marked: Indexed) -> Iterator[TestClient]:
    with serve(marked) as running:
        yield running


@pytest.mark.slow
def test_no_byte_of_an_erased_image_is_left(service: TestClient, marked: Indexed, tmp_path: Path) -> None:
    home, sha256, vector = marked.settings.home, sha256_of(marked), vector_of(marked)
    service.post(f"{HERE}/search", json={"text": "a boat", "limit": 24})
    for part in ("thumbnail", "content"):
        assert service.get(f"{HERE}/images/image-5/{part}").status_code == 200
    judged: dict[str, Any] = {"query": {"like": [{"id": "image-5"}]}, "hit": "image-6", "relevant": True}
    assert service.post(f"{HERE}/feedback", json=judged).status_code == 200
    write_old_jobs(marked, sha256)
    with marked.engine() as engine:
        write_backup(engine.home, tmp_path / "backup.tar", show_progress=False)
    for content in (sha256.encode(), WORD, vector, b"image-5"):
        assert holding(home, content)

    answer = service.post(f"{HERE}/erase", json={"ids": ["image-5"]})

    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["erased"] == ["image-5"]
    assert body["judgements"] == 1
    assert body["shared_files"] == []
    assert [Path(backup["path"]) for backup in body["backups"]] == [tmp_path / "backup.tar"]
    assert body["backups"][0]["is_there"] is True
    assert [Path(path).name for path in body["left_files"]] == ["weights.bin"]
    assert body["log_is_empty"] is True
    for content in (sha256.encode(), WORD, vector):
        assert holding(home, content) == []
    (home / "jobs" / "1" / "retraining" / "weights.bin").unlink()
    # The job of another collection has an image of the same id.
    assert holding(home, b'"image-5"') == ["catalogue.sqlite3"]
    assert service.get(f"{HERE}/images/image-5").status_code == 404
    hits = service.post(f"{HERE}/search", json={"text": TEXT, "limit": 24}).json()["hits"]
    assert len(hits) == 23
    assert (home / "jobs" / "1" / "retraining" / "manifest.jsonl").read_text().count("image-51") == 1


def test_jobs_that_took_a_study_over_forget_which(marked: Indexed) -> None:
    studies = {state: f"1.2.826.0.1.{index}" for index, state in enumerate(("done", "failed", "queued"))}
    with marked.write() as session:
        for state, study in studies.items():
            arguments = study_sync(COLLECTION, study)
            folder = marked.settings.home / "jobs" / str(job_in(session, state, "pacs_sync", arguments))
            folder.mkdir(parents=True)
            (folder / "environment.json").write_text(json.dumps({"arguments": arguments, "kind": "a"}))
    erased = erase_now(marked)
    assert len(erased.jobs) == 2
    for state in ("done", "failed"):
        assert holding(marked.settings.home, studies[state].encode()) == []
    # The UID of a job which is still to begin is its work.
    assert holding(marked.settings.home, studies["queued"].encode())


def test_a_saved_case_goes_with_its_note(service: TestClient, marked: Indexed) -> None:
    note = "Merkwort Quittenbaum"
    assert service.put(f"{HERE}/cases/taught", json={"name": "Taught"}).status_code == 201
    for image in ("image-5", "image-6"):
        answer = service.put(f"{HERE}/cases/taught/images/{image}", json={"note": f"{note} {image}"})
        assert answer.status_code == 200, answer.text
    assert holding(marked.settings.home, f"{note} image-5".encode())
    assert service.post(f"{HERE}/erase", json={"ids": ["image-5"]}).status_code == 200
    assert holding(marked.settings.home, f"{note} image-5".encode()) == []
    assert [one["note"] for one in service.get(f"{HERE}/cases/taught").json()["cases"]] == [f"{note} image-6"]


def test_others_write_while_the_files_of_jobs_are_gone_through(
    marked: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_old_jobs(marked, sha256_of(marked))
    other = open_catalogue(marked.settings.catalogue_url, Patience(lock_s=0.2))
    written: list[int] = []

    def reading(path: Path, pattern: Any) -> bool:
        with other.write() as session:
            written.append(add_job(session, "tidy", []).id)
        return names_one(path, pattern)

    names_one = deletion._names_one
    monkeypatch.setattr(deletion, "_names_one", reading)
    erase_now(marked)
    other.close()
    assert len(written) >= 3


@pytest.mark.parametrize("other", ["removes it first", "writes another"])
def test_another_process_at_the_same_snapshot_stops_no_erasure(
    marked: Indexed, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    unlink, met = os.unlink, list[Path]()

    def contested(path: Any, *, dir_fd: int | None = None) -> None:
        if Path(path).name == "snapshot.json":
            (manifest,) = (marked.settings.home / "snapshots").glob("*/snapshot.json")
            met.append(manifest)
            if other == "removes it first":
                unlink(manifest)
            else:
                (manifest.parent / "new.rows").write_bytes(b"rows")
        unlink(path, dir_fd=dir_fd)

    vector = vector_of(marked)
    monkeypatch.setattr(os, "unlink", contested)
    assert erase_now(marked, "image-5").ids == ("image-5",)
    assert len(met) == 1
    assert holding(marked.settings.home / "snapshots", vector) == []


def test_the_answer_that_is_kept_for_a_key_has_no_id(service: TestClient, marked: Indexed) -> None:
    asked, once = {"ids": ["image-5", "no-such-film", "image-6"]}, {"Idempotency-Key": "once"}
    sent: dict[str, Any] = {"json": asked, "headers": once}
    first = service.post(f"{HERE}/erase", **sent)
    assert first.status_code == 200, first.text
    assert (first.json()["erased"], first.json()["unknown"]) == (["image-5", "image-6"], ["no-such-film"])
    catalogue = sqlite3.connect(marked.settings.home / "catalogue.sqlite3")
    ((body,),) = catalogue.execute("SELECT body FROM idempotency_keys").fetchall()
    catalogue.close()
    for name in (b"image-5", b"image-6", b"no-such-film"):
        assert name not in bytes(body)
    again = service.post(f"{HERE}/erase", **sent)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert (again.status_code, again.json()) == (200, first.json())
    other = {**sent, "json": {"ids": ["image-6", "no-such-film", "image-5"]}}
    assert service.post(f"{HERE}/erase", **other).status_code == 422


def test_ids_that_no_database_holds_are_of_no_image(marked: Indexed) -> None:
    assert erase_now(marked, "image-5", "\x00", "\udcff").ids == ("image-5",)
    assert list((marked.settings.home / "erasures").iterdir()) == []


def test_the_trail_keeps_keyed_hashes_alone(marked: Indexed) -> None:
    with serve(marked) as service:
        service.post(f"{HERE}/search", json={"text": "a boat", "limit": 24})
        # The event of the search may come after that of the erasure: it names the image all the same.
        service.post(f"{HERE}/erase", json={"ids": ["image-5"]}).raise_for_status()
    with marked.read() as session:
        entries = list(all_events(session, Selection()))
        assert verify_trail(session).fault is None
    actions = [entry.record["action"] for entry in entries]
    assert actions.count("erase") == 1
    erase = entries[actions.index("erase")]
    assert erase.ids == (None,)
    assert erase.record["address"] == "127.0.0.1"
    search = entries[actions.index("search")]
    assert erase.record["objects"][0] in search.record["objects"]
    assert sorted(name or "" for name in search.ids)[:1] == [""]


def test_erasing_what_is_not_there_is_said(service: TestClient) -> None:
    assert service.post(f"{HERE}/erase", json={"ids": ["none"]}).status_code == 404
    assert service.post(f"{HERE}/erase", json={"ids": []}).status_code == 422
    assert service.post("/v1/collections/none/erase", json={"ids": ["a"]}).status_code == 404


def test_backups_of_an_image_that_was_removed_before_are_named(
    service: TestClient, marked: Indexed, tmp_path: Path
) -> None:
    with marked.engine() as engine:
        write_backup(engine.home, tmp_path / "backup.tar", show_progress=False)
    assert service.delete(f"{HERE}/images/image-5").status_code == 200
    keyed = {"Idempotency-Key": "once"}
    answer = service.post(f"{HERE}/erase", json={"ids": ["image-5"]}, headers=keyed)
    assert answer.status_code == 200, answer.text
    assert answer.json()["erased"] == []
    assert [Path(one["path"]) for one in answer.json()["backups"]] == [tmp_path / "backup.tar"]
    again = service.post(f"{HERE}/erase", json={"ids": ["image-5"]}, headers=keyed)
    assert again.json() == answer.json()
    assert again.headers["Idempotency-Replayed"] == "true"
    other = service.post(f"{HERE}/erase", json={"ids": ["image-6", "nope"]})
    assert (other.json()["erased"], other.json()["unknown"]) == (["image-6"], ["nope"])


def test_a_running_job_of_the_collection_is_waited_for(service: TestClient, marked: Indexed) -> None:
    with marked.write() as session:
        job_in(session, "running", "retrain", [COLLECTION])
    answer = service.post(f"{HERE}/erase", json={"ids": ["image-5"]})
    assert answer.status_code == 409
    assert "Job 1 is at work" in answer.json()["detail"]
    assert service.get(f"{HERE}/images/image-5").status_code == 200


def test_a_file_that_another_image_shares_stays(with_a_copy: Indexed) -> None:
    told = with_a_copy.run("erase", "copied", "copy").output
    assert "copied: copy is erased." in told
    assert "another image is the same file" in told


def test_the_command_erases_and_names_backups(marked: Indexed, tmp_path: Path) -> None:
    for name in ("first.tar", "second.tar"):
        marked.run("backup", tmp_path / name)
    (tmp_path / "second.tar").unlink()
    told = plain_output(marked.run("erase", COLLECTION, "image-5", "gone"))
    assert f"{COLLECTION}: image-5 is erased." in told
    assert f"{COLLECTION}: gone was not in the collection." in told
    assert f"Still in the backup {tmp_path / 'first.tar'} of " in told
    assert f"Still in the backup {tmp_path / 'second.tar'} (not there any more) of " in told
    assert holding(marked.settings.home, WORD) == []
    assert "are as they were written" in marked.run("audit", "verify").output


@pytest.mark.slow
def test_an_image_is_erased_on_postgresql(make_indexed: Callable[..., Indexed], postgresql_url: str) -> None:
    indexed = make_indexed(database_url=postgresql_url)
    with serve(indexed) as service:
        sha256 = service.get(f"{HERE}/images/image-5").json()["sha256"]
        answer = service.post(f"{HERE}/erase", json={"ids": ["image-5"]})
        assert answer.status_code == 200, answer.text
        assert service.get(f"{HERE}/images/image-5").status_code == 404
        assert len(service.post(f"{HERE}/search", json={"text": "a", "limit": 30}).json()["hits"]) == 23
    assert holding(indexed.settings.home, sha256.encode()) == []


def test_values_that_name_an_image_go_with_what_they_describe() -> None:
    names = {"a"}
    groups = [{"ids": ["a", "b"]}, {"id": "a", "score": 1}]
    assert without({"groups": groups, "n": 2}, names) == {"groups": [{"ids": ["b"]}], "n": 2}
    assert without({"a": 1, "b": {"a": 2, "c": "images/ab"}}, names) == {"b": {"c": "images/ab"}}
    assert without(["x/a", "xa", 1, None, True], names) == ["xa", 1, None, True]


def test_an_erasure_that_was_stopped_goes_on(marked: Indexed, monkeypatch: pytest.MonkeyPatch) -> None:
    home, sha256 = marked.settings.home, sha256_of(marked)
    write_old_jobs(marked, sha256)
    (home / "jobs" / "1" / "retraining" / "weights.bin").unlink()
    with marked.write() as session:
        last = add_job(session, "retrain", [COLLECTION]).id
    (home / "jobs" / str(last) / "images").mkdir(parents=True)
    (home / "jobs" / str(last) / "images" / sha256).symlink_to("/nowhere")
    folders: list[str] = []

    def failing(folder: Path, *value: Any) -> bool:
        folders.append(folder.name)
        if len(folders) == 2:
            raise OSError(5, "Input/output error", str(folder))
        return erase_from_folder(folder, *value)

    erase_from_folder = deletion._erase_from_folder
    monkeypatch.setattr(deletion, "_erase_from_folder", failing)
    with pytest.raises(OSError, match="Input/output"):
        erase_now(marked)
    assert holding(home / "jobs", sha256.encode())
    assert len(list((home / "erasures").iterdir())) == 1
    told = examine_home(marked.settings)
    assert told.state == "doubtful"
    assert f"`recoquest erase {COLLECTION}` continues with it" in told.found
    # People send what the doctor prints to others.
    assert "image-5" not in told.found
    # The catalogue does not know any more which file the image had.
    result = erase_now(marked)
    assert result.ids == ("image-5",)
    assert folders == ["1", str(last), str(last)]
    for content in (sha256.encode(), WORD):
        assert holding(home, content) == []
    assert list((home / "erasures").iterdir()) == []


def _stopped_at(stage: str, marked: Indexed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop an erasure at a stage."""

    def failing(*_: Any, **__: Any) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="Input/output"):
        patched.setattr(deletion, stage, failing)
        erase_now(marked)


def test_an_erasure_that_was_stopped_goes_on_with_that_of_another_image(
    marked: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stopped_at("erase_images", marked, monkeypatch)
    assert set(erase_now(marked, "image-6").ids) == {"image-5", "image-6"}
    assert holding(marked.settings.home, WORD) == []


@pytest.mark.parametrize("stage", ["erase_images", "_erase_from_jobs"])
def test_an_erasure_that_was_stopped_anywhere_goes_on_without_the_ids(
    marked: Indexed, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    write_old_jobs(marked, sha256_of(marked))
    (marked.settings.home / "jobs" / "1" / "retraining" / "weights.bin").unlink()
    _stopped_at(stage, marked, monkeypatch)
    told = marked.run("erase", COLLECTION).output
    assert f"{COLLECTION}: the interrupted erasure is complete; images erased: 1." in told
    assert holding(marked.settings.home, WORD) == []
    assert list((marked.settings.home / "erasures").iterdir()) == []
    nothing = marked.run("erase", COLLECTION, code=1)
    assert isinstance(nothing.exception, NoErasureError)
    assert "name the images" in str(nothing.exception)


def test_a_collection_stays_until_its_erasure_is_whole(service: TestClient, marked: Indexed) -> None:
    write_old_jobs(marked, sha256_of(marked))
    lock = JobFolder.for_job(marked.settings, 1).lock()
    assert lock is not None
    assert service.post(f"{HERE}/erase", json={"ids": ["image-5"]}).status_code == 409
    refused = service.delete(HERE)
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:recoquest:collection-in-use")
    assert "then remove it" in refused.json()["detail"]
    assert "image-5" not in refused.text
    os.close(lock)
    with keep_others_away(marked.settings.home):
        assert service.delete(HERE).status_code == 409
    assert service.post(f"{HERE}/erase", json={"ids": ["image-5"]}).status_code == 200
    assert service.delete(HERE).status_code == 200
    assert list((marked.settings.home / "erasures").iterdir()) == []


def test_a_folder_that_is_at_work_is_waited_for(marked: Indexed) -> None:
    write_old_jobs(marked, sha256_of(marked))
    lock = JobFolder.for_job(marked.settings, 1).lock()
    assert lock is not None
    with pytest.raises(JobStateError, match="Job 1 is at work in its folder"):
        erase_now(marked)
    os.close(lock)
    with pytest.raises(CollectionInUseError, match="were not completely erased"):
        rename_now(marked)
    assert erase_now(marked).ids == ("image-5",)
    rename_now(marked)


def test_nothing_is_erased_while_a_backup_is_written(service: TestClient, marked: Indexed) -> None:
    with marked.engine() as engine, engine.home.store.keeping():
        answer = service.post(f"{HERE}/erase", json={"ids": ["image-5"]})
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:recoquest:collection-in-use")
    assert answer.json()["detail"].startswith("A backup is being written")
    assert list((marked.settings.home / "erasures").iterdir()) == []


def test_one_erasure_at_a_time(marked: Indexed) -> None:
    with keep_others_away(marked.settings.home), pytest.raises(CollectionInUseError, match="Other images"):
        erase_now(marked)
    assert erase_now(marked).ids == ("image-5",)


class _KilledError(BaseException):
    """Stands in for a kill: nothing tidies up after it."""


def _leave_part(path: Path, content: bytes) -> Path:
    """Leave what a killed writer leaves, a moment ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.0123456789abcdef.part")
    part.write_bytes(content)
    return part


def test_unfinished_copies_of_killed_writers_go_whatever_their_age(marked: Indexed) -> None:
    home, sha256 = marked.settings.home, sha256_of(marked)
    images = home / "images"
    for path in (f"originals/{sha256[:2]}/{sha256}", f"thumbnails/{sha256[:2]}/{sha256}.4.webp"):
        _leave_part(images / path, b"half of it")
    assert len(list(ImageStore(images).unfinished())) == 2
    result = erase_now(marked)
    assert (result.ids, result.unfinished) == (("image-5",), ())
    assert holding(home, sha256.encode()) == []


def test_what_is_being_written_is_named(marked: Indexed) -> None:
    sha256 = sha256_of(marked)
    path = marked.settings.home / "images" / "originals" / sha256[:2] / sha256
    with suppress(_KilledError), atomic_file(path) as file:
        result = erase_now(marked)
        assert [part.name for part in result.unfinished] == [Path(file.name).name]
        raise _KilledError


def test_what_a_killed_backup_has_left_is_named(marked: Indexed, tmp_path: Path) -> None:
    with marked.engine() as engine:
        write_backup(engine.home, tmp_path / "backup.tar", show_progress=False)
    left = tmp_path / ".later.tar.part"
    left.mkdir()
    (left / "catalogue.sqlite3").write_bytes(WORD)
    assert erase_now(marked).unfinished == (left,)


def _index_again(marked: Indexed, names: dict[str, str]) -> None:
    """Index the images under other ids, by the former ones."""
    folder = marked.manifest.folder
    records = read_manifest(folder).records
    write_manifest(folder, [replace(record, id=names.get(record.id, record.id)) for record in records])
    encoder, manifest = load_encoder(marked.bundle, "cpu"), read_manifest(folder)
    with marked.engine() as engine:
        changes = ImageChanges(marked.settings, engine.home.catalogue, COLLECTION, "index")
        index = partial(ingest_manifest, engine, COLLECTION, encoder, manifest, show_progress=False)
        report = index(record=changes.written, record_moved=changes.moved)
    assert report.moved == names


def _job_that_names(marked: Indexed, image: str) -> Path:
    """The folder of a job of the collection with a list of images."""
    with marked.write() as session:
        job = add_job(session, "duplicates", [COLLECTION])
    path = marked.settings.home / "jobs" / str(job.id) / "shown.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps([image, "image-6"]))
    return path


def test_an_erasure_reaches_the_ids_that_an_image_had_before(marked: Indexed) -> None:
    listed = _job_that_names(marked, "image-5")
    _index_again(marked, {"image-5": "photo-5"})
    _index_again(marked, {"photo-5": "picture-5", "image-6": "image-5"})
    result = erase_now(marked, "picture-5")
    assert (result.ids, result.later) == (("picture-5",), ())
    assert json.loads(listed.read_text()) == ["image-5", "image-6"]
    with marked.engine() as engine, engine.home.catalogue.read() as session:
        events = list(all_events(session, Selection()))
        # Another image is called image-5 now: that name stays.
        assert engine.image(COLLECTION, "image-5").id == "image-5"
        trail = open_trail(marked.settings, engine.home.catalogue)
        assert trail.other_ids(session, [COLLECTION], ["picture-5"], former=True) == {"image-5"}
    named = {name for event in events for name in event.ids}
    assert {"photo-5", "picture-5"}.isdisjoint(named)


def test_a_former_id_stands_for_its_image(marked: Indexed) -> None:
    listed = _job_that_names(marked, "image-5")
    _index_again(marked, {"image-5": "photo-5"})
    result = erase_now(marked, "image-5")
    assert (result.ids, result.later, result.unknown) == (("photo-5",), ("photo-5",), ())
    assert json.loads(listed.read_text()) == ["image-6"]
    assert holding(marked.settings.home, WORD) == []


WAITING = f"{STUDY}.77"


@pytest.fixture
def films(own: Indexed) -> Indexed:
    """Films of a patient with a report, and reports that wait for films of that patient and of others."""
    give_studies(own)
    reports = (
        hl7_report(["IMPRESSION: Xylophonic scar."]),
        hl7_report(["IMPRESSION: Yttrium clip."], study=WAITING, accession="W1"),
        hl7_report(["IMPRESSION: Zirconium implant."], study=f"{STUDY}.78", accession="W2", patient="P2"),
        hl7_report(["IMPRESSION: Wolfram coil."], study=None, accession="W3", patient=""),
    )
    with _intake(own) as intake:
        _take(intake, own, *reports)
        assert intake.waiting() == 3
    return own


@contextmanager
def _intake(indexed: Indexed, **settings: object) -> Iterator[ReportIntake]:
    with indexed.engine() as engine:
        yield ReportIntake(engine, indexed.settings.model_copy(update=settings), COLLECTION, "hl7")


def _take(intake: ReportIntake, indexed: Indexed, *messages: bytes) -> None:
    key = patient_key(indexed.settings.home)
    for message in messages:
        intake.take([deidentified(report, key) for report in read_message(parse_message(message))])


def _words(indexed: Indexed) -> set[str]:
    """Return the words of the reports that are found in any file of the home."""
    words = ("Xylophonic", "Yttrium", "Zirconium", "Wolfram")
    return {word for word in words if holding(indexed.settings.home, word.encode())}


def test_a_waiting_report_goes_by_any_id_of_its_patient(films: Indexed) -> None:
    with _intake(films) as intake:
        _take(intake, films, hl7_report(study=f"{STUDY}.79", accession="W4", patient="NAT~P9"))
        assert intake.waiting() == 4
        films.run("erase", COLLECTION, "--patient", "P9")
        assert intake.waiting() == 3


@pytest.mark.parametrize("form", ["id", "hash"])
def test_a_patient_goes_with_all_reports(films: Indexed, form: str) -> None:
    hashed = keyed_hash(patient_key(films.settings.home), "patient", PATIENT)
    told = films.run("erase", COLLECTION, "--patient", PATIENT if form == "id" else hashed).output
    assert f"{COLLECTION}: 3 images and 1 waiting reports are erased." in told
    assert _words(films) == {"Zirconium", "Wolfram"}
    assert holding(films.settings.home, PATIENT.encode()) == []
    with films.read() as session:
        (event,) = read_events(session, Selection(action="erase"), limit=10)
    assert event.record["details"] == {"operation": "erase", "reports": 1}
    assert event.ids == (None, None, None)
    films.run("erase", COLLECTION, "--patient", PATIENT, code=1)


@pytest.mark.parametrize(
    ("study", "left"),
    [
        (WAITING, {"Xylophonic", "Zirconium", "Wolfram"}),
        ("W3", {"Xylophonic", "Yttrium", "Zirconium"}),
        (STUDY, {"Yttrium", "Zirconium", "Wolfram"}),
    ],
)
def test_a_study_goes_with_its_reports(films: Indexed, study: str, left: set[str]) -> None:
    with serve(films) as client:
        sent: dict[str, Any] = {"json": {"study": study}, "headers": {"Idempotency-Key": "once"}}
        answer, again = (client.post(f"{HERE}/erase", **sent) for _ in range(2))
        nothing = client.post(f"{HERE}/erase", json={})
    assert answer.status_code == 200, answer.text
    images = ["image-1", "image-2"] if study == STUDY else []
    assert (answer.json()["erased"], answer.json()["reports"]) == (images, int(study != STUDY))
    # The ids are kept nowhere, so the answer that is given again lacks them.
    assert again.json() == answer.json() | {"erased": []}
    assert _words(films) == left
    assert nothing.status_code == 422


def test_reports_that_wait_for_the_study_of_an_erased_image_go(films: Indexed) -> None:
    with _intake(films) as intake:
        _take(intake, films, hl7_report(["IMPRESSION: Yttrium clip, again."], study=None, accession="A3"))
        # All wait now, as reports do that came before their images were indexed.
        with intake.engine.home.catalogue.write() as session:
            session.execute(update(ReportRow).values(study=None))
        assert intake.waiting() == 5
    assert "Reports that waited for them: 1, erased." in films.run("erase", COLLECTION, "image-3").output
    with _intake(films) as intake:
        assert intake.waiting() == 4


def test_an_erasure_of_reports_alone_goes_on_after_a_stop(
    films: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(_: Catalogue) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Catalogue, "compact", stopped)
        films.run("erase", COLLECTION, "--study", WAITING, code=130)
    (note,) = (films.settings.home / "erasures").glob("*.json")
    assert json.loads(note.read_text())["ids"] == []
    assert PATIENT not in note.read_text()
    films.run("erase", COLLECTION)
    assert _words(films) == {"Xylophonic", "Zirconium", "Wolfram"}
    assert list((films.settings.home / "erasures").iterdir()) == []


@pytest.mark.parametrize(("days", "left"), [(90, 1), (0, 3), (91, 3)])
def test_reports_wait_so_many_days(films: Indexed, days: int, left: int) -> None:
    _receive_earlier(films.settings.home, 90)
    with _intake(films, keep_waiting_reports_days=days) as intake:
        _take(intake, films, hl7_report(["IMPRESSION: Wolfram."], study=f"{STUDY}.79", accession="W4"))
        assert intake.waiting() == left + (days != 90)
        _receive_earlier(films.settings.home, 90)
        # Once a day is enough.
        _take(intake, films, hl7_report(["IMPRESSION: Wolfram."], study=f"{STUDY}.80", accession="W5"))
        assert intake.waiting() == left + 1 + (days != 90)
        with intake.engine.home.catalogue.read() as session:
            events = read_events(session, Selection(action="delete"), limit=10)
    forgotten = [{"operation": "hl7", "reports": 3}] if days == 90 else []
    assert [event.record["details"] for event in events] == forgotten


def test_tidy_forgets_reports_that_waited_too_long(films: Indexed) -> None:
    assert "forgot" not in films.run("tidy").output
    _receive_earlier(films.settings.home, 90)
    assert f"{COLLECTION}: forgot 3 reports that waited for their images." in films.run("tidy").output


def _receive_earlier(home: Path, days: int) -> None:
    day = datetime.now(UTC).date() - timedelta(days=days)
    with sqlite3.connect(home / "catalogue.sqlite3") as connection:
        connection.execute("UPDATE reports SET received = ?", (day.isoformat(),))
