"""Erasure: no byte of an image is left in the home, and what still holds it is named."""

import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.images import deletion
from app.images.deletion import without
from app.radiology.jobs import study_sync
from index.audit.listing import Selection, all_events
from index.audit.verify import verify_trail
from index.backup import write_backup
from index.catalogue import open_catalogue
from index.catalogue.connections import Patience
from index.catalogue.jobs import add_job
from index.catalogue.tables import JobRow
from tests.app.commands import said
from tests.app.conftest import COLLECTION, Indexed, serve
from tests.app.images.erasure.homes import (
    HERE,
    TEXT,
    WORD,
    erase_now,
    holding,
    sha256_of,
    vector_of,
    write_old_jobs,
)


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
    told = answer.json()
    assert told["erased"] == ["image-5"]
    assert told["judgements"] == 1
    assert told["shared_files"] == []
    assert [Path(backup["path"]) for backup in told["backups"]] == [tmp_path / "backup.tar"]
    assert told["backups"][0]["is_there"] is True
    assert [Path(path).name for path in told["left_files"]] == ["weights.bin"]
    assert told["log_is_empty"] is True
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
    studies = {state: f"1.2.826.0.1.{place}" for place, state in enumerate(("done", "failed", "queued"))}
    with marked.write() as session:
        for state, study in studies.items():
            job = add_job(session, "pacs_sync", study_sync(COLLECTION, study))
            row = session.get(JobRow, job.id)
            assert row is not None
            row.state = state
            folder = marked.settings.home / "jobs" / str(job.id)
            folder.mkdir(parents=True)
            (folder / "environment.json").write_text(json.dumps({"arguments": row.arguments, "kind": "a"}))
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
        row = session.get(JobRow, add_job(session, "retrain", [COLLECTION]).id)
        assert row is not None
        row.state = "running"
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
    told = said(marked.run("erase", COLLECTION, "image-5", "gone"))
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
    assert without({"groups": [{"ids": ["a", "b"]}, {"id": "a", "score": 1}], "n": 2}, names) == {
        "groups": [{"ids": ["b"]}],
        "n": 2,
    }
    assert without({"a": 1, "b": {"a": 2, "c": "images/ab"}}, names) == {"b": {"c": "images/ab"}}
    assert without(["x/a", "xa", 1, None, True], names) == ["xa", 1, None, True]
