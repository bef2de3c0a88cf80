"""Erasures that are stopped go on, and what would cross them is refused."""

import os
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.health.doctor import examine_home
from app.images import deletion
from app.jobs.folder import JobFolder
from index.catalogue.jobs import add_job
from index.erasure import keep_others_away
from index.errors import CollectionInUseError, JobStateError, NoErasureError
from tests.app.conftest import COLLECTION, Indexed
from tests.app.images.erasure.homes import (
    HERE,
    WORD,
    erase_now,
    holding,
    rename_now,
    sha256_of,
    write_old_jobs,
)


def test_an_erasure_that_was_stopped_goes_on(marked: Indexed, monkeypatch: pytest.MonkeyPatch) -> None:
    home, sha256 = marked.settings.home, sha256_of(marked)
    write_old_jobs(marked, sha256)
    (home / "jobs" / "1" / "retraining" / "weights.bin").unlink()
    with marked.write() as session:
        last = add_job(session, "retrain", [COLLECTION]).id
    (home / "jobs" / str(last) / "images").mkdir(parents=True)
    (home / "jobs" / str(last) / "images" / sha256).symlink_to("/nowhere")
    folders: list[str] = []

    def failing(folder: Path, *given: Any) -> bool:
        folders.append(folder.name)
        if len(folders) == 2:
            raise OSError(5, "Input/output error", str(folder))
        return erase_from_folder(folder, *given)

    erase_from_folder = deletion._erase_from_folder
    monkeypatch.setattr(deletion, "_erase_from_folder", failing)
    with pytest.raises(OSError, match="Input/output"):
        erase_now(marked)
    assert holding(home / "jobs", sha256.encode())
    assert len(list((home / "erasures").iterdir())) == 1
    told = examine_home(marked.settings)
    assert told.state == "doubtful"
    assert f"`recoquest erase {COLLECTION}` goes on with it" in told.found
    # People send what the doctor prints to others.
    assert "image-5" not in told.found
    # The catalogue does not know any more which file the image had.
    found = erase_now(marked)
    assert found.ids == ("image-5",)
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
    assert f"{COLLECTION}: what was stopped is done; images erased: 1." in told
    assert holding(marked.settings.home, WORD) == []
    assert list((marked.settings.home / "erasures").iterdir()) == []
    nothing = marked.run("erase", COLLECTION, code=1)
    assert isinstance(nothing.exception, NoErasureError)
    assert "name the images" in str(nothing.exception)


def test_a_collection_stays_until_its_erasure_is_whole(service: TestClient, marked: Indexed) -> None:
    write_old_jobs(marked, sha256_of(marked))
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
    write_old_jobs(marked, sha256_of(marked))
    lock = JobFolder.of(marked.settings, 1).lock()
    assert lock is not None
    with pytest.raises(JobStateError, match="Job 1 is at work in its folder"):
        erase_now(marked)
    os.close(lock)
    with pytest.raises(CollectionInUseError, match="were not erased whole"):
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
