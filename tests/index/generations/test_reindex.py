"""Generations that are embedded next to the active one, compared with it, and replace it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import delete, select

from index.catalogue.collections import Generation
from index.catalogue.tables import EmbeddingRow, TextEmbeddingRow
from index.engine import SearchEngine
from index.errors import GenerationError, IncompleteGenerationError, UnknownCollectionError
from index.files.bundles import install_bundle, registered_bundle
from index.generations.activation import activate, drop_generation, generation_of
from index.generations.comparison import compare
from index.generations.models import list_generations
from index.generations.reindex import generation_for, reindex, swap
from index.search.request import SearchRequest
from index.vectors.protocol import Vectors
from index.writes.deletion import delete_images
from index.writes.live import remove_images
from index.writes.vectors import Embedder
from tests.index.homes import execute, in_read, in_write, open_home
from tests.index.killing import kill_after
from tests.index.samples import ingest, make_manifest, make_picture, make_records
from training.common.errors import BundleError
from training.common.manifest import Manifest
from training.imaging.images import decode_image
from training.models.bundle import BundleInfo
from training.models.encoder import Encoder
from training.models.image_input import Pixels
from training.models.text_input import TextEmbeddings

_PROGRAM = """
import sys
from pathlib import Path
from index.generations.reindex import generation_for, reindex
from tests.index.homes import open_home
from tests.index.killing import tell_batches
from training.models.encoder import load_encoder

