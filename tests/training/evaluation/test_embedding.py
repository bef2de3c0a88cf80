import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from tests.training.data.sounds import tone, wav16
from tests.training.evaluation.conftest import WriteManifest
from tests.training.evaluation.encoders import ColourEncoder
from tests.training.models.tiny import tiny_audio_encoder
from training.common.errors import DataError
from training.common.manifest import Manifest, Record, Rejections, read_manifest, write_manifest
from training.data.audio import decode_audio
from training.evaluation.embedding import embed_manifest, embed_sounds
from training.evaluation.evaluate import evaluate
from training.models.encoder import Encoder
from training.models.image_input import Pixels


def record(name: str, *texts: str) -> Record:
    return Record(id=name, image="", split="test", texts=texts)


def lenient(manifest: Manifest, share: float) -> Manifest:
    return replace(manifest, rejections=Rejections(len(manifest.records), share))


def test_rows_follow_the_manifest(manifest_of: WriteManifest) -> None:
    colours = ["red", "green", "blue", "white", "blue", "red", "green"]
    manifest = manifest_of([record(f"{colour}-{row}", colour) for row, colour in enumerate(colours)])
    encoder = ColourEncoder()
    embedded = embed_manifest(encoder, manifest, batch_size=3, show_progress=False)
    assert encoder.batches == [3, 3, 1]
    assert [one.id for one in embedded.records] == [one.id for one in manifest.records]
    assert embedded.image_vectors.argmax(axis=1).tolist() == [0, 1, 2, 0, 2, 0, 1]
    assert np.einsum("nd,nd->n", embedded.image_vectors, embedded.text_vectors) == pytest.approx(1, abs=1e-3)


def test_as_many_images_are_decoded_at_once_as_there_are_cores(
    manifest_of: WriteManifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(5))
    together = Barrier(5, timeout=10)

    class Waiting(ColourEncoder):
        def prepare_image(self, image: Image.Image) -> Pixels:
            together.wait()
            return super().prepare_image(image)

    embed_manifest(Waiting(), manifest_of([record(f"red-{n}", "red") for n in range(5)]), show_progress=False)


def test_each_sentence_is_embedded_once_and_matches_images_that_equal_its_own(
    manifest_of: WriteManifest,
) -> None:
    manifest = manifest_of(
        [
            record("red-1", "red", "a red thing"),
            record("red-2", "red"),
            record("blue-1"),
            record("red-3", "red"),
        ]
    )
    encoder = ColourEncoder()
    embedded = embed_manifest(encoder, manifest, show_progress=False)
    assert sorted(encoder.texts) == ["a red thing", "red"]
    assert embedded.texts == ("red", "a red thing", "red", "red")
    assert embedded.text_owner.tolist() == [0, 0, 1, 3]
    assert embedded.text_matches() == [[0, 1, 3]] * 4
    assert embedded.text_vectors.shape == (4, 3)


def test_a_broken_image_is_named_with_its_line(manifest_of: WriteManifest) -> None:
    manifest = manifest_of([record("red-1", "red"), record("broken-1", "blue"), record("green-1", "green")])
    embedded = embed_manifest(ColourEncoder(), lenient(manifest, 0.5), show_progress=False)
    assert [one.id for one in embedded.records] == ["red-1", "green-1"]
    assert embedded.texts == ("red", "green")
    assert embedded.text_owner.tolist() == [0, 1]
    (skipped,) = embedded.skipped.items
    assert skipped.line == 2
    assert "broken-1.png" in skipped.reason


def test_too_many_broken_images_stop_the_run(manifest_of: WriteManifest) -> None:
    manifest = manifest_of([record("red-1"), record("broken-1"), record("broken-2")])
    with pytest.raises(DataError, match=r"Line 2: broken-1\.png.*[^.]\.$"):
        embed_manifest(ColourEncoder(), lenient(manifest, 0.3), show_progress=False)
    only_broken = manifest_of([record("broken-1"), record("broken-2")])
    with pytest.raises(DataError, match=r"None of the images .* can be read") as raised:
        embed_manifest(ColourEncoder(), lenient(only_broken, 1), show_progress=False)
    assert len(raised.value.__notes__) == 2


