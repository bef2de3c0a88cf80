"""Backups while others write, drop generations and remove encoders hold what was there at one moment."""

import hashlib
import io
import multiprocessing
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from PIL import Image
from sqlalchemy import Insert, Table, func, insert, select

from index.backup import restore, restore_backup, write, write_backup
from index.catalogue.collections import find_generation, require_collection
from index.catalogue.images import read_image
from index.catalogue.tables import EmbeddingRow, ImageRow
from index.engine import SearchEngine
from index.errors import BackupError
from index.files.bundles import changing_models, note_unused
from index.generations.activation import activate, generation_of
from index.generations.models import register_model
from index.generations.reindex import generation_for, reindex
from index.vectors.protocol import encode_vectors
from index.writes.deletion import collect_garbage
from index.writes.images import ImageWrite, PictureWrite
from index.writes.live import put_images
from tests.index.backup.dropping import drop
from tests.index.comparing import answers
from tests.index.homes import open_home
from tests.index.meanwhile import at_first
from tests.index.samples import ingest, unit_vectors
from training.common.manifest import Manifest, Record
from training.models.encoder import Encoder, load_encoder


@pytest.fixture
def swapped(
    engine: SearchEngine, encoder: Encoder, other_encoder: Encoder, manifest: Manifest
) -> SearchEngine:
    """Generation 1 is by the encoder, and retired; generation 2 is by the other."""
    ingest(engine, encoder, manifest)
    generation = generation_for(engine.home, "c", other_encoder)
    reindex(engine, generation, other_encoder, show_progress=False)
    _activate(engine, generation.id)
    return engine


def _activate(engine: SearchEngine, number: int) -> None:
    with engine.home.catalogue.write() as session:
        activate(session, generation_of(session, "c", number), texts=True)


def _retired(engine: SearchEngine) -> int:
    with engine.home.catalogue.read() as session:
        generation = find_generation(session, require_collection(session, "c").id, "retired")
    assert generation is not None
    return generation.id


@pytest.mark.slow
def test_a_generation_that_another_process_drops_meanwhile_is_in_the_backup(
    swapped: SearchEngine,
    catalogue_url: str,
    encoder: Encoder,
    other_encoder: Encoder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    again: SearchEngine,
) -> None:
    number, other = _retired(swapped), swapped.active("c").generation
    _activate(swapped, number)
    folder, before = swapped.active("c").bundle, answers(swapped, "c", encoder)
    _activate(swapped, other)
    expected = answers(swapped, "c", other_encoder)

    def drop_it() -> None:
        arguments_of = (tmp_path / "home", catalogue_url, number)
        process = multiprocessing.get_context("spawn").Process(target=drop, args=arguments_of)
        process.start()
        process.join(PATIENCE_SECONDS)
        process.kill()
        assert process.exitcode == 0
        collect_garbage(swapped.home)
        assert folder.is_dir()

    at_first(monkeypatch, write, "_add_files", drop_it)
    summary = write_backup(swapped.home, tmp_path / "backup.tar", show_progress=False)
    assert folder.name in summary.bundles
    # It is made up for as soon as the backup is done.
    assert [path.name for path in swapped.home.bundles_folder.iterdir()] == [swapped.active("c").bundle.name]
    restore_backup(again.home, tmp_path / "backup.tar", show_progress=False)
    assert answers(again, "c", other_encoder) == expected
    _activate(again, number)
    assert again.active("c").bundle.name == folder.name
    assert answers(again, "c", load_encoder(again.active("c").bundle, "cpu")) == before


def test_an_encoder_that_is_missing_is_named_for_what_it_is_needed(
    swapped: SearchEngine, tmp_path: Path
) -> None:
    number = _retired(swapped)
    _activate(swapped, number)
    active = swapped.active("c").bundle
    other = _retired(swapped)
    (before,) = (path for path in swapped.home.bundles_folder.iterdir() if path != active)
    made = rf"generation {other} of 'c' was made with it.*generations c --drop {other}"
    for folder, use in ((active, "'c' is searched with it"), (before, made)):
        folder.rename(tmp_path / "away")
        with pytest.raises(BackupError, match=f"{folder.name} is missing, and {use}"):
            write_backup(swapped.home, tmp_path / "backup.tar", show_progress=False)
        (tmp_path / "away").rename(folder)
    write_backup(swapped.home, tmp_path / "backup.tar", show_progress=False)


def test_an_encoder_that_is_damaged_is_not_written_into_a_backup(
    swapped: SearchEngine, tmp_path: Path
) -> None:
    (swapped.active("c").bundle / "model.safetensors").unlink()
    with pytest.raises(BackupError, match="is damaged, and 'c' is searched with it"):
        write_backup(swapped.home, tmp_path / "backup.tar", show_progress=False)
    assert not list(tmp_path.glob("*backup.tar*"))


def test_an_encoder_that_no_generation_needs_is_left_out_if_it_is_damaged(
    indexed: SearchEngine, other_encoder: Encoder, tmp_path: Path, again: SearchEngine
) -> None:
    assert other_encoder.info is not None
    unneeded = register_model(indexed.home, other_encoder.info.folder).folder
    (unneeded / "model.safetensors").unlink()
    summary = write_backup(indexed.home, tmp_path / "backup.tar", show_progress=False)
    assert summary.bundles == [indexed.active("c").bundle.name]
    assert restore_backup(again.home, tmp_path / "backup.tar", show_progress=False) == summary


