"""Gain of reading by threads and by processes: items a second of one, and of as many as there are cores.

Run `python -m tests.benchmarks.threads`. Where a decoder or tokenizer holds the interpreter, threads gain
nothing and processes do. Every kind is read from one file, or from a batch of texts, again and again. Then
images are prepared for a training from a folder of each kind, as the product does it and by threads alone.
"""

import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from os import cpu_count
from pathlib import Path
from typing import Final
from unittest.mock import patch

import numpy as np
import soundfile
import typer
from PIL import Image
from pydicom.uid import JPEG2000Lossless, RLELossless

from tests.dicom_films import draw, encoded, make_film
from training.common.manifest import Manifest, Record, Rejections
from training.data.audio import decode_audio
from training.data.image_source import Decoder, DecodingThreads
from training.imaging.images import DecodedImage, ImageLimits, decode_image, decode_whole
from training.imaging.processes.file_decoder import FileDecoder
from training.imaging.resizing import Square, to_square
from training.models.config import ImagePreprocessingConfig, TextPreprocessingConfig, TextTowerConfig
from training.models.learned_tokenizer import build_tokenizer
from training.models.preprocessing import ImagePreprocessing
from training.models.text_input import TextTokens

_CORES: Final = cpu_count() or 1
_SECONDS: Final = 3.0
_PREPARING_S: Final = 8.0
_COPIES: Final = 4 * _CORES
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
        _report_preparation(_images(Path(name)))


def _report_preparation(images: Mapping[str, Path]) -> None:
    typer.echo(f"\n{'prepared for a training, a second':42}{'threads':>12}{'recoquest':>12}{'ratio':>8}")
    for name, path in images.items():
        threads, ours = _prepared(path, FilesInThreads), _prepared(path, FileDecoder)
        typer.echo(f"{name:42}{threads:>12.1f}{ours:>12.1f}{ours / threads:>8.2f}")


class FilesInThreads(FileDecoder):
    """Decodes all files in the calling thread."""

    def decode(
        self,
        source: bytes | Path,
        limits: ImageLimits | None = None,
        min_side: int | None = None,
        square: Square | None = None,
    ) -> DecodedImage:
        """Decode a file as `FileDecoder` does."""
        decoded = decode_whole(source, limits, min_side)
        return decoded if square is None else replace(decoded, pixels=to_square(decoded.pixels, square))


def _prepared(path: Path, files: type[FileDecoder]) -> float:
    """Images a second of a preparation of copies of a file, behind one that starts the processes."""
    manifest = Manifest(path.parent, (Record("1", path.name, "train"),) * _COPIES, Rejections(_COPIES))
    decoder = Decoder(manifest, ImagePreprocessing(ImagePreprocessingConfig()))
    with patch("training.data.image_source.FileDecoder", files):
        decoding = DecodingThreads(decoder, _CORES, _CORES)
    with closing(decoding):
        list(decoding.decode(range(2 * _CORES)))
        count, begun = 0, time.perf_counter()
        while time.perf_counter() < begun + _PREPARING_S:
            count += len(list(decoding.decode(range(_COPIES))))
        return count / (time.perf_counter() - begun)


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
    noise = np.random.default_rng(0).normal(0, 0.1, 10 * 44_100)
    soundfile.write(folder / "sound.flac", noise, 44_100)
    found = [Kind(name, partial(decode_image, path)) for name, path in _images(folder).items()]
    return [*found, Kind("ten seconds of sound, FLAC", partial(decode_audio, folder / "sound.flac", 16_000))]


def _images(folder: Path) -> dict[str, Path]:
    """Write an image file of each kind."""
    grey = draw(0, _HEIGHT, _WIDTH)
    eight = (grey >> 4).astype(np.uint8)
    Image.fromarray(eight).save(folder / "film.jpg", quality=90)
    Image.fromarray(eight).save(folder / "film.png")
    Image.fromarray(grey).save(folder / "deep.png")
    Image.fromarray(eight[:750, :1000]).resize((500, 375)).convert("RGB").save(folder / "photograph.jpg")
    kinds = {
        "photograph, JPEG": "photograph.jpg",
        "film, JPEG": "film.jpg",
        "film, PNG, 8 bits": "film.png",
        "film, PNG, 16 bits": "deep.png",
        "film, DICOM": "plain.dcm",
    }
    (folder / "plain.dcm").write_bytes(encoded(make_film(0, rows=_HEIGHT, columns=_WIDTH)))
    for name, syntax in _SYNTAXES.items():
        film = make_film(0, rows=_HEIGHT, columns=_WIDTH)
        film.compress(syntax, generate_instance_uid=False)
        (folder / f"{syntax}.dcm").write_bytes(encoded(film))
        kinds[f"film, DICOM, {name}"] = f"{syntax}.dcm"
    return {name: folder / file for name, file in kinds.items()}


def _tokenizing() -> Callable[[], object]:
    tokenizer = build_tokenizer(TextTowerConfig(architecture="bert"), _TEXTS)
    return partial(TextTokens(TextPreprocessingConfig(), tokenizer), _TEXTS)


if __name__ == "__main__":
    main()
