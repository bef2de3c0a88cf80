"""Reading of images for training and embedding, beside PyTorch's DataLoader, and where the time goes.

Run `python -m tests.benchmarks.reading [BUNDLE]`, or `make benchmark-input ARGS=BUNDLE`. With a bundle, the
bulk embedder is measured from files as well, beside its bare encoder.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import torch
import typer
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from training.common.manifest import Manifest, Record, Rejections, read_manifest, write_manifest
from training.data.image_source import Decoder, StreamedImages, open_images
from training.evaluation.embedding import embed_manifest
from training.imaging.images import decode_image, read_header
from training.models.config import ImagePreprocessingConfig
from training.models.encoder import load_encoder
from training.models.image_input import to_pixels
from training.models.onnx import load_onnx_encoder
from training.models.preprocessing import ImagePreprocessing
from training.trainer.run_state.processes import Processes

Item = TypeVar("Item")

_SIZE: Final = 224
_BATCH: Final = 32
_CORES: Final = os.cpu_count() or 1


@dataclass(frozen=True)
class Kind:
    """Files of one kind.

    Attributes:
        name: For the report.
        width: In pixels.
        height: In pixels.
        mode: Of Pillow.
        count: Of files.
    """

    name: str
    width: int
    height: int
    mode: str
    count: int


_KINDS: Final = (Kind("films", 2544, 3056, "L", 32), Kind("photographs", 500, 375, "RGB", 480))


def main() -> None:
    """Write files, and measure each way of reading them, one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("bundle", type=Path, nargs="?", help="measure the bulk embedder as well")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for kind in _KINDS:
            manifest = _written(kind, Path(folder) / kind.name)
            _report(kind, manifest)
            if arguments.bundle is not None:
                _report_embedding(arguments.bundle, manifest)


def _written(kind: Kind, folder: Path) -> Manifest:
    """JPEG files of smooth noise with grain, about as large as real ones."""
    generator = np.random.default_rng(0)
    (folder / "images").mkdir(parents=True)
    records = []
    for number in range(kind.count):
        channels = () if kind.mode == "L" else (3,)
        coarse = generator.integers(0, 256, (24, 24, *channels), dtype=np.uint8)
        smooth = np.asarray(
            Image.fromarray(coarse).resize((kind.width, kind.height), Image.Resampling.BICUBIC)
        )
        grain = generator.normal(0, 6, smooth.shape)
        pixels = np.clip(smooth + grain, 0, 255).astype(np.uint8)
        path = f"images/{number}.jpg"
        Image.fromarray(pixels).save(folder / path, quality=90)
        records.append(Record(id=str(number), image=path, split="train"))
    write_manifest(folder, records)
    return read_manifest(folder)


def _report(kind: Kind, manifest: Manifest) -> None:
    scaled = ImagePreprocessingConfig(size=_SIZE, scaled_decoding=True)
    whole = ImagePreprocessingConfig(size=_SIZE)
    paths = [manifest.image_path(record) for record in manifest.records]
    mean_kb = statistics.mean(path.stat().st_size for path in paths) / 1000
    typer.echo(
        f"\n{kind.count} {kind.name}, JPEG of {kind.width} x {kind.height}, {mean_kb:,.0f} kB each, to "
        f"{_SIZE} x {_SIZE} in batches of {_BATCH}, {_CORES} cores\n"
    )
    rates = {
        "recoquest, streamed": _rate(kind.count, partial(_stream, manifest, scaled)),
        "recoquest, streamed, one thread": _rate(kind.count, partial(_stream, manifest, scaled, threads=1)),
        "recoquest, streamed, decoded whole": _rate(kind.count, partial(_stream, manifest, whole)),
        "torch DataLoader": _rate(kind.count, partial(_load_by_torch, paths)),
        "recoquest, prepared before": _kept(manifest, scaled),
    }
    peer = rates["torch DataLoader"]
    typer.echo(f"{'':38}{'images/s':>10}{'ratio':>8}")
    for name, rate in rates.items():
        typer.echo(f"{name:38}{rate:>10,.0f}{rate / peer:>8.2f}")
    typer.echo("\nmilliseconds of an image, one thread")
    stages: dict[str, Callable[[Path], object]] = {
        "header and limits": read_header,
        "decoding to twice the size": partial(decode_image, min_side=scaled.min_side),
        "decoding whole": decode_image,
    }
    for name, stage in stages.items():
        typer.echo(f"{name:38}{_stage_ms(stage, paths):>10.2f}")
    decoded = [decode_image(path, min_side=scaled.min_side) for path in paths[:8]]
    typer.echo(f"{'resizing':38}{_stage_ms(lambda image: to_pixels(image, scaled), decoded):>10.2f}")