class RowMarks:
    """Blackens the images of odd rows and writes the row behind each text."""

    def mark_images(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        odd = torch.tensor([row % 2 for row in rows], dtype=torch.bool)
        return images * (~odd).view(-1, 1, 1, 1)

    def mark_texts(self, texts: Sequence[str], row: int) -> list[str]:
        return [f"{text} {row}" for text in texts]


def test_marks_go_by_the_row_of_the_manifest(manifest_of: WriteManifest) -> None:
    manifest = manifest_of(
        [
            record("red-1", "red", "a red thing"),
            record("broken-1", "red"),
            record("red-2", "red"),
            record("red-3", "red"),
        ]
    )
    encoder = ColourEncoder()
    embedded = embed_manifest(
        encoder, lenient(manifest, 0.5), batch_size=2, marks=RowMarks(), show_progress=False
    )
    assert sorted(encoder.texts) == ["a red thing 0", "red 0", "red 1", "red 2", "red 3"]
    # Matches are still defined by the original sentences.
    assert embedded.texts == ("red", "a red thing", "red", "red")
    assert embedded.text_owner.tolist() == [0, 0, 1, 2]
    assert embedded.text_matches() == [[0, 1, 2]] * 4
    red, black = embedded.image_vectors[0], embedded.image_vectors[2]
    assert embedded.image_vectors[1] == pytest.approx(red)
    assert red[0] == pytest.approx(1, abs=0.01)
    assert black == pytest.approx(3**-0.5)


def test_an_empty_split_is_refused(manifest_of: WriteManifest) -> None:
    with pytest.raises(DataError, match="no images in this split"):
        embed_manifest(ColourEncoder(), manifest_of([record("red-1")]).split("val"), show_progress=False)


def test_texts_are_not_embedded_unless_requested(manifest_of: WriteManifest) -> None:
    encoder = ColourEncoder()
    embedded = embed_manifest(
        encoder, manifest_of([record("red-1", "red")]), texts=False, show_progress=False
    )
    assert encoder.texts == []
    assert embedded.text_vectors.shape == (0, 3)
    assert embedded.text_matches() == []


def test_cut_texts_are_counted(manifest_of: WriteManifest) -> None:
    manifest = manifest_of([record("red-1", "red and blue", "red"), record("red-2", "red and blue")])
    assert embed_manifest(ColourEncoder(max_words=2), manifest, show_progress=False).truncated == 1


@pytest.fixture(scope="module")
def heard() -> Encoder:
    return tiny_audio_encoder()


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    """Five images, four with sounds, two of which are one file."""
    rng = np.random.default_rng(0)
    records = []
    for number in range(5):
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(tmp_path / f"{number}.png")
        (tmp_path / f"{number}.wav").write_bytes(wav16(tone(300.0 * (number + 1), 0.05)))
        records.append(
            Record(
                id=f"i{number}",
                image=f"{number}.png",
                split="test",
                texts=("a bell",) if number < 2 else (f"tone {number}",),
                labels=("high",) if number > 2 else (),
                audio={2: None, 4: "3.wav"}.get(number, f"{number}.wav"),
            )
        )
    write_manifest(tmp_path, records)
    return read_manifest(tmp_path)


def test_sounds_are_embedded_as_the_encoder_does(heard: Encoder, manifest: Manifest) -> None:
    actual = embed_manifest(heard, manifest, batch_size=3, show_progress=False).sounds
    assert actual is not None
    assert actual.files == ("0.wav", "1.wav", "3.wav", "3.wav")
    assert actual.owner.tolist() == [0, 1, 3, 4]
    assert actual.matches() == [[0], [1], [3, 4], [3, 4]]
    spectrogram = heard.preprocessing.audio.to_spectrogram(decode_audio(wav16(tone(600.0, 0.05)), 16_000))
    np.testing.assert_allclose(actual.vectors[1], heard.embed_audio([spectrogram])[0], atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(actual.vectors, axis=1), 1, atol=1e-5)
    assert not np.allclose(actual.vectors[0], actual.vectors[1], atol=1e-3)


def test_a_broken_sound_is_named_and_its_image_stays(heard: Encoder, manifest: Manifest) -> None:
    (manifest.folder / "1.wav").write_bytes(b"RIFF")
    lenient = replace(manifest, rejections=Rejections(5, 0.5))
    embedded = embed_manifest(heard, lenient, show_progress=False)
    assert len(embedded.records) == 5
    assert embedded.sounds is not None
    assert embedded.sounds.owner.tolist() == [0, 3, 4]
    assert [(item.line, item.reason) for item in embedded.sounds.skipped.items] == [
        (2, "1.wav: The file is not a sound that can be read: give WAV, FLAC, OGG (Vorbis or Opus) or MP3")
    ]
    with pytest.raises(DataError, match=r"Line 2: 1\.wav"):
        embed_manifest(heard, replace(manifest, rejections=Rejections(5, 0.01)), show_progress=False)


def test_a_manifest_without_sounds_has_none(heard: Encoder, manifest: Manifest) -> None:
    silent = tuple(replace(record, audio=None) for record in manifest.records)
    assert embed_sounds(heard, manifest, silent) is None


def test_every_pair_with_sounds_is_reported(heard: Encoder, manifest: Manifest) -> None:
    report = evaluate(heard, manifest, show_progress=False)
    assert report.captions is not None
    assert report.sounds == 4
    assert [(search.name, search.queries) for search in report.between] == [
        ("image to audio", 4),
        ("audio to image", 4),
        ("text to audio", 4),
        ("audio to text", 4),
    ]
    figures = report.metrics()
    assert figures["rsum"] == report.captions.rsum
    assert figures["audio_to_image_recall_at_5"] == 100
    assert report.model_validate_json(report.model_dump_json()) == report


def test_without_texts_images_and_sounds_are_measured_and_select(manifest: Manifest) -> None:
    report = evaluate(tiny_audio_encoder(texts=False), manifest, show_progress=False)
    assert (report.captions, report.geometry, report.texts) == (None, None, 0)
    assert report.labels is not None
    assert report.labels.text_to_image is None
    assert [search.name for search in report.between] == ["image to audio", "audio to image"]
    expected = sum(sum(search.recall.values()) for search in report.between)
    assert report.metrics()["rsum"] == pytest.approx(expected)
    silent = tuple(replace(record, audio=None, labels=()) for record in manifest.records)
    with pytest.raises(DataError, match="nor sounds that this encoder can embed"):
        evaluate(tiny_audio_encoder(texts=False), replace(manifest, records=silent), show_progress=False)
