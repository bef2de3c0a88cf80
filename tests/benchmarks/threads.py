"""Gain of reading by threads and by processes: items a second of one, and of as many as there are cores.

Run `python -m tests.benchmarks.threads`. Where a decoder or tokenizer holds the interpreter, threads gain
nothing and processes do. Every kind is read from one file, or from a batch of texts, again and again.
"""

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from os import cpu_count
from pathlib import Path
from typing import Final

import numpy as np
import soundfile
import typer
from PIL import Image
from pydicom.uid import JPEG2000Lossless, RLELossless

from tests.dicom_films import draw, encoded, make_film
from training.data.decoding.audio import decode_audio
from training.data.decoding.images import decode_image
from training.models.config import TextPreprocessingConfig, TextTowerConfig
from training.models.inputs.texts import TextTokens
from training.models.texts.learned_tokenizer import build_tokenizer

_CORES: Final = cpu_count() or 1
_SECONDS: Final = 3.0
_HEIGHT: Final = 3056
_WIDTH: Final = 2544
_SYNTAXES: Final = {"JPEG 2000": JPEG2000Lossless, "RLE": RLELossless}
_TEXTS: Final = [f"two dogs run along the beach in the evening of day {number}" for number in range(64)]


@dataclass(frozen=True)
class Kind:
    """Something to read.

    Attributes:
        name: For the report.
        read: Reads it once.
    """

    name: str
    read: Callable[[], object]


def main() -> None:
    """Write a file of each kind, and measure."""
    with tempfile.TemporaryDirectory() as name:
        kinds = [*_files(Path(name)), Kind("64 texts, words of a learned vocabulary", _tokenizing())]
        typer.echo(f"{'a second':42}{'one thread':>12}{f'{_CORES} threads':>12}{f'{_CORES} processes':>14}")
        for kind in kinds:
            one = _rate(ThreadPoolExecutor(1), 1, kind.read)
            threads = _rate(ThreadPoolExecutor(_CORES), _CORES, kind.read)
            processes = _rate(ProcessPoolExecutor(_CORES, mp_context=get_context("fork")), _CORES, kind.read)
            ratios = f"{one:>12.1f}{threads / one:>11.2f}x{processes / one:>13.2f}x"
            typer.echo(f"{kind.name:42}{ratios}")


def _rate(pool: Executor, workers: int, read: Callable[[], object]) -> float:
    """Items a second of so many workers at once."""
    with pool:
        return sum(pool.map(partial(_repeat, read), range(workers)))


def _repeat(read: Callable[[], object], _worker: int) -> float:
    read()
    count, begun = 0, time.perf_counter()
    while time.perf_counter() < begun + _SECONDS:
        read()
        count += 1
    return count / (time.perf_counter() - begun)


def _files(folder: Path) -> list[Kind]:
    grey = draw(0, _HEIGHT, _WIDTH)
    eight = (grey >> 4).astype(np.uint8)
    Image.fromarray(eight).save(folder / "film.jpg", quality=90)
    Image.fromarray(eight).save(folder / "film.png")
    Image.fromarray(grey).save(folder / "deep.png")
    kinds = {"JPEG": "film.jpg", "PNG, 8 bits": "film.png", "PNG, 16 bits": "deep.png", "DICOM": "plain.dcm"}
    (folder / "plain.dcm").write_bytes(encoded(make_film(0, rows=_HEIGHT, columns=_WIDTH)))
    for name, syntax in _SYNTAXES.items():
        film = make_film(0, rows=_HEIGHT, columns=_WIDTH)
        film.compress(syntax, generate_instance_uid=False)
        (folder / f"{syntax}.dcm").write_bytes(encoded(film))
        kinds[f"DICOM, {name}"] = f"{syntax}.dcm"
    noise = np.random.default_rng(0).normal(0, 0.1, 10 * 44_100)
    soundfile.write(folder / "sound.flac", noise, 44_100)
    found = [Kind(f"film, {name}", partial(decode_image, folder / file)) for name, file in kinds.items()]
    return [*found, Kind("ten seconds of sound, FLAC", partial(decode_audio, folder / "sound.flac", 16_000))]


def _tokenizing() -> Callable[[], object]:
    tokenizer = build_tokenizer(TextTowerConfig(architecture="bert"), _TEXTS)
    return partial(TextTokens(TextPreprocessingConfig(), tokenizer), _TEXTS)


if __name__ == "__main__":
    main()
