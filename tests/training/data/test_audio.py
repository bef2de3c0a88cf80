import math
import os
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from torch import Tensor

from tests.training.data.sounds import claim_flac_samples, claim_wav_bytes, encode, tagged, tone, wav16
from training.common.errors import AudioError, AudioTooLargeError, DataError
from training.common.manifest import Manifest, Record, Rejections
from training.data.audio import AudioDecoder, AudioLimits, AudioSource, audible, decode_audio, resample
from training.models.config import AudioPreprocessingConfig
from training.models.preprocessing import AudioPreprocessing


def hiss(seconds: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Noise (N,), which no coding makes small."""
    return np.random.default_rng(1).uniform(-0.5, 0.5, size=round(seconds * 16_000))


LOSSLESS = [
    ("WAV", "PCM_U8", 2**-7),
    ("WAV", "PCM_16", 2**-14),
    ("WAV", "PCM_24", 1e-6),
    ("WAV", "PCM_32", 1e-6),
    ("WAV", "FLOAT", 1e-7),
    ("WAV", "DOUBLE", 1e-7),
    ("WAV", "ULAW", 0.02),
    ("WAVEX", "PCM_16", 2**-14),
    ("FLAC", "PCM_S8", 2**-6),
    ("FLAC", "PCM_16", 2**-14),
    ("FLAC", "PCM_24", 1e-6),
]
LOSSY = [("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III")]
FORMATS = [form[:2] for form in LOSSLESS] + LOSSY


@pytest.mark.parametrize(("form", "coding", "atol"), LOSSLESS)
@pytest.mark.parametrize("channels", [1, 3])
def test_samples_come_back_and_channels_are_averaged(
    form: str, coding: str, atol: float, channels: int
) -> None:
    samples = np.random.default_rng(0).uniform(-0.9, 0.9, size=(500, channels))
    content = encode(samples, 22_050, form, coding)
    actual = decode_audio(content, 22_050)
    assert actual.dtype == torch.float32
    np.testing.assert_allclose(actual.numpy(), samples.mean(axis=1), atol=atol, rtol=0)


@pytest.mark.parametrize(("form", "coding"), FORMATS)
def test_a_tone_keeps_its_pitch_level_and_length_at_another_rate(form: str, coding: str) -> None:
    content = encode(tone(1_000, 0.5, 48_000), 48_000, form, coding)
    actual = decode_audio(content, 16_000).numpy()
    assert len(actual) == 8_000
    inner = actual[1_600:6_400]
    spectrum = np.abs(np.fft.rfft(inner * np.hanning(4_800)))
    assert int(spectrum.argmax()) * 16_000 / 4_800 == pytest.approx(1_000)
    np.testing.assert_allclose(inner, tone(1_000, 0.5)[1_600:6_400], atol=0.03)


@pytest.mark.parametrize(("form", "coding"), FORMATS)
def test_no_more_is_decoded_than_asked_for(form: str, coding: str) -> None:
    content = encode(tone(440, 6.0, 48_000), 48_000, form, coding)
    whole = decode_audio(content, 48_000)
    begun = decode_audio(content, 48_000, seconds=4.0)
    assert len(whole) == 6 * 48_000
    assert torch.equal(begun, whole[: 4 * 48_000])
    assert len(decode_audio(content, 16_000, seconds=0.1)) == 1_600


@pytest.mark.parametrize(("form", "coding"), FORMATS)
def test_a_file_its_bytes_and_other_threads_give_the_same(
    form: str, coding: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    content = encode(tone(440), 16_000, form, coding)
    (tmp_path / "a").write_bytes(content)
    expected = decode_audio(content, 16_000)
    with ThreadPoolExecutor(8) as pool:
        for actual in pool.map(lambda _: decode_audio(tmp_path / "a", 16_000), range(40)):
            assert torch.equal(actual, expected)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("footer", [False, True])
@pytest.mark.parametrize(("form", "coding"), FORMATS)
def test_a_tag_before_the_sound_changes_nothing(form: str, coding: str, footer: bool) -> None:
    content = encode(tone(440), 16_000, form, coding)
    actual = tagged(content, footer=footer)
    assert torch.equal(decode_audio(actual, 16_000), decode_audio(content, 16_000))


@pytest.mark.parametrize("claimed", [0, 1_600, 1_601, 16_000 * 600])
def test_a_flac_file_that_claims_another_length_is_read_as_far_as_it_goes(claimed: int) -> None:
    content = claim_flac_samples(encode(tone(440), form="FLAC"), claimed)
    assert len(decode_audio(content, 16_000)) == 1_600
    assert len(decode_audio(content, 16_000, AudioLimits(max_seconds=600, max_bytes=10_000))) == 1_600
    if not claimed:
        assert len(decode_audio(content, 16_000, AudioLimits(max_seconds=20 / 16_000))) == 20


@pytest.mark.parametrize("claimed", [3_202, 1 << 31, 0xFFFFFFFF])
def test_a_wav_file_that_claims_more_is_read_as_far_as_it_goes(claimed: int) -> None:
    content = claim_wav_bytes(wav16(tone(440)), claimed)
    assert torch.equal(decode_audio(content, 16_000), decode_audio(wav16(tone(440)), 16_000))


def test_memory_is_that_of_the_samples_and_not_of_the_claim() -> None:
    content = claim_flac_samples(encode(tone(440), 96_000, form="FLAC"), 96_000 * 600)
    tracemalloc.start()
    try:
        decode_audio(content, 96_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4e6


@pytest.mark.parametrize(
    ("content", "limits", "reason"),
    [
        (wav16(tone(440)), AudioLimits(max_bytes=100), "0.0 MB; the limit is 0.0 MB"),
        (wav16(tone(440)), AudioLimits(max_seconds=0.05), "lasts 0.1 seconds; the limit is 0.05"),
        (encode(np.zeros((9, 2))), AudioLimits(max_channels=1), "2 channels; the limit is 1"),
        (encode(np.zeros((9, 200))), AudioLimits(), "200 channels; the limit is 8"),
        (
            claim_flac_samples(encode(tone(440), form="FLAC"), 2**36 - 1),
            AudioLimits(),
            "lasts 4,294,967.3 seconds",
        ),
        *(
            (encode(tone(440), 16_000, *form), AudioLimits(max_seconds=0.05), "lasts 0.1 seconds")
            for form in LOSSY
        ),
    ],
)
def test_what_is_too_large_is_refused_by_its_header(
    content: bytes, limits: AudioLimits, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(soundfile.SoundFile, "read", never)
    with pytest.raises(AudioTooLargeError, match=reason):
        decode_audio(content, 16_000, limits)


def test_a_large_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "a.wav").open("wb") as file:
        file.truncate(200 * 1024 * 1024)
    with pytest.raises(AudioTooLargeError, match=r"209.7 MB; the limit is 104.9 MB"):
        decode_audio(tmp_path / "a.wav", 16_000)


UNKNOWN = r"give WAV, FLAC, OGG \(Vorbis or Opus\) or MP3"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"RIFF", UNKNOWN),
        (b"\xff", UNKNOWN),
        (b"ID3 whatever", UNKNOWN),
        ("\ufeffHallo".encode("utf-16-le"), UNKNOWN),
        (encode(tone(440), form="AIFF"), UNKNOWN),
        (tagged(encode(tone(440), form="CAF")), UNKNOWN),
        (tagged(tagged(b"")), UNKNOWN),
        (b"RIFF\0\0\0\0WAVE", "The WAV file is damaged or coded in a way"),
        (b"fLaC" + bytes(50), "The FLAC file is damaged or coded in a way"),
        (b"OggS" + bytes(50), "The OGG file is damaged or coded in a way"),
        (b"\xff\xfb\x90\xc4", "The MP3 file is damaged or coded in a way"),
        (encode(np.zeros(0)), "The WAV file has no samples"),
        (claim_wav_bytes(wav16(tone(440)), 0), "The WAV file has no samples"),
        (wav16(tone(440), rate=999), "999 samples a second: save it with 1000 to 384000"),
        (wav16(tone(440), rate=500_000), "500000 samples a second"),
        (encode(np.full(9, np.nan), coding="FLOAT"), "The WAV file has samples that are not numbers"),
        (encode(np.full(9, -np.inf), coding="DOUBLE"), "not numbers"),
        (encode(np.full(9, 1e300), coding="DOUBLE"), "far beyond full scale"),
        (encode(np.full(9, -1e10), coding="FLOAT"), "far beyond full scale"),
    ],
)
def test_what_is_no_sound_is_named(content: bytes, reason: str) -> None:
    with pytest.raises(AudioError, match=reason):
        decode_audio(content, 16_000)


@pytest.mark.parametrize(("form", "coding"), [*FORMATS[:8], *LOSSY])
def test_a_cut_file_is_read_as_far_as_it_goes(form: str, coding: str) -> None:
    content = encode(hiss(4.0), 16_000, form, coding)
    actual = decode_audio(content[: len(content) * 3 // 4], 16_000)
    assert 1.9 * 16_000 < len(actual) < 3.5 * 16_000
    torch.testing.assert_close(actual[:16_000], decode_audio(content, 16_000)[:16_000])


def test_a_cut_or_changed_flac_file_is_refused() -> None:
    content = encode(tone(440, 4.0), form="FLAC")
    middle = len(content) // 2
    for damaged in (content[:middle], content[:middle] + bytes(9) + content[middle + 9 :]):
        with pytest.raises(AudioError, match="The FLAC file is damaged: not all of its samples"):
            decode_audio(damaged, 16_000)
        assert len(decode_audio(damaged, 16_000, seconds=0.5)) == 8_000


@pytest.mark.parametrize("coding", ["VORBIS", "OPUS"])
def test_a_lost_page_of_ogg_is_passed_over_and_nothing_is_heard_twice(coding: str) -> None:
    content = encode(hiss(6.0), 16_000, "OGG", coding)
    pages = [place for place in range(len(content)) if content.startswith(b"OggS", place)]
    lost = pages[len(pages) // 2]
    whole = decode_audio(content, 16_000)
    actual = decode_audio(content[:lost] + b"lost" + content[lost + 4 :], 16_000)
    assert len(whole) == 96_000
    assert len(whole) - 2 * 16_000 < len(actual) < len(whole) - 8_000
    assert torch.equal(actual[:24_000], whole[:24_000])
    torch.testing.assert_close(actual[-8_000:], whole[-8_000:], atol=1e-3, rtol=0)


def broken(content: bytes, rng: np.random.Generator) -> bytes:
    """A file with some bytes changed, and perhaps its end or a piece missing."""
    changed = bytearray(content)
    reach = len(content) if rng.random() < 0.5 else min(len(content), 96)
    for place in rng.integers(4, reach, size=rng.integers(1, 9)):
        changed[place] = int(rng.choice([0, 1, 127, 128, 255, int(rng.integers(256))]))
    start, length = rng.integers(4, len(changed)), int(rng.choice([0, 1, 300, len(changed)]))
    del changed[start : start + length]
    return bytes(changed)


@pytest.mark.parametrize(("form", "coding"), [*FORMATS, ("WAV", "IMA_ADPCM"), ("WAV", "GSM610")])
def test_broken_files_are_sounds_or_refused(form: str, coding: str) -> None:
    rng = np.random.default_rng(7)
    content = encode(hiss(1.5), 16_000, form, coding)
    limits = AudioLimits(max_seconds=5.0)
    refused = 0
    for _ in range(40):
        try:
            actual = decode_audio(broken(content, rng), 16_000, limits)
        except AudioError as error:
            refused += 1
            assert str(error).endswith(".")
        else:
            assert 0 < len(actual) <= 5 * 16_000
            assert actual.isfinite().all()
    assert 0 < refused < 40


def test_missing_files_folders_and_what_is_no_file_are_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty.wav").touch()
    for path, reason in (
        (tmp_path / "none.wav", "There is no audio file"),
        (tmp_path, "is not a file"),
        (Path("/dev/zero"), "is not a file"),
        (tmp_path / "pipe", "is not a file"),
        (tmp_path / "empty.wav", "is empty"),
    ):
        with pytest.raises(AudioError, match=reason):
            decode_audio(path, 16_000)


RATES = [
    (44_100, 16_000),
    (48_000, 16_000),
    (22_050, 16_000),
    (8_000, 16_000),
    (16_000, 44_100),
    (11_127, 16_000),
]


def sine(frequency: float, rate: int, count: int) -> Tensor:
    return torch.sin(2 * math.pi * frequency * torch.arange(count, dtype=torch.float64) / rate).float()


@pytest.mark.parametrize(("rate", "target"), RATES)
def test_resampling_keeps_level_time_and_pitch_in_the_band_and_removes_what_is_above(
    rate: int, target: int
) -> None:
    inner = slice(target // 32, -target // 32)
    for share in (0.03, 0.5, 0.85):
        frequency = share * min(rate, target) / 2
        resampled = resample(sine(frequency, rate, rate // 4), rate, target)
        assert abs(len(resampled) - target / 4) <= 2
        expected = sine(frequency, target, len(resampled))
        torch.testing.assert_close(resampled[inner], expected[inner], atol=3e-4, rtol=0)
    constant = resample(torch.full((rate // 4,), 0.3), rate, target)[inner]
    torch.testing.assert_close(constant, torch.full_like(constant, 0.3))
    if rate > target:
        above = resample(sine(target / 2 * 1.05, rate, rate // 4), rate, target)
        assert above[inner].abs().max() < 1e-4


def test_resampling_leaves_an_impulse_where_it_is_and_takes_any_length() -> None:
    impulse = torch.zeros(4_410)
    impulse[2_205] = 1.0
    resampled = resample(impulse, 44_100, 16_000)
    assert (len(resampled), int(resampled.argmax())) == (1_600, 800)
    torch.testing.assert_close(resampled[801:1_000], resampled[600:800].flip(0)[:199], atol=1e-6, rtol=0)
    waveform = torch.randn(5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(resample(waveform, 16_000, 16_000), waveform)
    for count in (0, 1, 2, 3):
        resampled = resample(waveform[:count], 44_100, 16_000)
        assert len(resampled) == math.ceil(count * 160 / 441)
        assert resampled.isfinite().all()


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
