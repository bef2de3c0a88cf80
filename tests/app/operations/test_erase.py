"""Erasure: no byte of an image is left in the home, and what still holds it is named."""

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from app.application import create_app
from app.cli.main import build
from app.doctor.home import examine_home
from app.engine import open_engine
from app.jobs import erasure as jobs_erasure
from app.jobs.erasure import without
from app.jobs.folder import JobFolder
from app.operations.writes import erase as erasures
from app.operations.writes.collection_names import rename
from app.operations.writes.erase import Erasure, erase
from index.audit.event import Actor
from index.audit.listing import Selection, all_events
from index.audit.verify import verify_trail
from index.backup import write_backup
from index.catalogue import open_catalogue
from index.catalogue.connections import Patience
from index.catalogue.jobs import add_job
from index.catalogue.tables import JobRow
from index.erasure.pending import keep_others_away
from index.errors import CollectionInUseError, JobStateError, NoErasureError
from tests.access import AS_ADMIN
from tests.app.conftest import COLLECTION, Indexed
from training.data.manifest import read_manifest, write_manifest

AS_ADMIN_HERE: dict[str, Any] = {"client": ("127.0.0.1", 5000), "headers": AS_ADMIN}
HERE = f"/v1/collections/{COLLECTION}"
TEXT = "Zirkulaerer Verschluss xylophonartig"
WORD = b"xylophonartig"


@pytest.fixture
def marked(own: Indexed) -> Indexed:
    """A home in which one image has a text like no other."""
    folder = own.manifest.folder
    records = [
        replace(record, texts=(TEXT,), report=f"Report: {TEXT}.") if record.id == "image-5" else record
        for record in own.manifest.records
    ]
    write_manifest(folder, records)
    again = Indexed(own.settings, read_manifest(folder), own.bundle)
    again.index(COLLECTION, own.bundle)
    engine = open_engine(own.settings)
    engine.save_snapshot(COLLECTION)
    engine.close()
    return again


@pytest.fixture
def service(marked: Indexed) -> Iterator[TestClient]:
    with TestClient(
        create_app(marked.settings), "http://localhost", client=("127.0.0.1", 5000), headers=AS_ADMIN
    ) as running:
        yield running


def _holding(folder: Path, content: bytes) -> list[str]:
    """Name the files below a folder whose bytes or name hold something."""
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if content in str(path.relative_to(folder)).encode()
        or (path.is_file() and content in path.read_bytes())
    ]


def _sha256(indexed: Indexed, image: str = "image-5") -> str:
    engine = open_engine(indexed.settings)
    try:
        return engine.image(COLLECTION, image).sha256
    finally:
        engine.close()


def _vector(indexed: Indexed) -> bytes:
    catalogue = sqlite3.connect(indexed.settings.home / "catalogue.sqlite3")
    found = catalogue.execute(
        "SELECT vector FROM embeddings JOIN images ON images.id = image_id WHERE external_id = 'image-5'"
    ).fetchone()
    catalogue.close()
    return bytes(found[0])


def _old_jobs(indexed: Indexed, sha256: str) -> None:
    """Leave the results and folders of jobs that name the image."""
    engine = open_engine(indexed.settings)
    with engine.home.catalogue.write() as session:
        job = add_job(session, "duplicates", [COLLECTION])
        row = session.get(JobRow, job.id)
        assert row is not None
        row.state, row.result = "done", {"groups": [{"ids": ["image-5", "image-6"], "same_file": False}]}
        other = add_job(session, "duplicates", ["elsewhere"])
        kept = session.get(JobRow, other.id)
        assert kept is not None
        kept.state, kept.result = "done", {"groups": [{"ids": ["image-5"]}]}
    engine.close()
    folder = indexed.settings.home / "jobs" / str(job.id) / "retraining"
    (folder / "images").mkdir(parents=True)
    (folder / "images" / sha256).symlink_to("/nowhere")
    lines = [
        {"id": name, "texts": [TEXT] if name == "image-5" else ["b"]} for name in ("image-5", "image-51")
    ]
    (folder / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "result.json").write_text(json.dumps({"shown": [{"id": "image-5", "text": TEXT}], "count": 2}))
    (folder / "weights.bin").write_bytes(b"\x00\x01 image-5 \x00")


