"""What an erasure finds beside the rows and files of an image: unfinished files, and other ids."""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from app.audit.trail import ImageChanges, open_trail
from index.audit.listing import Selection, all_events
from index.backup import write_backup
from index.catalogue.jobs import add_job
from index.files.image_store import ImageStore
from index.ingest import ingest_manifest
from tests.app.conftest import COLLECTION, Indexed
from tests.app.images.erasure.homes import WORD, erase_now, holding, sha256_of
from training.common.atomic import atomic_file
from training.common.manifest import read_manifest, write_manifest
from training.models.encoder import load_encoder


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
    for place in (f"originals/{sha256[:2]}/{sha256}", f"thumbnails/{sha256[:2]}/{sha256}.4.webp"):
        _leave_part(images / place, b"half of it")
    assert len(list(ImageStore(images).unfinished())) == 2
    found = erase_now(marked)
    assert (found.ids, found.unfinished) == (("image-5",), ())
    assert holding(home, sha256.encode()) == []


def test_what_is_being_written_is_named(marked: Indexed) -> None:
    sha256 = sha256_of(marked)
    path = marked.settings.home / "images" / "originals" / sha256[:2] / sha256
    with suppress(_KilledError), atomic_file(path) as file:
        found = erase_now(marked)
        assert [part.name for part in found.unfinished] == [Path(file.name).name]
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
    records = [
        replace(record, id=names.get(record.id, record.id)) for record in read_manifest(folder).records
    ]
    write_manifest(folder, records)
    with marked.engine() as engine:
        changes = ImageChanges(marked.settings, engine.home.catalogue, COLLECTION, "index")
        report = ingest_manifest(
            engine,
            COLLECTION,
            load_encoder(marked.bundle, "cpu"),
            read_manifest(folder),
            show_progress=False,
            record=changes.written,
            record_moved=changes.moved,
        )
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
    found = erase_now(marked, "picture-5")
    assert (found.ids, found.later) == (("picture-5",), ())
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
    found = erase_now(marked, "image-5")
    assert (found.ids, found.later, found.unknown) == (("photo-5",), ("photo-5",), ())
    assert json.loads(listed.read_text()) == ["image-6"]
    assert holding(marked.settings.home, WORD) == []
