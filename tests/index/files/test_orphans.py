"""Stored files are known to the catalogue, even if their writer is killed."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from index.catalogue.tables import OrphanRow
from index.engine import SearchEngine
from index.errors import ConditionError
from index.files import orphans
from index.files.image_store import ImageStore
from index.files.orphans import begin_put, keep_files
from index.writes.deletion import collect_garbage
from index.writes.live import put_images, remove_images
from tests.faults.made import begin_world, made_record, made_upload
from tests.index.homes import in_write, scalars
from tests.index.samples import ingest, make_picture
from training.common.manifest import Manifest
from training.common.rejections import Rejections
from training.models.encoder import Encoder


class _KilledError(BaseException):
    pass


def _loose(engine: SearchEngine) -> set[str]:
    return set(scalars(engine, select(OrphanRow.sha256)))


def _files(engine: SearchEngine) -> list[Path]:
    return list((engine.home.store._folder / "originals").glob("*/*"))


def test_no_file_is_kept_before_it_is_noted(
    engine: SearchEngine, encoder: Encoder, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, noted = ImageStore.put, []

    def look_and_put(store: ImageStore, content: bytes) -> str:
        before = _loose(engine)
        digest = put(store, content)
        noted.append(digest in before)
        return digest

    monkeypatch.setattr(ImageStore, "put", look_and_put)
    ingest(engine, encoder, manifest)
    assert noted == [True] * 20
    assert _loose(engine) == set()
    # One that was lost comes back the same way, and those that are there are left alone.
    path = engine.image_path("c", "image-002")
    path.unlink()
    ingest(engine, encoder, manifest)
    assert path.is_file()
    assert noted == [True] * 21
    assert _loose(engine) == set()


def test_what_a_killed_run_kept_and_did_not_write_is_removed(
    engine: SearchEngine, encoder: Encoder, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_: object) -> None:
        raise _KilledError

    monkeypatch.setattr("index.ingest.write_images", kill)
    with pytest.raises(_KilledError):
        ingest(engine, encoder, manifest)
    assert _files(engine)
    collect_garbage(engine.home)
    assert _files(engine) == []
    # The run might yet write them, for all that others know.
    assert _loose(engine)
    monkeypatch.setattr(orphans, "_LONGEST_PUT_NS", 0)
    collect_garbage(engine.home)
    assert _loose(engine) == set()


def test_an_image_whose_file_changes_before_it_is_kept_is_left_out(
    engine: SearchEngine,
    encoder: Encoder,
    manifest: Manifest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def change_and_note(session: Session, digests: Collection[str]) -> int:
        # In one step, as another thread may be reading it.
        changed = manifest.image_path(manifest.records[3])
        other = tmp_path / f"other{changed.suffix}"
        make_picture(other, seed=77)
        other.replace(changed)
        return begin_put(session, digests)

    monkeypatch.setattr("index.ingest.begin_put", change_and_note)
    rejections = Rejections(20, 0.1)
    report = ingest(engine, encoder, replace(manifest, rejections=rejections))
    assert report.added == 19
    assert [item.reason.split(": ")[1] for item in report.rejections.items] == [
        "The file was changed while it was being indexed."
    ]
    assert len(_files(engine)) == 19


def test_a_file_that_others_remove_meanwhile_is_known_while_somebody_may_write_it(tmp_path: Path) -> None:
    engine = begin_world(tmp_path / "home", "c")
    active, store = engine.active("c"), engine.home.store
    ours = made_upload(made_record("ours", 1), "the same")
    digest = str(ours.sha256)
    begun = in_write(engine, begin_put, [digest])
    # Between any two steps of the write, somebody else uses the file and takes it away.
    put_images(engine.home, active, [made_upload(made_record("theirs", 1), "the same")])
    remove_images(engine.home, "c", ["theirs"])
    store.put(ours.content)
    put_images(engine.home, active, [made_upload(made_record("theirs", 2), "the same")])
    remove_images(engine.home, "c", ["theirs"])
    assert _files(engine) == []

    # Killed when the file is back, before the commit.
    with pytest.raises(_KilledError), engine.home.catalogue.write() as session:
        keep_files(session, store, [digest], lambda _: ours.content, [begun])
        raise _KilledError
    assert len(_files(engine)) == 1
    collect_garbage(engine.home)
    assert _files(engine) == []
    engine.close()


def test_a_write_that_is_refused_leaves_no_file_that_others_have_removed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = begin_world(tmp_path / "home", "c")
    active, put_all = engine.active("c"), ImageStore.put_all
    theirs = [made_upload(made_record("theirs", 1), "the same")]

    def use_and_remove(store: ImageStore, contents: Collection[bytes]) -> None:
        monkeypatch.setattr(ImageStore, "put_all", put_all)
        put_images(engine.home, active, theirs)
        remove_images(engine.home, "c", ["theirs"])
        store.put_all(contents)

    def refuse(*_: object) -> None:
        raise ConditionError("refused", None)

    monkeypatch.setattr(ImageStore, "put_all", use_and_remove)
    with pytest.raises(ConditionError):
        put_images(engine.home, active, [made_upload(made_record("ours", 1), "the same")], refuse)
    assert _files(engine) == []
    assert _loose(engine) == set()
    engine.close()
