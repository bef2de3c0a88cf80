import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.training.data.sounds import flac, tone, verbatim, wav, wav16
from training.data import audio
from training.data.audio import AudioLimits, decode_audio, read_audio_header
from training.errors import AudioError, AudioTooLargeError


def stereo_wav(left: float, right: float, samples: int = 8) -> bytes:
    return wav(struct.pack("<2f", left, right) * samples, code=3, bits=32, channels=2)


def test_channels_are_averaged() -> None:
    found = decode_audio(stereo_wav(0.5, -0.25), 16_000)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, torch.full((8,), 0.125))


def test_wav_and_flac_of_the_same_samples_are_the_same_sound() -> None:
    values = [int(value) for value in np.round(tone(700, 0.01) * 20_000)]
    from_flac = decode_audio(flac([(160, 0, [verbatim(values)])]), 16_000)
    from_wav = decode_audio(wav(struct.pack("<160h", *values)), 16_000)
    torch.testing.assert_close(from_flac, from_wav, atol=1e-7, rtol=0)
    assert from_flac.abs().max() > 0.2


def test_a_sound_is_resampled_and_cut_before_it_is() -> None:
    content = wav16(tone(440, 0.5, 44_100), 44_100)
    assert len(decode_audio(content, 16_000)) == 8_000
    begun = decode_audio(content, 16_000, seconds=0.1)
    assert len(begun) == 1_600
    torch.testing.assert_close(begun[:1_400], decode_audio(content, 16_000)[:1_400], atol=1e-5, rtol=0)


def test_a_file_and_its_bytes_are_the_same(tmp_path: Path) -> None:
    content = wav16(tone(440))
    (tmp_path / "a.wav").write_bytes(content)
    assert torch.equal(decode_audio(tmp_path / "a.wav", 16_000), decode_audio(content, 16_000))
    header = read_audio_header(tmp_path / "a.wav")
    assert (header.format, header.sample_rate, header.channels, header.samples) == ("WAV", 16_000, 1, 1_600)


def test_a_flac_stream_does_not_say_how_long_it_is() -> None:
    content = flac([(16, 0, [verbatim(range(16))])], samples=0)
    assert read_audio_header(content).samples is None
    assert len(decode_audio(content, 16_000)) == 16


@pytest.mark.parametrize(
    ("content", "limits", "reason"),
    [
        (wav16(tone(440)), AudioLimits(max_bytes=100), "0.0 MB; the limit is 0.0 MB"),
        (wav16(tone(440)), AudioLimits(max_seconds=0.05), "lasts 0.1 seconds; the limit is 0.05"),
        (stereo_wav(0, 0), AudioLimits(max_channels=1), "2 channels; the limit is 1"),
        (flac([], samples=2**36 - 1), AudioLimits(), "lasts 4,294,967.3 seconds"),
    ],
)
def test_what_is_too_large_is_refused_by_its_header(
    content: bytes, limits: AudioLimits, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(audio, "decode_wav", never)
    monkeypatch.setattr(audio, "decode_flac", never)
    with pytest.raises(AudioTooLargeError, match=reason):
        decode_audio(content, 16_000, limits)


def test_a_stream_is_decoded_no_further_than_the_limit() -> None:
    content = flac([(16, 0, [verbatim(range(16))])] * 4, samples=0)
    assert len(decode_audio(content, 16_000, AudioLimits(max_seconds=20 / 16_000))) == 20


def test_a_large_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "a.wav").open("wb") as file:
        file.truncate(200 * 1024 * 1024)
    with pytest.raises(AudioTooLargeError, match=r"209.7 MB; the limit is 104.9 MB"):
        decode_audio(tmp_path / "a.wav", 16_000)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"ID3 whatever", "give WAV or FLAC"),
        (wav(b""), "no samples"),
        (flac([], samples=0), "no samples"),
        (wav16(tone(440), rate=999), "999 samples a second"),
        (wav16(tone(440), rate=500_000), "500000 samples a second"),
    ],
)
def test_what_is_no_sound_is_named(content: bytes, reason: str) -> None:
    with pytest.raises(AudioError, match=reason):
        decode_audio(content, 16_000)


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(AudioError, match="There is no audio file"):
        decode_audio(tmp_path / "none.wav", 16_000)
    with pytest.raises(AudioError, match="is not a file"):
        decode_audio(tmp_path, 16_000)
