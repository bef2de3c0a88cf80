from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.training.data.sounds import tone, wav16
from tests.training.models.tiny import tiny_audio_encoder
from training.common.errors import DataError
from training.common.manifest import Manifest, Record, Rejections, read_manifest, write_manifest
from training.data.audio import decode_audio
from training.evaluation.embedding import embed_manifest, embed_sounds
from training.evaluation.evaluate import evaluate
from training.models.encoder import Encoder


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
    found = embed_manifest(heard, manifest, batch_size=3, show_progress=False).sounds
    assert found is not None
    assert found.files == ("0.wav", "1.wav", "3.wav", "3.wav")
    assert found.owner.tolist() == [0, 1, 3, 4]
    assert found.matches() == [[0], [1], [3, 4], [3, 4]]
    spectrogram = heard.prepare_audio(decode_audio(wav16(tone(600.0, 0.05)), 16_000))
    np.testing.assert_allclose(found.vectors[1], heard.embed_audio([spectrogram])[0], atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found.vectors, axis=1), 1, atol=1e-5)
    assert not np.allclose(found.vectors[0], found.vectors[1], atol=1e-3)


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
