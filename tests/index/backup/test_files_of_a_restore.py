"""Files that a restore puts into the store stay if it ends well, and go if it does not."""

import itertools
from pathlib import Path

import pytest
from sqlalchemy import select

from index.backup import restore, restore_backup, write_backup
from index.catalogue.tables import OrphanRow
from index.engine import SearchEngine
from index.errors import StoreError
from index.files.image_store import ImageStore
from index.home import Home
from index.ingest import ingest_manifest
from index.writes.deletion import collect_garbage
from tests.index.homes import open_home
from training.common.manifest import Manifest
from training.models.encoder import Encoder


@pytest.fixture
def backup(encoder: Encoder, manifest: Manifest, tmp_path: Path) -> Path:
    engine = open_home(tmp_path / "home")
    ingest_manifest(engine, "c", encoder, manifest, show_progress=False)
    write_backup(engine.home, tmp_path / "backup.tar", show_progress=False)
    engine.close()
    return tmp_path / "backup.tar"


def _files(home: Path) -> set[str]:
    return {path.name for path in (home / "images" / "originals").glob("*/*")}


def _loose(engine: SearchEngine) -> set[str]:
    with engine.home.catalogue.read() as session:
        return set(session.execute(select(OrphanRow.sha256)).scalars())


def test_what_a_restore_that_failed_has_put_into_the_store_is_removed_later(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore, "_NOTED_AT_ONCE", 4)
    again, put, puts = open_home(tmp_path / "again"), ImageStore.put, itertools.count()

    def put_some(store: ImageStore, content: bytes) -> str:
        if next(puts) >= 7:
            raise StoreError("the disk does not take it")
        return put(store, content)

    with monkeypatch.context() as patched:
        patched.setattr(ImageStore, "put", put_some)
        with pytest.raises(StoreError):
            restore_backup(again.home, backup, show_progress=False)
    left = _files(tmp_path / "again")
    assert len(left) == 7
    assert left <= _loose(again)
    collect_garbage(again.home)
    assert (_files(tmp_path / "again"), _loose(again)) == (set(), set())
    assert restore_backup(again.home, backup, show_progress=False).images == 20
    again.close()


def test_nobody_removes_the_files_of_a_restore_before_images_use_them(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again, take = open_home(tmp_path / "again"), restore._take_catalogue

    def remove_before(home: Home, copy: Path, show_progress: bool) -> None:
        collect_garbage(home)
        take(home, copy, show_progress)

    monkeypatch.setattr(restore, "_take_catalogue", remove_before)
    assert restore_backup(again.home, backup, show_progress=False).images == 20
    assert len(_files(tmp_path / "again")) == 20
    assert _loose(again) == set()
    again.close()
