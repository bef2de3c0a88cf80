import hashlib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile

from training.common.manifest import Manifest, Record, read_manifest
from training.data.audio import decode_audio
from training.samples import write_sample_data
from training.samples.scenes.factors import COLOURS, GROUND_THINGS, NATURAL_COLOURS, PLACES, SKY_THINGS
from training.samples.scenes.sounds import INSTRUMENTS, RATE, RHYTHMS, draw_sound, pitch_of

STEP = RATE // 8


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sample") / "data"
    write_sample_data(out, images=30, seed=3, size=32, audio=True)
    return out


@pytest.fixture
def scenes(sample: Path) -> Manifest:
    return read_manifest(sample / "scenes", max_rejected=0.0)


def samples_of(manifest: Manifest, record: Record) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    path = manifest.audio_path(record)
    assert path is not None
    return decode_audio(path, RATE).numpy().astype(np.float64)


def notes_of(sound: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[float]:
    """Loudness of each eighth, behind its beginning."""
    return [float(np.abs(sound[place * STEP : (place + 1) * STEP]).max()) for place in range(8)]


def test_every_kind_of_thing_and_colour_has_its_own_sound() -> None:
    kinds = {kind for things in GROUND_THINGS.values() for kind in things} | set(SKY_THINGS)
    assert kinds == set(RHYTHMS)
    assert len(set(RHYTHMS.values())) == len(RHYTHMS)
    assert all(len(rhythm) == 8 and rhythm[0] == "x" for rhythm in RHYTHMS.values())
    pitches = [pitch_of(colour) for colour in (*COLOURS, *NATURAL_COLOURS)]
    assert pitches == sorted(set(pitches))
    assert pitches[0] == 220
    assert pitches[8] == pytest.approx(880)


def test_every_scene_has_a_small_sound_of_a_second(scenes: Manifest) -> None:
    assert len(scenes.records) == 30
    for record in scenes.records:
        path = scenes.audio_path(record)
        assert path is not None
        header = soundfile.info(path)
        assert (header.samplerate, header.channels, header.frames) == (RATE, 1, RATE)
        assert path.stat().st_size < 17_000


def test_the_rhythm_is_that_of_the_thing(scenes: Manifest) -> None:
    for record in scenes.records:
        loud = notes_of(samples_of(scenes, record))
        heard = "".join("x" if level > 0.2 else "." for level in loud)
        assert heard == RHYTHMS[str(record.metadata["thing"])]


def test_the_pitch_is_that_of_the_colour(scenes: Manifest) -> None:
    for record in scenes.records:
        first = samples_of(scenes, record)[:STEP]
        spectrum = np.abs(np.fft.rfft(first * np.hanning(STEP), 8 * STEP))
        pitch = pitch_of(str(record.metadata["colour"]))
        nearest = np.arange(len(spectrum)) * RATE / (8 * STEP)
        # The lowest peak of the chord is its root.
        loud = nearest[spectrum > 0.4 * spectrum.max()]
        assert loud.min() == pytest.approx(pitch, abs=12)


def test_the_noise_behind_is_that_of_the_place() -> None:
    for number, place in enumerate(PLACES):
        record = Record(
            "a", "a.jpg", "train", metadata={"colour": "red", "thing": "umbrella", "count": 1, "place": place}
        )
        quiet = draw_sound(record, "flute", np.random.default_rng(0))[4 * STEP :]
        power = np.abs(np.fft.rfft(quiet)) ** 2
        bands = [part.sum() for part in np.array_split(power, len(PLACES))]
        assert int(np.argmax(bands)) == number
        assert max(bands) > 0.9 * sum(bands)


def test_instruments_vary_and_sound_different(scenes: Manifest) -> None:
    assert {record.metadata["instrument"] for record in scenes.records} == set(INSTRUMENTS)
    record = scenes.records[0]
    sounds = [draw_sound(record, name, np.random.default_rng(0)) for name in INSTRUMENTS]
    assert all(np.abs(a - b).max() > 0.05 for a, b in pairwise(sounds))
    assert all(np.abs(sound).max() <= 1 for sound in sounds)


def digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files
    }


def test_images_and_texts_are_the_same_without_sounds(sample: Path, scenes: Manifest, tmp_path: Path) -> None:
    write_sample_data(tmp_path / "silent", images=30, seed=3, size=32)
    silent, heard = digests(tmp_path / "silent"), digests(sample)
    changed = {name for name in silent if silent[name] != heard[name]}
    assert changed == {"scenes/manifest.jsonl", "scenes/README.md"}
    assert not any("sounds" in name for name in silent)
    without = read_manifest(tmp_path / "silent" / "scenes").records
    for record, plain in zip(scenes.records, without, strict=True):
        metadata = {name: value for name, value in record.metadata.items() if name != "instrument"}
        assert replace(record, audio=None, metadata=metadata) == plain


def test_the_same_seed_gives_the_same_sounds(sample: Path, tmp_path: Path) -> None:
    write_sample_data(tmp_path / "again", images=4, seed=3, size=32, audio=True)
    again, first = digests(tmp_path / "again"), digests(sample)
    sounds = [name for name in again if name.endswith(".wav")]
    assert len(sounds) == 4
    assert all(again[name] == first[name] for name in sounds)
