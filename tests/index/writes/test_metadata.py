"""Indexed files lose position, names and comments, and are known again when they come again."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from index.engine import SearchEngine
from index.ingest import IngestReport
from tests.index.samples import ingest, make_manifest, make_records
from tests.training.imaging.metadata_files import FILES, SECRET, jpeg
from training.common.manifest import Manifest
from training.imaging.images import decode_image
from training.models.encoder import Encoder


@pytest.fixture
def photographs(tmp_path: Path) -> Manifest:
    """Files of every format, full of metadata."""
    folder = tmp_path / "photographs"
    folder.mkdir()
    records = []
    for record, (name, make) in zip(make_records(len(FILES)), FILES.items(), strict=True):
        (folder / name).write_bytes(make())
        records.append(replace(record, id=name, image=name))
    return make_manifest(folder, records)


def counts(report: IngestReport) -> tuple[int, int, int, int]:
    assert not len(report.rejections)
    return report.added, report.updated, report.unchanged, report.embedded


def test_stored_files_show_the_same_say_nothing_and_are_known_again(
    engine: SearchEngine, encoder: Encoder, photographs: Manifest
) -> None:
    assert counts(ingest(engine, encoder, photographs)) == (len(FILES), 0, 0, len(FILES))
    for record in photographs.records:
        stored = engine.image_path("c", record.id)
        assert SECRET not in stored.read_bytes()
        assert stored.name == engine.image("c", record.id).sha256
        source = photographs.image_path(record)
        assert decode_image(stored).tobytes() == decode_image(source).tobytes()
    # Also one that the disk has lost.
    stored = engine.image_path("c", "jpeg")
    content = stored.read_bytes()
    stored.unlink()
    assert counts(ingest(engine, encoder, photographs)) == (0, 0, len(FILES), 0)
    assert stored.read_bytes() == content
    # Another picture is another one, although its metadata is the same.
    record = next(record for record in photographs.records if record.id == "jpeg")
    photographs.image_path(record).write_bytes(jpeg(progressive=True, mode="L"))
    assert counts(ingest(engine, encoder, photographs)) == (0, 1, len(FILES) - 1, 1)


def test_a_setting_keeps_files_whole_which_lose_it_later_without_being_embedded_again(
    engine: SearchEngine, encoder: Encoder, photographs: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a home of an older version is indexed again, and back again."""
    assert any(record.texts for record in photographs.records)
    kept = partial(ingest, engine, encoder, photographs, keep_metadata=True)
    assert counts(kept()) == (len(FILES), 0, 0, len(FILES))
    assert counts(kept()) == (0, 0, len(FILES), 0)
    # Neither images nor texts go through the encoder again.
    monkeypatch.delattr(Encoder, "embed_texts")
    vectors = {record.id: engine.image("c", record.id) for record in photographs.records}
    assert counts(ingest(engine, encoder, photographs)) == (0, len(FILES), 0, 0)
    assert all(SECRET not in path.read_bytes() for path in engine.home.store.originals())
    assert len(list(engine.home.store.originals())) == len(FILES)
    assert {key: image.texts for key, image in vectors.items()} == {
        record.id: engine.image("c", record.id).texts for record in photographs.records
    }
    assert counts(ingest(engine, encoder, photographs)) == (0, 0, len(FILES), 0)
    assert counts(kept()) == (0, len(FILES), 0, 0)
    for record in photographs.records:
        assert engine.image_path("c", record.id).read_bytes() == photographs.image_path(record).read_bytes()


def test_another_bundle_takes_over_files_that_were_stored_whole(
    engine: SearchEngine, encoder: Encoder, other_encoder: Encoder, photographs: Manifest
) -> None:
    """As when a home of an older version gets a new model: no picture has changed, only its metadata."""
    ingest(engine, encoder, photographs, keep_metadata=True)
    report = ingest(engine, other_encoder, photographs)
    assert counts(report) == (0, len(FILES), 0, len(FILES))
    assert report.took_over is not None
    assert engine.active("c").generation == report.took_over.id
    assert all(SECRET not in path.read_bytes() for path in engine.home.store.originals())
    assert len(list(engine.home.store.originals())) == len(FILES)
    assert counts(ingest(engine, other_encoder, photographs)) == (0, 0, len(FILES), 0)


def test_a_file_that_cannot_be_followed_is_left_out_with_a_reason(
    engine: SearchEngine, encoder: Encoder, photographs: Manifest
) -> None:
    record = next(record for record in photographs.records if record.id == "png-deep")
    path = photographs.image_path(record)
    path.write_bytes(path.read_bytes().replace(b"prVt", b"PrVt"))
    assert decode_image(path).size == (24, 40)
    (refused,) = ingest(engine, encoder, photographs).rejections.items
    assert "kind PrVt, so that its metadata cannot be removed" in refused.reason