def test_no_byte_of_an_erased_image_is_left(service: TestClient, marked: Indexed, tmp_path: Path) -> None:
    home, sha256, vector = marked.settings.home, _sha256(marked), _vector(marked)
    service.post(f"{HERE}/search", json={"text": "a boat", "k": 24})
    for part in ("thumbnail", "content"):
        assert service.get(f"{HERE}/images/image-5/{part}").status_code == 200
    judged: dict[str, Any] = {"query": {"like": [{"id": "image-5"}]}, "hit": "image-6", "relevant": True}
    assert service.post(f"{HERE}/feedback", json=judged).status_code == 200
    _old_jobs(marked, sha256)
    engine = open_engine(marked.settings)
    write_backup(engine.home, tmp_path / "backup.tar", show_progress=False)
    engine.close()
    for content in (sha256.encode(), WORD, vector, b"image-5"):
        assert _holding(home, content)

    answer = service.post(f"{HERE}/erase", json={"ids": ["image-5"]})

    assert answer.status_code == 200, answer.text
    said = answer.json()
    assert said["erased"] == ["image-5"]
    assert said["judgements"] == 1
    assert said["shared_files"] == []
    assert [Path(backup["path"]) for backup in said["backups"]] == [tmp_path / "backup.tar"]
    assert said["backups"][0]["is_there"] is True
    assert [Path(path).name for path in said["left_files"]] == ["weights.bin"]
    assert said["log_is_empty"] is True
    for content in (sha256.encode(), WORD, vector):
        assert _holding(home, content) == []
    (home / "jobs" / "1" / "retraining" / "weights.bin").unlink()
    # The job of another collection has an image of the same id.
    assert _holding(home, b'"image-5"') == ["catalogue.sqlite3"]
    assert service.get(f"{HERE}/images/image-5").status_code == 404
    hits = service.post(f"{HERE}/search", json={"text": TEXT, "k": 24}).json()["hits"]
    assert len(hits) == 23
    assert (home / "jobs" / "1" / "retraining" / "manifest.jsonl").read_text().count("image-51") == 1