def _rate(count: int, once: Callable[[], object]) -> float:
    """Images a second, the median of three passes over all files."""
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        once()
        times.append(time.perf_counter() - begun)
    return count / statistics.median(times)


def _stream(manifest: Manifest, config: ImagePreprocessingConfig, threads: int = _CORES) -> None:
    images = StreamedImages(_decoder(manifest, config), Rejections(len(manifest.records)), threads)
    for rows in _batches(len(manifest.records)):
        images.load(rows)
    images.close()


def _kept(manifest: Manifest, config: ImagePreprocessingConfig) -> float:
    """Images a second after the first epoch."""
    decoder, count = _decoder(manifest, config), len(manifest.records)
    images = open_images(
        decoder,
        Rejections(count),
        cache=True,
        threads=0,
        device=torch.device("cpu"),
        processes=Processes(),
        show_progress=False,
    )
    return _rate(count, lambda: [images.load(rows) for rows in _batches(count)])


def _decoder(manifest: Manifest, config: ImagePreprocessingConfig) -> Decoder:
    return Decoder(manifest, ImagePreprocessing(config))


def _batches(count: int) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    rows = np.arange(count, dtype=np.int64)
    return [rows[start : start + _BATCH] for start in range(0, count, _BATCH)]


class _Files(Dataset[torch.Tensor]):
    """The usual data set of files: Pillow decodes, resizes the short side and crops the centre."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, place: int) -> torch.Tensor:
        image = Image.open(self._paths[place]).convert("RGB")
        factor = _SIZE / min(image.size)
        image = image.resize(
            (round(image.width * factor), round(image.height * factor)), Image.Resampling.BICUBIC
        )
        left, top = (image.width - _SIZE) // 2, (image.height - _SIZE) // 2
        square = image.crop((left, top, left + _SIZE, top + _SIZE))
        return torch.from_numpy(np.asarray(square).transpose(2, 0, 1).copy())


def _load_by_torch(paths: Sequence[Path]) -> None:
    for _ in DataLoader(_Files(paths), batch_size=_BATCH, num_workers=_CORES):
        pass


def _stage_ms(stage: Callable[[Item], object], items: Sequence[Item]) -> float:
    times = []
    for item in items[:48]:
        begun = time.perf_counter()
        stage(item)
        times.append(time.perf_counter() - begun)
    return 1000 * statistics.median(times)


def _report_embedding(bundle: Path, manifest: Manifest) -> None:
    """Images a second of the bulk embedder from files, and of its encoder on prepared images."""
    encoder = load_onnx_encoder(bundle, only="image", threads=_CORES) or load_encoder(bundle, only="image")
    with ThreadPoolExecutor(_CORES) as pool:
        prepared = pool.map(
            lambda record: encoder.prepare_image(
                decode_image(manifest.image_path(record), min_side=encoder.min_image_side)
            ),
            manifest.records,
        )
        images = np.stack(list(prepared))
    count = len(images)
    bare = _rate(count, lambda: [encoder.embed_images(images[rows]) for rows in _batches(count)])
    found = _rate(count, lambda: embed_manifest(encoder, manifest, texts=False, show_progress=False))
    typer.echo(
        f"\nembedding by {type(encoder).__name__}: {found:,.0f} images/s from files, {bare:,.0f} by the bare "
        f"encoder, ratio {found / bare:.2f}"
    )


if __name__ == "__main__":
    main()
