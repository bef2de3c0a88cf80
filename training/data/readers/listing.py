"""What a reader of a published data set gives, and how it becomes a manifest."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from training.data.manifest import write_manifest
from training.data.record import Record
from training.data.rejections import Rejection, Rejections
from training.errors import DataError
from training.progress import ProgressBar, progress_bar

_LINK = "images"


@dataclass(frozen=True)
class Listing:
    """The images of a data set, one after the other.

    Attributes:
        source: The file that lists them.
        images: The folder that the records' paths start from.
        total: Number of items to come.
        items: Records, and what had to be left out.
        unit: What `source` lists, for messages.
    """

    source: Path
    images: Path
    total: int
    items: Iterator[Record | Rejection]
    unit: str = "line"


@dataclass(frozen=True)
class ImportReport:
    """What an import did."""

    folder: Path
    records: int
    rejections: Rejections


def write_listing(listing: Listing, out: Path, *, max_rejected: float = 0.01) -> ImportReport:
    """Write the manifest of a data set into `out`; the images stay where they are.

    Where the images do not lie inside `out`, a link `out`/images to their folder is made.

    Args:
        listing: What a reader gave.
        out: Folder of the manifest; made if need be.
        max_rejected: Largest share of items that may be left out, from 0 to 1.

    Raises:
        DataError: Too many items cannot be used, or `out` cannot be written.
    """
    rejections = Rejections(listing.total, max_rejected, source=str(listing.source), unit=listing.unit)
    try:
        out.mkdir(parents=True, exist_ok=True)
        prefix = _prefix(listing.images, out)
        with progress_bar("Importing", listing.total) as progress:
            records = _usable(listing, prefix, rejections, progress)
            written = write_manifest(out, records, rejections=rejections)
    except OSError as error:
        raise DataError(f"The manifest cannot be written to {out}: {error.strerror or error}.") from error
    return ImportReport(out, written, rejections)


def _prefix(images: Path, out: Path) -> str:
    """The path from `out` to the images, over a link if they lie elsewhere."""
    images, out = images.resolve(), out.resolve()
    if images.is_relative_to(out):
        inside = images.relative_to(out).as_posix()
        return "" if inside == "." else f"{inside}/"
    link = out / _LINK
    if not link.is_symlink() and not link.exists():
        link.symlink_to(images, target_is_directory=True)
    if link.resolve() != images:
        raise DataError(
            f"{link} is there already and does not lead to {images}; remove it or choose another folder."
        )
    return f"{_LINK}/"


def _usable(listing: Listing, prefix: str, rejections: Rejections, progress: ProgressBar) -> Iterator[Record]:
    for item in listing.items:
        progress.advance()
        if isinstance(item, Rejection):
            rejections.add(item.line, item.reason, item.table)
        elif not os.path.isfile(f"{listing.images}/{item.image}"):  # noqa: PTH113
            reason = f"there is no image {item.image!r} in {listing.images}"
            rejections.add(item.line, reason, item.table)
        else:
            yield replace(item, image=prefix + item.image)
