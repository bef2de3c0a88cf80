from pathlib import Path

import numpy as np
import pytest
import torch

from tests.training.data.sounds import tone, wav16
from training.common.errors import DataError
from training.common.manifest import Manifest, Record, Rejections
from training.data.audio import decode_audio
from training.data.audio_source import AudioDecoder, AudioSource, audible
from training.models.config import AudioPreprocessingConfig
from training.models.sounds.spectrogram import AudioPreprocessing

PREPROCESSING = AudioPreprocessing(AudioPreprocessingConfig(mels=20, seconds=0.1))
SECONDS = (0.04, 0.2, 0.06, 0.03)


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    """Four sounds, the second longer than is looked at, and an image without one."""
    records = []
    for number, seconds in enumerate(SECONDS):
        (tmp_path / f"{number}.wav").write_bytes(wav16(tone(400.0 + 100 * number, seconds)))
        records.append(Record(f"i{number}", "i.jpg", "train", audio=f"{number}.wav", line=number + 1))
    records.append(Record("silent", "i.jpg", "train", line=5))
    return Manifest(tmp_path, tuple(records), Rejections(total=5))


def source(manifest: Manifest, *, cache: bool = True, max_share: float = 1.0) -> AudioSource:
    rejections = Rejections(len(manifest.records), max_share, source="the sounds")
    return AudioSource(AudioDecoder(manifest, PREPROCESSING), rejections, cache=cache, threads=2)


def rows(*numbers: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(numbers, dtype=np.int64)


@pytest.mark.parametrize("cache", [True, False])
def test_loads_rows_in_their_order_padded_behind(manifest: Manifest, cache: bool) -> None:
    sounds = source(manifest, cache=cache)
    batch, kept = sounds.load(rows(3, 1, 0))
    assert kept == [0, 1, 2]
    assert batch.values.shape == (3, 20, 8)
    assert batch.mask.sum(dim=1).tolist() == [1, 8, 2]
    content = (manifest.folder / "0.wav").read_bytes()
    alone = PREPROCESSING.to_spectrogram(decode_audio(content, 16_000))
    torch.testing.assert_close(batch.values[2, :, :2], alone)
    again, _ = sounds.load(rows(3, 1, 0))
    assert torch.equal(again.values, batch.values)
    sounds.close()


def test_only_the_cache_does_without_the_files(manifest: Manifest) -> None:
    kept, streamed = source(manifest), source(manifest, cache=False)
    first, _ = kept.load(rows(0, 1))
    streamed.load(rows(0, 1))
    (manifest.folder / "0.wav").unlink()
    assert torch.equal(kept.load(rows(0, 1))[0].values, first.values)
    assert streamed.load(rows(0, 1))[1] == [1]


def test_broken_and_missing_sounds_are_left_out_and_counted_once(manifest: Manifest) -> None:
    (manifest.folder / "2.wav").write_bytes(b"RIFF but no sound")
    rejections = Rejections(5, 1.0)
    sounds = AudioSource(AudioDecoder(manifest, PREPROCESSING), rejections)
    for _ in range(2):
        batch, kept = sounds.load(rows(2, 0, 4, 1))
        assert kept == [1, 3]
        assert len(batch.values) == 2
    assert [(item.line, item.reason) for item in rejections.items] == [
        (3, "2.wav: The file is not a sound that can be read: give WAV, FLAC, OGG (Vorbis or Opus) or MP3"),
        (5, "i.jpg: it has no sound"),
    ]


def test_too_many_broken_sounds_stop_the_run(manifest: Manifest) -> None:
    (manifest.folder / "2.wav").write_bytes(b"")
    with pytest.raises(DataError, match=r"2\.wav: The audio file is empty"):
        source(manifest, max_share=0.1).load(rows(2, 0))
    with pytest.raises(DataError, match="No sound of a whole batch can be read"):
        source(manifest).load(rows(2))


def test_records_with_a_sound_are_kept(manifest: Manifest) -> None:
    assert [record.id for record in audible(manifest).records] == ["i0", "i1", "i2", "i3"]
    silent = Manifest(manifest.folder, manifest.records[4:], manifest.rejections)
    with pytest.raises(DataError, match=r"No image of this split .* has a sound"):
        audible(silent)


def test_a_cache_larger_than_the_memory_is_refused(
    manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.common.memory.free_memory", lambda: 100)
    with pytest.raises(DataError, match=r"set data\.cache_images to false"):
        source(manifest)
    assert source(manifest, cache=False).load(rows(0))[1] == [0]
