"""Writes over HTTP where the disk is full or does not take a file: nothing is left behind."""

import sqlite3

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from app.engine import open_engine
from index.catalogue.tables import ImageRow, OrphanRow, TextEmbeddingRow
from index.errors import DiskFullError, StoreWriteError
from index.files.image_store import ImageStore
from tests.app.conftest import Indexed
from tests.app.images.test_writes import (
    IMAGES,
    files_of,
    home,
    local,
    nearest,
    picture,
    post,
    problem,
    put,
    serve,
)

__all__ = ["home", "local"]


def test_a_full_disk_refuses_writes_and_leaves_searches(
    local: TestClient, home: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files_of(home)

    def full(store: ImageStore, content: bytes) -> str:
        raise DiskFullError("full")

    with monkeypatch.context() as patched:
        patched.setattr(ImageStore, "put", full)
        document = problem(put(local, "late", picture(40)), 507, "disk-full")
        assert "nothing was written" in document["detail"]
        assert nearest(local, picture(40))["id"] != "late"
    assert files_of(home) == before
    assert _loose(home) == []
    assert put(local, "late", picture(40)).status_code == 201


def test_a_disk_that_does_not_take_a_file_is_told_of_in_true_words(
    local: TestClient, home: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files_of(home)

    def refuse(store: ImageStore, content: bytes) -> str:
        raise StoreWriteError("Permission denied")

    monkeypatch.setattr(ImageStore, "put", refuse)
    document = problem(put(local, "refused", picture(43)), 500, "file-not-written")
    assert "does not take a file" in document["detail"]
    assert files_of(home) == before
    assert _loose(home) == []
    assert local.get(f"{IMAGES}/refused").status_code == 404


def test_a_failed_batch_leaves_nothing(
    local: TestClient, home: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files_of(home)

    def fail(*_: object) -> None:
        raise DiskFullError("full")

    # The files are in the store by then.
    monkeypatch.setattr("index.writes.live.keep_files", fail)
    problem(post(local, [{"id": "l1"}, {"id": "l2"}], [picture(41), picture(42)]), 507, "disk-full")
    assert files_of(home) == before
    assert _loose(home) == []
    assert local.get(f"{IMAGES}/l1").status_code == 404


def test_a_catalogue_that_does_not_take_a_write_is_not_said_to_be_unreadable(own: Indexed) -> None:
    with serve(own) as service:
        with sqlite3.connect(own.settings.home / "catalogue.sqlite3") as other:
            other.execute("DROP TABLE loose_files")
        document = problem(put(service, "late", picture(44)), 503, "catalogue-unavailable")
        assert document["title"] == "The catalogue cannot be written"
        assert "read" not in document["detail"]
        assert nearest(service, picture(44))["id"] != "late"


def test_a_catalogue_that_cannot_be_read_is_not_said_to_be_unwritable(own: Indexed) -> None:
    with serve(own) as service:
        with sqlite3.connect(own.settings.home / "catalogue.sqlite3") as other:
            other.execute("ALTER TABLE images RENAME TO lost")
        document = problem(service.get(f"{IMAGES}/image-1"), 503, "catalogue-unavailable")
        assert document["title"] == "The catalogue cannot be read"


def _loose(home: Indexed) -> list[str]:
    engine = open_engine(home.settings)
    with engine.home.catalogue.read() as session:
        found = list(session.execute(select(OrphanRow.sha256)).scalars())
        # Every text of every image has its vector.
        assert session.execute(select(TextEmbeddingRow.text_id)).first() is not None
        assert session.execute(select(ImageRow.id)).first() is not None
    engine.close()
    return found
