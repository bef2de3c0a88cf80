"""Gives sample scenes a short sound each, whose factors are those of the picture."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import soundfile
from numpy.typing import NDArray

from training.common.manifest import read_manifest, write_manifest
from training.common.record import Record
from training.samples.scenes import COLOURS, PLACES

Samples = NDArray[np.float64]

RATE: Final = 8_000
STEP: Final = 0.125
# Onsets of notes, in steps; every kind of thing has its own rhythm.
RHYTHMS: Final = {
    "person": "x...x...", "dog": "xx..xx..", "ball": "x.x.x.x.", "umbrella": "x.......",
    "sailboat": "x..x..x.", "car": "xxxxxxxx", "bicycle": "x.xxx.xx", "bench": "x.....x.",
    "sled": "xxx.....", "house": "x...xxxx", "tent": "x..x....", "balloon": "xxxx....",
    "kite": "xx.x.xx.", "bird": "xx.xxx.x",
}  # fmt: skip
# Share of each multiple of the pitch; the one factor that only the sound has.
INSTRUMENTS: Final = {"flute": (1.0,), "reed": (1.0, 0.0, 0.5, 0.0, 0.3), "string": (1.0, 0.6, 0.4, 0.3, 0.2)}
_STREAM: Final = 3
_LOWEST: Final = 220.0
_CHORD: Final = (1.0, 1.5, 2.0)
_FADE_S: Final = 0.08
_NOTE_LEVEL: Final = 0.4
_NOISE_LEVEL: Final = 0.02
_ABOUT: Final = """
Each image has a sound of a second, `sounds/`:

| factor | where it shows in the sound |
|---|---|
| `colour` | pitch |
| `thing` | rhythm |
| `count` | notes at once |
| `place` | pitch of the noise behind |
| `instrument` | timbre; in the sound only |
"""


def add_scene_sounds(folder: Path, *, seed: int) -> None:
    """Write a sound for every scene of a folder of drawn scenes, and name it in the manifest."""
    (folder / "sounds").mkdir()
    records = read_manifest(folder, max_rejected=0.0).records
    write_manifest(folder, _save_each(folder, records, seed))
    about = folder / "README.md"
    about.write_text(about.read_text(encoding="utf-8") + _ABOUT, encoding="utf-8")


def _save_each(folder: Path, records: tuple[Record, ...], seed: int) -> Iterator[Record]:
    for number, record in enumerate(records):
        # A stream of its own: the pictures are the same with sounds and without.
        rng = np.random.default_rng([seed, _STREAM, number])
        instrument = str(rng.choice(list(INSTRUMENTS)))
        audio = f"sounds/{record.id}.wav"
        soundfile.write(folder / audio, draw_sound(record, instrument, rng), RATE, subtype="PCM_16")
        yield replace(record, audio=audio, metadata={**record.metadata, "instrument": instrument})


def find_pitch(colour: str) -> float:
    """Frequency of a colour in hertz: each is three semitones above the one before."""
    semitones = 3 * list(COLOURS).index(colour)
    return float(_LOWEST * 2 ** (semitones / 12))


def draw_sound(record: Record, instrument: str, rng: np.random.Generator) -> Samples:
    """The sound (N,) of a scene, from -1 to 1."""
    factors = record.metadata
    voices = _CHORD[: int(str(factors["count"]))]
    rhythm = RHYTHMS[str(factors["thing"])]
    step = round(STEP * RATE)
    note = np.zeros(step)
    time = np.arange(step) / RATE
    for voice in voices:
        for multiple, share in enumerate(INSTRUMENTS[instrument], 1):
            frequency = find_pitch(str(factors["colour"])) * voice * multiple
            if frequency < RATE / 2:
                note += share * np.sin(2 * np.pi * frequency * time)
    note *= np.exp(-time / _FADE_S) * np.minimum(1, time / 0.005)
    note *= _NOTE_LEVEL / np.abs(note).max()
    sound: Samples = np.concatenate([note if mark == "x" else np.zeros(step) for mark in rhythm])
    sound += _noise(str(factors["place"]), len(sound), rng)
    return sound


def _noise(place: str, count: int, rng: np.random.Generator) -> Samples:
    """Noise of an even band, the lowest for the first place."""
    number = PLACES.index(place)
    spectrum = np.fft.rfft(rng.standard_normal(count))
    share = np.arange(len(spectrum)) / len(spectrum)
    spectrum[(share < number / len(PLACES)) | (share >= (number + 1) / len(PLACES))] = 0
    noise: Samples = np.fft.irfft(spectrum, count)
    noise *= _NOISE_LEVEL / noise.std()
    return noise