def test_an_encoder_that_is_being_restored_does_not_go_for_an_old_note(
    indexed: SearchEngine,
    encoder: Encoder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    again: SearchEngine,
) -> None:
    (digest,) = write_backup(indexed.home, tmp_path / "backup.tar", show_progress=False).bundles
    with changing_models(again.home.bundles_folder):
        note_unused(again.home.bundles_folder, digest)
    at_first(monkeypatch, restore, "_take_catalogue", lambda: collect_garbage(again.home))
    restore_backup(again.home, tmp_path / "backup.tar", show_progress=False)
    collect_garbage(again.home)
    assert [path.name for path in again.home.bundles_folder.iterdir()] == [digest]
    assert answers(again, "c", encoder) == answers(indexed, "c", encoder)


LATEST = "latest"
DIM = 12
PATIENCE_SECONDS = 600


def _picture(number: int, name: str) -> bytes:
    """A file that no other number or name has."""
    content = io.BytesIO()
    size = (2, 2) if name == LATEST else (4, 1)
    Image.frombytes("L", size, number.to_bytes(4)).save(content, "PNG")
    return content.getvalue()


def _upload(number: int, name: str, vector: bytes) -> ImageWrite:
    content, text = _picture(number, name), f"number {number}"
    record = Record(id=name, image=f"{name}.png", split="train", texts=(text,), metadata={"number": number})
    picture = PictureWrite(hashlib.sha256(content).hexdigest(), "image/png", 4, 1, vector)
    return ImageWrite(record, picture, text_vectors={text: vector}, content=content)


def _write(home: Path, url: str, acknowledged: "Synchronized[int]", stop: Event) -> None:
    """Write image after image, and with each, in the same step, the one that is called the latest."""
    engine = open_home(home, url)
    active = engine.active("c")
    while not stop.is_set():
        number = acknowledged.value
        first, second = encode_vectors(unit_vectors(2, DIM, seed=number))
        uploads = [_upload(number, f"number-{number}", first), _upload(number, LATEST, second)]
        put_images(engine.home, active, uploads)
        acknowledged.value = number + 1
    engine.close()


@dataclass(frozen=True)
class _Writer:
    """The process that writes, and how many of its images it has been told are safe."""

    process: BaseProcess
    acknowledged: "Synchronized[int]"

    def wait_for(self, more: int) -> None:
        """Wait until so many more images are written."""
        expected, deadline = self.acknowledged.value + more, time.monotonic() + PATIENCE_SECONDS
        while self.acknowledged.value < expected:
            assert self.process.is_alive(), "the writer has ended"
            assert time.monotonic() < deadline, "the writer does not continue"
            time.sleep(0.01)


@contextmanager
def _writing(home: Path, url: str) -> Iterator[_Writer]:
    context = multiprocessing.get_context("spawn")
    acknowledged, stop = context.Value("q", 0), context.Event()
    process = context.Process(target=_write, args=(home, url, acknowledged, stop))
    process.start()
    try:
        yield _Writer(process, acknowledged)
        stop.set()
        process.join(PATIENCE_SECONDS)
        assert process.exitcode == 0
    finally:
        process.kill()
        process.join()


def _check(engine: SearchEngine, manifest: Manifest, count: int) -> None:
    """The collection holds what was indexed, and as many written images, each with its file and vector."""
    indexed = {record.id for record in manifest.records}
    with engine.home.catalogue.read() as session:
        ids = set(session.execute(select(ImageRow.external_id)).scalars())
        latest = read_image(session, "c", LATEST)
        vectors = session.execute(select(func.count()).select_from(EmbeddingRow)).scalar_one()
    assert ids == indexed | {LATEST} | {f"number-{number}" for number in range(count)}
    assert (latest.metadata["number"], latest.texts) == (count - 1, (f"number {count - 1}",))
    assert vectors == engine.active("c").count == len(ids)
    assert engine.image_path("c", LATEST).read_bytes() == _picture(count - 1, LATEST)
    for number in range(count):
        name = f"number-{number}"
        assert engine.image_path("c", name).read_bytes() == _picture(number, name)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_backup_between_the_writes_of_another_process_is_of_one_moment(
    engine: SearchEngine, catalogue_url: str, encoder: Encoder, manifest: Manifest, tmp_path: Path
) -> None:
    home, path = tmp_path / "home", tmp_path / "backup.tar"
    ingest(engine, encoder, manifest)
    with _writing(home, catalogue_url) as writer, pytest.MonkeyPatch.context() as patch:

        def insert_after_a_write(table: Table) -> Insert:
            writer.wait_for(1)
            return insert(table)

        # So that the writer is at work between any two tables that are copied, however slow it is.
        patch.setattr("index.backup.contents.insert", insert_after_a_write)
        writer.wait_for(10)
        before = writer.acknowledged.value
        summary = write_backup(engine.home, path, show_progress=False)
        after = writer.acknowledged.value
    assert summary.missing == []
    shutil.rmtree(home)
    again = open_home(tmp_path / "again")
    restore_backup(again.home, path, show_progress=False)
    # Neither the manifest's images nor the latest one are numbered.
    count = summary.collections["c"] - len(manifest.records) - 1
    assert before <= count < after
    _check(again, manifest, count)
    again.close()
