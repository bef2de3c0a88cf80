"""A backup that is written while another process goes on writing holds what was there at one moment."""

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
from sqlalchemy import func, select

from index.backup import contents, restore_backup, write_backup
from index.catalogue.images import read_image
from index.catalogue.tables import EmbeddingRow, ImageRow
from index.engine import SearchEngine
from index.vectors.protocol import encode_vectors
from index.writes.images import ImageWrite, PictureWrite
from index.writes.intake import record_digest
from index.writes.live import Upload, put_images
from tests.index.homes import open_home
from tests.index.samples import ingest, unit_vectors
from training.common.manifest import Manifest, Record
from training.models.encoder import Encoder

LATEST = "latest"
DIM = 12
PATIENCE_SECONDS = 600


def _picture(number: int, name: str) -> bytes:
    """A file that no other number or name has."""
    content = io.BytesIO()
    size = (2, 2) if name == LATEST else (4, 1)
    Image.frombytes("L", size, number.to_bytes(4)).save(content, "PNG")
    return content.getvalue()


def _upload(number: int, name: str, vector: bytes) -> Upload:
    content, text = _picture(number, name), f"number {number}"
    record = Record(id=name, image=f"{name}.png", split="train", texts=(text,), metadata={"number": number})
    picture = PictureWrite(hashlib.sha256(content).hexdigest(), "image/png", 4, 1, vector)
    write = ImageWrite(record, record_digest(record), picture, text_vectors={text: vector})
    return Upload(write, content)


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
        wanted, deadline = self.acknowledged.value + more, time.monotonic() + PATIENCE_SECONDS
        while self.acknowledged.value < wanted:
            assert self.process.is_alive(), "the writer has ended"
            assert time.monotonic() < deadline, "the writer does not go on"
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
    insert = contents._insert
    with _writing(home, catalogue_url) as writer, pytest.MonkeyPatch.context() as patch:

        def insert_after_a_write(*arguments: object) -> None:
            writer.wait_for(1)
            insert(*arguments)  # type: ignore[arg-type]

        # So that the writer is at work between any two tables that are copied, however slow it is.
        patch.setattr(contents, "_insert", insert_after_a_write)
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
