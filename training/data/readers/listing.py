"""The list of images that a reader of a data set gives, and how it becomes a manifest."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from training.data.decoding.formats import is_heic, sniff_format
from training.data.manifest import write_manifest
from training.data.readers.common.examples import Examples
from training.data.readers.doubts import Doubt, find_doubt
from training.data.readers.report import Contents, ImportReport, Tally
from training.data.record import Record
from training.data.rejections import LeftOut, Rejection, Rejections
from training.errors import DataError, ImageError
from training.progress import ProgressBar, progress_bar

_LINK: Final = "images"
_SIGNATURE_BYTES: Final = 256
# A run with too many broken lines names so many before it stops.
_PATIENCE: Final = 100
_UNNAMED: Final = "images without a row that can be used"


@dataclass(frozen=True)
class Listing:
    """The images of a data set, one after the other.

    Attributes:
        source: The file that lists them.
        images: The folder that the records' paths start from.
        total: Number of rows or files to come, those of items that are left out among them.
        items: Records, what cannot be used, what is left out on purpose, and counts of other things, such as
            the reports of images.
        unit: What `source` lists, for messages.
        left_out: What is left out beside the items, and is not in `total`.
        notes: Sentences on how the source was read, such as a column taken for another.
        files: For a table, all files in the folder of images: with the reason for which one is no image, or
            "" for an image. The report then says which of them are taken.
    """

    source: Path
    images: Path
    total: int
    items: Iterator[Record | Rejection | LeftOut | Tally]
    unit: str = "line"
    left_out: Sequence[LeftOut] = ()
    notes: Sequence[str] = ()
    files: Mapping[str, str] | None = None


@dataclass
class _Taken:
    """Counts of an import so far: taken, and left out."""

    rows: int = 0
    images: set[str] = field(default_factory=set)
    contents: Contents = field(default_factory=Contents)
    left_out: Counter[str] = field(default_factory=Counter)
    beside: list[Tally] = field(default_factory=list)

    def take(self, record: Record, doubt: Doubt) -> None:
        if doubt:
            self.contents.doubts.setdefault(doubt, Examples()).add_words(
                lambda: repr(record.image), record.line
            )
        self.rows += record.rows
        self.images.add(record.image)
        self.contents.add(record)


def write_listing(listing: Listing, out: Path, *, max_rejected: float = 1.0) -> ImportReport:
    """Write the manifest of a data set into `out`; the images stay where they are.

    Where the images do not lie inside `out`, a link `out`/images to their folder is made.

    Args:
        listing: What a reader gave.
        out: Folder of the manifest; made if need be.
        max_rejected: Largest share of items that may be refused, from 0 to 1.

    Raises:
        DataError: Too many items cannot be used, or none, or `out` cannot be written.
    """
    rejections = Rejections(
        listing.total, max_rejected, source=str(listing.source), unit=listing.unit, patience=_PATIENCE
    )
    taken = _Taken()
    for left_out in listing.left_out:
        taken.left_out[left_out.reason] += left_out.count
    try:
        out.mkdir(parents=True, exist_ok=True)
        prefix = _prefix(listing.images, out)
        with progress_bar("Importing", listing.total) as progress:
            records = _usable(listing, prefix, rejections, taken, progress)
            written = write_manifest(out, records, rejections=rejections)
    except OSError as error:
        raise DataError(f"The manifest cannot be written to {out}: {error.strerror or error}.") from error
    except DataError as error:
        for note in listing.notes:
            error.add_note(note)
        raise
    return ImportReport(
        out, written, rejections, list(_tallies(listing, rejections, taken)), taken.contents, listing.notes
    )


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


def _usable(
    listing: Listing, prefix: str, rejections: Rejections, taken: _Taken, progress: ProgressBar
) -> Iterator[Record]:
    for item in listing.items:
        if isinstance(item, Tally):
            taken.beside.append(item)
            continue
        progress.advance(_rows(item))
        if isinstance(item, LeftOut):
            taken.left_out[item.reason] += item.count
        elif isinstance(item, Rejection):
            rejections.add(item.line, item.reason, item.table, item.rows)
        elif not os.path.isfile(f"{listing.images}/{item.image}"):  # noqa: PTH113
            reason = f"there is no image {item.image!r} in {listing.images}"
            rejections.add(item.line, reason, item.table, item.rows)
        elif reason := (looked := _look_at(f"{listing.images}/{item.image}"))[0]:
            rejections.add(item.line, f"{item.image!r} {reason}", item.table, item.rows)
        else:
            before = len(rejections)
            yield replace(item, image=prefix + item.image)
            # Only now is it known whether a manifest may have the record.
            if len(rejections) == before:
                taken.take(item, looked[1])
    # The manifest has no name yet: after an error the one before stays.
    rejections.finish()
    if rejections and not taken.rows:
        raise rejections.error(f"Nothing in {listing.source} can be used: mend it, or see the layouts.")


def _look_at(path: str) -> tuple[str, Doubt]:
    """Tell by its first bytes why a file can be no image; empty if it can, and then a doubt about it."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            start = file.read(_SIGNATURE_BYTES)
            if not start:
                return "is an empty file", ""
            return "", find_doubt(file, sniff_format(start))
    except OSError as error:
        return f"cannot be read: {error.strerror or error}", ""
    except ImageError:
        if is_heic(start):
            way_out = "install recoquest[heic], or convert it to JPEG or PNG"
            return f"holds a HEIC image, which cannot be read ({way_out})", ""
        return "is no image that can be read, whatever its name says", ""


def _rows(item: Record | Rejection | LeftOut) -> int:
    return item.count if isinstance(item, LeftOut) else item.rows


def _tallies(listing: Listing, rejections: Rejections, taken: _Taken) -> Iterator[Tally]:
    beside = sum(left_out.count for left_out in listing.left_out)
    unit = "row" if listing.unit == "line" else listing.unit
    # The number of entries that a reader expects may be an estimate from below.
    found = max(listing.total + beside, taken.rows + len(rejections) + sum(taken.left_out.values()))
    yield Tally(str(listing.source), unit, found, taken.rows, len(rejections), taken.left_out)
    if listing.files is not None:
        without = {path: reason for path, reason in listing.files.items() if path not in taken.images}
        reasons = Counter(reason or _UNNAMED for reason in without.values())
        found = len(without) + len(taken.images)
        yield Tally(str(listing.images), "file", found, len(taken.images), 0, reasons)
    yield from taken.beside
