"""Writes drawn images and their records as a manifest folder."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from PIL import Image

from training.common.manifest import write_manifest
from training.common.progress import ProgressBar
from training.common.record import Record, Split

_QUALITY: Final = 92
_SPLITS: Final[tuple[Split, ...]] = (
    "train",
    "train",
    "val",
    "train",
    "test",
    "train",
    "train",
    "test",
    "train",
    "train",
)


def split_of(number: int) -> Split:
    """The split of the group or image of that number: of ten, seven train, one val, two test."""
    return _SPLITS[number % len(_SPLITS)]


def write_collection(
    folder: Path, items: Iterable[tuple[Record, Image.Image]], *, about: str, progress: ProgressBar
) -> None:
    """Save each image as JPEG where its record says, then the manifest and a README."""
    (folder / "images").mkdir(parents=True)
    write_manifest(folder, _save_each(folder, items, progress))
    (folder / "README.md").write_text(about, encoding="utf-8")


def _save_each(
    folder: Path, items: Iterable[tuple[Record, Image.Image]], progress: ProgressBar
) -> Iterator[Record]:
    for record, image in items:
        image.save(folder / record.image, "JPEG", quality=_QUALITY)
        yield record
        progress.advance()
