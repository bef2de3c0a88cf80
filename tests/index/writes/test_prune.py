"""Images that a manifest no longer has: counted, and removed where that is asked for."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from index.engine import SearchEngine
from index.errors import IncompleteGenerationError, UnknownImageError
from tests.index.samples import ingest, make_bundle, make_manifest, make_picture, make_records
from training.common.errors import DataError
from training.common.manifest import Manifest, read_manifest
from training.common.rejections import Rejections
from training.models.encoder import Encoder, load_encoder


def _shorter(manifest: Manifest, count: int) -> Manifest:
    return make_manifest(manifest.folder, manifest.records[:count])


def test_what_the_manifest_no_longer_has_is_counted_and_goes_with_its_files_where_that_is_asked_for(
    indexed: SearchEngine, encoder: Encoder, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("index.catalogue.lookup.AT_ONCE", 2)
    assert ingest(indexed, encoder, manifest).absent == ()
    gone = {name: indexed.image_path("c", name) for name in (f"image-{n:03d}" for n in range(15, 20))}
    shorter = _shorter(manifest, 15)
    report = ingest(indexed, encoder, shorter)
    assert (report.absent, report.pruned, report.unchanged) == (tuple(gone), 0, 15)
    assert all(indexed.image("c", name).id == name for name in gone)
    report = ingest(indexed, encoder, shorter, prune=True)
    assert (report.pruned, report.unchanged, len(report.absent)) == (5, 15, 5)
    for name, path in gone.items():
        with pytest.raises(UnknownImageError):
            indexed.image("c", name)
        assert not path.exists()
    assert indexed.collection("c").count == 15
    again = ingest(indexed, encoder, shorter, prune=True)
    assert (again.pruned, again.absent) == (0, ())


def test_a_stopped_pruning_goes_on(
    engine: SearchEngine, encoder: Encoder, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("index.catalogue.lookup.AT_ONCE", 2)
    ingest(engine, encoder, manifest)
    shorter = _shorter(manifest, 15)
    with monkeypatch.context() as stopped:

        def stop(seconds: float) -> None:
            raise KeyboardInterrupt

        stopped.setattr("index.ingest.sleep", stop)
        with pytest.raises(KeyboardInterrupt):
            ingest(engine, encoder, shorter, prune=True)
    assert engine.collection("c").count == 18
    assert ingest(engine, encoder, shorter, prune=True).pruned == 3
    assert engine.collection("c").count == 15


def test_images_of_other_splits_and_unusable_lines_stay(
    indexed: SearchEngine, encoder: Encoder, manifest: Manifest
) -> None:
    (manifest.folder / manifest.records[4].image).unlink()
    lines = [json.loads(line) for line in (manifest.folder / "manifest.jsonl").read_text().splitlines()]
    lines[5]["split"] = "no split"
    del lines[6]
    (manifest.folder / "manifest.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    read = read_manifest(manifest.folder, max_rejected=0.2).split("train")
    report = ingest(indexed, encoder, read, prune=True)
    assert (report.absent, report.pruned) == (("image-006",), 1)
    assert (report.found, report.refused_lines) == (19, 2)
    assert report.outdated == ("image-004", "image-005")
    assert report.found == report.taken + report.refused_lines + len(report.rejections) + report.left_out
    assert indexed.collection("c").count == 19


def test_nothing_is_removed_by_a_manifest_that_cannot_tell(
    indexed: SearchEngine, encoder: Encoder, manifest: Manifest, tmp_path: Path
) -> None:
    other = [replace(record, id=f"other-{record.id}") for record in make_records(4)]
    for number, record in enumerate(other, 100):
        make_picture(tmp_path / "other" / record.image, number)
    with pytest.raises(DataError, match="None of the 20 images of 'c' is in the manifest"):
        ingest(indexed, encoder, make_manifest(tmp_path / "other", other), prune=True)
    with (manifest.folder / "manifest.jsonl").open("a") as file:
        file.write('{"id": "image-0')
    with pytest.raises(DataError, match=r"Lines of the manifest in .* whose id cannot be read: 1\."):
        ingest(indexed, encoder, read_manifest(manifest.folder, max_rejected=0.1), prune=True)
    assert indexed.collection("c").count == 20


def test_another_bundle_takes_over_without_the_images_that_go(
    indexed: SearchEngine, manifest: Manifest, tmp_path: Path
) -> None:
    other = load_encoder(make_bundle(tmp_path / "other", seed=5).folder, "cpu")
    shorter = _shorter(manifest, 12)
    with pytest.raises(IncompleteGenerationError) as refused:
        ingest(indexed, other, shorter)
    assert refused.value.__notes__ == ["8 images of it are not in the manifest: --prune removes them."]
    report = ingest(indexed, other, shorter, prune=True)
    assert report.pruned == 8
    assert report.took_over is not None
    assert indexed.collection("c").count == 12


def test_texts_that_the_encoder_cuts_are_counted(
    engine: SearchEngine, encoder: Encoder, manifest: Manifest
) -> None:
    long = " ".join(["effusion"] * 200)
    records = [
        replace(record, texts=(long, f"{long} {number}", "short") if number < 3 else ("short",))
        for number, record in enumerate(manifest.records)
    ]
    # The same text of three images is one text.
    assert ingest(engine, encoder, make_manifest(manifest.folder, records)).truncated == 4
    assert ingest(engine, encoder, manifest).truncated == 0


def test_images_that_cannot_be_used_any_more_are_named(
    engine: SearchEngine, encoder: Encoder, manifest: Manifest
) -> None:
    assert ingest(engine, encoder, manifest).outdated == ()
    before = engine.image("c", "image-007").sha256
    (manifest.folder / manifest.records[7].image).write_bytes(b"no image")
    report = ingest(engine, encoder, replace(manifest, rejections=Rejections(20, 0.1)))
    assert report.outdated == ("image-007",)
    assert engine.image("c", "image-007").sha256 == before