def test_others_write_while_the_files_of_jobs_are_gone_through(
    marked: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    _old_jobs(marked, _sha256(marked))
    other = open_catalogue(marked.settings.catalogue_url, Patience(lock_s=0.2))
    written: list[int] = []

    def reading(path: Path, pattern: Any) -> bool:
        with other.write() as session:
            written.append(add_job(session, "tidy", []).id)
        return names_one(path, pattern)

    names_one = jobs_erasure._names_one
    monkeypatch.setattr(jobs_erasure, "_names_one", reading)
    _erase(marked)
    other.close()
    assert len(written) >= 3


def test_the_answer_that_is_kept_for_a_key_has_no_id(service: TestClient, marked: Indexed) -> None:
    sent: dict[str, Any] = {
        "json": {"ids": ["image-5", "no-such-film", "image-6"]},
        "headers": {"Idempotency-Key": "once"},
    }
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


def test_an_erasure_that_was_stopped_goes_on(marked: Indexed, monkeypatch: pytest.MonkeyPatch) -> None:
    home, sha256 = marked.settings.home, _sha256(marked)
    _old_jobs(marked, sha256)
    (home / "jobs" / "1" / "retraining" / "weights.bin").unlink()
    engine = open_engine(marked.settings)
    with engine.home.catalogue.write() as session:
        last = add_job(session, "retrain", [COLLECTION]).id
    engine.close()
    (home / "jobs" / str(last) / "images").mkdir(parents=True)
    (home / "jobs" / str(last) / "images" / sha256).symlink_to("/nowhere")
    folders: list[str] = []

    def failing(folder: Path, *given: Any) -> bool:
        folders.append(folder.name)
        if len(folders) == 2:
            raise OSError(5, "Input/output error", str(folder))
        return erase_from_folder(folder, *given)

    erase_from_folder = jobs_erasure._erase_from_folder
    monkeypatch.setattr(jobs_erasure, "_erase_from_folder", failing)
    with pytest.raises(OSError, match="Input/output"):
        _erase(marked)
    assert _holding(home / "jobs", sha256.encode())
    assert len(list((home / "erasures").iterdir())) == 1
    told = examine_home(marked.settings)
    assert told.state == "doubtful"
    assert f"`recoquest erase {COLLECTION}` goes on with it" in told.found
    # People send what the doctor prints to others.
    assert "image-5" not in told.found
    # The catalogue does not know any more which file the image had.
    found = _erase(marked)
    assert found.ids == ("image-5",)
    assert folders == ["1", str(last), str(last)]
    for content in (sha256.encode(), WORD):
        assert _holding(home, content) == []
    assert list((home / "erasures").iterdir()) == []


@pytest.mark.parametrize("stage", ["erase_images", "erase_from_jobs"])
def test_an_erasure_that_was_stopped_anywhere_goes_on_without_the_ids(
    marked: Indexed, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    _old_jobs(marked, _sha256(marked))
    (marked.settings.home / "jobs" / "1" / "retraining" / "weights.bin").unlink()

    def failing(*_: Any, **__: Any) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="Input/output"):
        patched.setattr(erasures, stage, failing)
        _erase(marked)
    run = CliRunner().invoke(build(), ["erase", COLLECTION, "--home", str(marked.settings.home)])
    assert run.exit_code == 0, run.output
    assert f"{COLLECTION}: what was stopped is done; images erased: 1." in run.output
    assert _holding(marked.settings.home, WORD) == []
    assert list((marked.settings.home / "erasures").iterdir()) == []
    nothing = CliRunner().invoke(build(), ["erase", COLLECTION, "--home", str(marked.settings.home)])
    assert isinstance(nothing.exception, NoErasureError)
    assert "name the images" in str(nothing.exception)


def test_an_erasure_that_was_stopped_goes_on_with_that_of_another_image(
    marked: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="Input/output"):
        patched.setattr(erasures, "erase_images", failing)
        _erase(marked)
    assert set(_erase(marked, "image-6").ids) == {"image-5", "image-6"}
    assert _holding(marked.settings.home, WORD) == []


def test_a_collection_stays_until_its_erasure_is_whole(service: TestClient, marked: Indexed) -> None:
    _old_jobs(marked, _sha256(marked))
    lock = JobFolder.of(marked.settings, 1).lock()
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
    _old_jobs(marked, _sha256(marked))
    lock = JobFolder.of(marked.settings, 1).lock()
    assert lock is not None
    with pytest.raises(JobStateError, match="Job 1 is at work in its folder"):
        _erase(marked)
    os.close(lock)
    with pytest.raises(CollectionInUseError, match="were not erased whole"):
        _rename(marked)
    assert _erase(marked).ids == ("image-5",)
    _rename(marked)


def test_nothing_is_erased_while_a_backup_is_written(service: TestClient, marked: Indexed) -> None:
    engine = open_engine(marked.settings)
    with engine.home.store.keeping():
        answer = service.post(f"{HERE}/erase", json={"ids": ["image-5"]})
    engine.close()
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:recoquest:collection-in-use")
    assert answer.json()["detail"].startswith("A backup is being written")
    assert list((marked.settings.home / "erasures").iterdir()) == []


def test_one_erasure_at_a_time(marked: Indexed) -> None:
    with keep_others_away(marked.settings.home), pytest.raises(CollectionInUseError, match="Other images"):
        _erase(marked)
    assert _erase(marked).ids == ("image-5",)


def test_ids_that_no_database_holds_are_of_no_image(marked: Indexed) -> None:
    assert _erase(marked, "image-5", "\x00", "\udcff").ids == ("image-5",)
    assert list((marked.settings.home / "erasures").iterdir()) == []


def _rename(indexed: Indexed) -> None:
    engine = open_engine(indexed.settings)
    try:
        rename(
            indexed.settings,
            engine.home,
            COLLECTION,
            "renamed",
            Actor("command"),
            operation="rename",
            request=None,
        )
    finally:
        engine.close()


def _erase(indexed: Indexed, *ids: str) -> Erasure:
    engine = open_engine(indexed.settings)
    try:
        return erase(
            indexed.settings,
            engine.home,
            COLLECTION,
            ids or ("image-5",),
            Actor("command"),
            operation="erase",
        )
    finally:
        engine.close()


def test_the_trail_keeps_keyed_hashes_alone(marked: Indexed) -> None:
    application = create_app(marked.settings)
    with TestClient(application, "http://localhost", **AS_ADMIN_HERE) as service:
        service.post(f"{HERE}/search", json={"text": "a boat", "k": 24})
        # The event of the search may come after that of the erasure: it names the image all the same.
        service.post(f"{HERE}/erase", json={"ids": ["image-5"]}).raise_for_status()
    catalogue = open_catalogue(marked.settings.catalogue_url)
    with catalogue.read() as session:
        entries = list(all_events(session, Selection()))
        assert verify_trail(session).fault is None
    catalogue.close()
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
    engine = open_engine(marked.settings)
    write_backup(engine.home, tmp_path / "backup.tar", show_progress=False)
    engine.close()
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
    catalogue = open_catalogue(marked.settings.catalogue_url)
    with catalogue.write() as session:
        row = session.get(JobRow, add_job(session, "retrain", [COLLECTION]).id)
        assert row is not None
        row.state = "running"
    catalogue.close()
    answer = service.post(f"{HERE}/erase", json={"ids": ["image-5"]})
    assert answer.status_code == 409
    assert "Job 1 is at work" in answer.json()["detail"]
    assert service.get(f"{HERE}/images/image-5").status_code == 200


def test_a_file_that_another_image_shares_stays(with_a_copy: Indexed) -> None:
    run = CliRunner().invoke(
        build(), ["erase", "copied", "copy", "--home", str(with_a_copy.settings.home)], catch_exceptions=False
    )
    assert run.exit_code == 0, run.output
    assert "copied: copy is erased." in run.output
    assert "another image is the same file" in run.output


def test_the_command_erases_and_names_backups(
    marked: Indexed, tmp_path: Path, make_indexed: Callable[..., Indexed]
) -> None:
    home = str(marked.settings.home)
    runner = CliRunner()
    for name in ("first.tar", "second.tar"):
        assert runner.invoke(build(), ["backup", str(tmp_path / name), "--home", home]).exit_code == 0
    (tmp_path / "second.tar").unlink()
    run = runner.invoke(build(), ["erase", COLLECTION, "image-5", "gone", "--home", home])
    assert run.exit_code == 0, run.output
    assert f"{COLLECTION}: image-5 is erased." in run.output
    assert f"{COLLECTION}: gone was not in the collection." in run.output
    flat = " ".join(run.output.split())
    assert f"Still in the backup {tmp_path / 'first.tar'} of " in flat
    assert f"Still in the backup {tmp_path / 'second.tar'} (not there any more) of " in flat
    assert _holding(marked.settings.home, WORD) == []
    assert "are as they were written" in runner.invoke(build(), ["audit", "verify", "--home", home]).output


@pytest.mark.slow
def test_an_image_is_erased_on_postgresql(make_indexed: Callable[..., Indexed], postgresql_url: str) -> None:
    indexed = make_indexed(database_url=postgresql_url)
    with TestClient(
        create_app(indexed.settings), "http://localhost", client=("127.0.0.1", 5000), headers=AS_ADMIN
    ) as service:
        sha256 = service.get(f"{HERE}/images/image-5").json()["sha256"]
        answer = service.post(f"{HERE}/erase", json={"ids": ["image-5"]})
        assert answer.status_code == 200, answer.text
        assert service.get(f"{HERE}/images/image-5").status_code == 404
        assert len(service.post(f"{HERE}/search", json={"text": "a", "k": 30}).json()["hits"]) == 23
    assert _holding(indexed.settings.home, sha256.encode()) == []


def test_values_that_name_an_image_go_with_what_they_describe() -> None:
    names = {"a"}
    assert without({"groups": [{"ids": ["a", "b"]}, {"id": "a", "score": 1}], "n": 2}, names) == {
        "groups": [{"ids": ["b"]}],
        "n": 2,
    }
    assert without({"a": 1, "b": {"a": 2, "c": "images/ab"}}, names) == {"b": {"c": "images/ab"}}
    assert without(["x/a", "xa", 1, None, True], names) == ["xa", 1, None, True]