engine = open_home(Path(sys.argv[1]))
encoder = tell_batches(load_encoder(Path(sys.argv[2]), "cpu"))
reindex(engine, generation_for(engine.home, "c", encoder), encoder, batch_size=4, show_progress=False)
"""


class _Watched:
    """An encoder that does something while a batch is in it, and gets the number of the batch."""

    min_image_side = None

    def __init__(self, encoder: Encoder, act: Callable[[int], object], *, of_texts: bool = False) -> None:
        self.info, self.modalities = encoder.info, encoder.modalities
        self.prepare_image = encoder.prepare_image
        self._encoder, self._act, self._of_texts, self._batches = encoder, act, of_texts, 0

    def embed_images(self, images: Pixels) -> Vectors:
        if not self._of_texts:
            self._batches += 1
            self._act(self._batches)
        return self._encoder.embed_images(images)

    def embed_texts(self, texts: Sequence[str]) -> TextEmbeddings:
        if self._of_texts:
            self._act(0)
        return self._encoder.embed_texts(texts)


def _build(engine: SearchEngine, encoder: Encoder) -> Generation:
    generation = generation_for(engine.home, "c", encoder)
    reindex(engine, generation, encoder, batch_size=6, show_progress=False)
    return generation


def _vectors(engine: SearchEngine, generation: Generation) -> dict[int, bytes]:
    with engine.home.catalogue.read() as session:
        query = select(EmbeddingRow.image_id, EmbeddingRow.vector).where(
            EmbeddingRow.generation_id == generation.id
        )
        return {row.image_id: row.vector for row in session.execute(query)}


def _count_texts(engine: SearchEngine, generation: Generation) -> int:
    with engine.home.catalogue.read() as session:
        query = select(TextEmbeddingRow.text_id).where(TextEmbeddingRow.generation_id == generation.id)
        return len(session.execute(query).all())


def _active(engine: SearchEngine) -> Generation:
    return in_read(engine, generation_of, "c", engine.active("c").generation)


def test_every_image_and_text_is_embedded_beside_the_active_generation(
    indexed: SearchEngine, other_encoder: Encoder, manifest: Manifest
) -> None:
    first = indexed.active("c")
    # The manifest's own files are of no use to it.
    for record in manifest.records:
        manifest.image_path(record).unlink()
    new = _build(indexed, other_encoder)
    assert indexed.active("c") == first
    assert len(_vectors(indexed, new)) == 20
    assert _count_texts(indexed, new) == sum(len(record.texts) for record in manifest.records)
    swap(indexed, new, other_encoder, preload_s=0, show_progress=False)
    second = indexed.active("c")
    assert second.generation == new.id != first.generation
    path = indexed.image_path("c", "image-005")
    direct = other_encoder.embed_images(other_encoder.prepare_image(decode_image(path))[None])[0]
    np.testing.assert_allclose(indexed.vector_of(second, "image-005"), direct, atol=1e-3)


def test_images_written_replaced_and_removed_meanwhile_are_followed(
    engine: SearchEngine, encoder: Encoder, other_encoder: Encoder, manifest: Manifest, tmp_path: Path
) -> None:
    ingest(engine, encoder, replace(manifest, records=manifest.records[:15]))
    generation = generation_for(engine.home, "c", other_encoder)
    gone = ("image-007", "image-001", "image-014")

    def meddle(batch: int) -> None:
        if batch == 2:
            with engine.home.catalogue.write() as session:
                # One in this batch, one embedded already, one still to come.
                delete_images(session, "c", gone)
            make_picture(manifest.image_path(manifest.records[2]), seed=500)
            make_picture(manifest.image_path(manifest.records[8]), seed=501)
            kept = [record for record in manifest.records if record.id not in gone]
            ingest(engine, encoder, replace(manifest, records=tuple(kept)))

    reindex(engine, generation, _Watched(other_encoder, meddle), batch_size=6, show_progress=False)
    assert len(_vectors(engine, generation)) == 17
    in_write(engine, activate, generation, texts=True)
    active = engine.active("c")
    for name in ("image-002", "image-008", "image-019"):
        path = engine.image_path("c", name)
        direct = other_encoder.embed_images(other_encoder.prepare_image(decode_image(path))[None])[0]
        np.testing.assert_allclose(engine.vector_of(active, name), direct, atol=1e-3)
    results = {hit.id for hit in engine.search(active, np.ones(12, np.float32), SearchRequest(k=50)).hits}
    assert len(results) == 17
    assert not results & {*gone}


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_where_it_stopped(
    tmp_path: Path, encoder: Encoder, other_encoder: Encoder, manifest: Manifest
) -> None:
    engine = open_home(tmp_path / "home")
    ingest(engine, encoder, manifest)
    assert other_encoder.info is not None
    kill_after(3, _PROGRAM, tmp_path / "home", other_encoder.info.folder)
    generation = generation_for(engine.home, "c", other_encoder)
    kept = _vectors(engine, generation)
    assert len(kept) in (8, 12)
    assert reindex(engine, generation, other_encoder, batch_size=4, show_progress=False) == 20 - len(kept)
    after = _vectors(engine, generation)
    assert len(after) == 20
    assert {key: after[key] for key in kept} == kept
    engine.close()


def test_rolling_back_embeds_what_was_written_since_and_goes_back_and_forth(
    engine: SearchEngine, encoder: Encoder, other_encoder: Encoder, manifest: Manifest
) -> None:
    ingest(engine, encoder, replace(manifest, records=manifest.records[:15]))
    first = _active(engine)
    second = _build(engine, other_encoder)
    swap(engine, second, other_encoder, preload_s=0, show_progress=False)
    ingest(engine, other_encoder, manifest)
    with (
        pytest.raises(IncompleteGenerationError, match=r"lacks 5 of the 20 images .*--generation"),
        engine.home.catalogue.write() as session,
    ):
        activate(session, first, texts=True)
    assert engine.active("c").generation == second.id
    # It continues in the state that it has.
    assert generation_for(engine.home, "c", encoder).id == first.id
    states = {info.number: info.state for info in list_generations(engine.home, "c")}
    assert states[first.id] == "retired"
    assert swap(engine, first, encoder, preload_s=0, show_progress=False) == 5
    assert engine.active("c").generation == first.id
    assert swap(engine, second, other_encoder, preload_s=0, show_progress=False) == 0
    listed = list_generations(engine.home, "c")
    results = {info.number: (info.state, info.images, info.missing) for info in listed}
    assert results == {first.id: ("retired", 20, 0), second.id: ("active", 20, 0)}


def test_a_swap_ends_though_an_image_is_written_during_each_snapshot(
    engine: SearchEngine,
    encoder: Encoder,
    other_encoder: Encoder,
    manifest: Manifest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ingest(engine, encoder, replace(manifest, records=manifest.records[:15]))
    generation = generation_for(engine.home, "c", other_encoder)
    save, saved = engine.save_snapshot_of, 0

    def slow(of: Generation) -> None:
        nonlocal saved
        saved += 1
        assert saved <= 3, "it does not end"
        save(of)
        ingest(engine, encoder, replace(manifest, records=manifest.records[: 15 + saved]))

    monkeypatch.setattr(engine, "save_snapshot_of", slow)
    assert swap(engine, generation, other_encoder, preload_s=0, show_progress=False) == 16
    assert saved == 1
    assert engine.active("c").generation == generation.id


def test_a_run_does_not_go_on_writing_to_a_generation_that_was_replaced(
    engine: SearchEngine, encoder: Encoder, other_encoder: Encoder, manifest: Manifest
) -> None:
    ingest(engine, encoder, replace(manifest, records=manifest.records[:10]))
    second = _build(engine, other_encoder)

    def take_over(_: int) -> None:
        swap(engine, second, other_encoder, preload_s=0, show_progress=False)

    slow = _Watched(encoder, take_over)
    with pytest.raises(GenerationError, match="run it again with that bundle"):
        ingest(engine, slow, manifest, batch_size=20)
    assert engine.active("c").generation == second.id
    assert engine.collection("c").count == 10


def test_no_run_goes_on_writing_to_a_generation_that_was_dropped(
    indexed: SearchEngine, other_encoder: Encoder, manifest: Manifest
) -> None:

    def drop(_: int) -> None:
        drop_generation(indexed.home, "c", generation_for(indexed.home, "c", other_encoder).id)

    slow = _Watched(other_encoder, drop)
    with pytest.raises(GenerationError, match=r"of 'c' was dropped since this run began: run it again\.$"):
        ingest(indexed, slow, manifest, batch_size=20)
    generation = generation_for(indexed.home, "c", other_encoder)
    slow = _Watched(other_encoder, drop, of_texts=True)
    with pytest.raises(GenerationError, match="There is no generation"):
        reindex(indexed, generation, slow, show_progress=False)


def test_files_that_are_missing_or_damaged_are_named_and_the_rest_is_embedded(
    indexed: SearchEngine, encoder: Encoder, other_encoder: Encoder, manifest: Manifest
) -> None:
    indexed.image_path("c", "image-003").unlink()
    indexed.image_path("c", "image-009").write_bytes(b"damaged")
    generation = generation_for(indexed.home, "c", other_encoder)
    with pytest.raises(GenerationError, match=r"2 images of 'c' cannot be read.*image-003: .*image-009: "):
        reindex(indexed, generation, other_encoder, show_progress=False)
    assert len(_vectors(indexed, generation)) == 18
    ingest(indexed, encoder, manifest)
    assert reindex(indexed, generation, other_encoder, show_progress=False) == 2


def test_a_file_that_went_with_its_image_meanwhile_is_no_missing_one(
    indexed: SearchEngine, other_encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    generation = generation_for(indexed.home, "c", other_encoder)
    lost = indexed.image_path("c", "image-004")
    path, gone = indexed.home.store.path, ["image-003", "image-015"]

    def removing(sha256: str) -> Path:
        if gone:
            remove_images(indexed.home, "c", [gone.pop()])
        return path(sha256)

    with monkeypatch.context() as meddling:
        meddling.setattr(indexed.home.store, "path", removing)
        assert reindex(indexed, generation, other_encoder, batch_size=6, show_progress=False) == 18
    assert len(_vectors(indexed, generation)) == 18
    # One that is really missing is named, and hides none of the others.
    execute(indexed, delete(EmbeddingRow).where(EmbeddingRow.generation_id == generation.id))
    lost.unlink()
    gone.append("image-005")
    monkeypatch.setattr(indexed.home.store, "path", removing)
    with pytest.raises(GenerationError, match=r"^1 images .* image-004"):
        reindex(indexed, generation, other_encoder, batch_size=6, show_progress=False)
    assert len(_vectors(indexed, generation)) == 16


def test_a_file_that_cannot_be_read_does_not_count_once_its_image_is_gone(
    engine: SearchEngine, encoder: Encoder, other_encoder: Encoder, manifest: Manifest
) -> None:
    ingest(engine, encoder, replace(manifest, records=manifest.records[:15]))
    for name in ("image-001", "image-002"):
        engine.image_path("c", name).unlink()
    generation = generation_for(engine.home, "c", other_encoder)

    def meddle(batch: int) -> None:
        """While the last images are in the encoder, one is deleted, one replaced, and one more comes."""
        if batch == 3:
            in_write(engine, delete_images, "c", ["image-001"])
            make_picture(manifest.image_path(manifest.records[2]), seed=500)
            kept = [record for record in manifest.records[:16] if record.id != "image-001"]
            ingest(engine, encoder, replace(manifest, records=tuple(kept)))

    watched = _Watched(other_encoder, meddle)
    embedded = reindex(engine, generation, watched, batch_size=6, show_progress=False)
    assert embedded == len(_vectors(engine, generation)) == 15


def test_only_the_bundle_of_a_generation_may_fill_it(
    indexed: SearchEngine, encoder: Encoder, other_encoder: Encoder
) -> None:
    with pytest.raises(GenerationError, match="give the bundle of the generation"):
        Embedder(_active(indexed), other_encoder)
    with pytest.raises(UnknownCollectionError):
        generation_for(indexed.home, "nothing", encoder)


def test_a_bundle_in_the_place_of_another_is_not_taken_for_it(
    engine: SearchEngine, encoder: Encoder, other_encoder: Encoder, bundle: BundleInfo, manifest: Manifest
) -> None:
    ingest(engine, encoder, manifest)
    generation = _active(engine)
    position = engine.home.bundles_folder / generation.digest
    assert other_encoder.info is not None
    for path in other_encoder.info.folder.iterdir():
        (position / path.name).write_bytes(path.read_bytes())
    with pytest.raises(BundleError, match=f"{generation.digest[:12]} belongs there"):
        registered_bundle(generation, engine.home.bundles_folder)
    assert install_bundle(bundle, engine.home.bundles_folder).digest == generation.digest
    assert registered_bundle(generation, engine.home.bundles_folder).digest == generation.digest


def test_the_comparison_is_what_a_slow_count_finds(
    indexed: SearchEngine, encoder: Encoder, other_encoder: Encoder, manifest: Manifest
) -> None:
    first = _active(indexed)
    second = _build(indexed, other_encoder)
    result = compare(indexed.home, first, second)
    assert result is not None
    assert (result.against, result.held_out, result.candidates) == (first.id, "test", 20)
    assert list_generations(indexed.home, "c")[0].comparison == result
    texts = result.text_to_image
    assert texts is not None
    held_out = [record for record in manifest.records if record.split == "test"]
    assert texts.queries == sum(len(record.texts) for record in held_out)
    names = [record.id for record in manifest.records]
    for model, generation, recall in ((encoder, first, texts.active), (other_encoder, second, texts.new)):
        active = indexed.describe(generation)
        images = np.stack([indexed.vector_of(active, name) for name in names])
        ranks = []
        for record in held_out:
            for vector in model.embed_texts(list(record.texts)).vectors if record.texts else ():
                order = [names[row] for row in np.argsort(-(images @ vector))]
                ranks.append(order.index(record.id))
        for k, percent in recall.items():
            assert percent == pytest.approx(100 * np.mean(np.array(ranks) < k), abs=100 / len(ranks) + 1e-6)
    assert result.image_to_image is not None
    assert result.image_to_image.queries == len(held_out)
    same = compare(indexed.home, first, first)
    assert same is not None
    assert same.text_to_image is not None
    assert same.text_to_image.overlap == 100
    assert same.text_to_image.active == same.text_to_image.new


def test_a_sample_is_compared_where_no_split_is_held_out(
    engine: SearchEngine, encoder: Encoder, other_encoder: Encoder, tmp_path: Path
) -> None:
    records = [replace(record, split="train", labels=()) for record in make_records(12)]
    ingest(engine, encoder, make_manifest(tmp_path / "train", records))
    result = compare(engine.home, _active(engine), _build(engine, other_encoder))
    assert result is not None
    assert result.held_out == "sample"
    assert result.image_to_image is not None
    assert (result.image_to_image.active, result.image_to_image.labelled) == (None, 0)
