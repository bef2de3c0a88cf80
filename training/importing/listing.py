"""The list of images that a reader of a data set gives, and how it becomes a manifest."""

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from training.common.errors import DataError, ImageError
from training.common.host import decoding_threads
from training.common.manifest import write_manifest
from training.common.progress import ProgressBar, progress_bar
from training.common.record import Record
from training.common.rejections import LeftOut, Rejection, Rejections
from training.imaging.formats import is_heic, sniff_format
from training.imaging.images import ImageLimits
from training.imaging.processes.file_decoder import FileDecoder
from training.imaging.resizing import Square
from training.importing.copies import ReplacedManifest, settle
from training.importing.doubts import Doubt, find_doubt
from training.importing.examples import Examples
from training.importing.report import Contents, ImportReport, Tally, name_reasons

_LINK: Final = "images"
_SIGNATURE_BYTES: Final = 256
# A run with too many broken lines names so many before it stops.
_PATIENCE: Final = 100
# Files are read by so many threads, so many of a listing at a time: shares answer slowly.
_READERS: Final = 8
_READ_AT_ONCE: Final = 256
MOST_DECODED: Final = 2000
_FILES_A_PROCESS: Final = 8
# A JPEG file is decoded at a part of its size; nothing is done with the pixels.
_MIN_SIDE: Final = 224
_SQUARE: Final = Square(1, "squash", filter="nearest")
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
        left_out: Number of items that are left out beside these, for each reason; not in `total`.
        notes: Sentences on how the source was read, such as a column taken for another.
        extracted: Whether the images were written out of tables or shards: records of equal files are joined.
        decoded: Whether the reader has decoded the images.
        files: For a table, all files in the folder of images: with the reason for which one is no image, or
            "" for an image. The report then says which of them are taken.
    """

    source: Path
    images: Path
    total: int
    items: Iterator[Record | Rejection | LeftOut | Tally]
    unit: str = "line"
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: Sequence[str] = ()
    extracted: bool = False
    decoded: bool = False
    files: Mapping[str, str] | None = None


@dataclass
class _Found:
    """What an import has found so far.

    Attributes:
        rows: Number of rows of images that were decoded, and of others in the manifest.
        images: Images of the manifest, and whether each was decoded.
        contents: Texts and labels of the manifest.
        left_out: Number of items by the reason to leave them out.
        beside: Counts of other things, such as reports.
        doubts: Doubts about files, by their digests.
        decoded: Digests of the files that can be decoded.
    """

    rows: Counter[bool] = field(default_factory=Counter)
    images: dict[str, bool] = field(default_factory=dict)
    contents: Contents = field(default_factory=Contents)
    left_out: Counter[str] = field(default_factory=Counter)
    beside: list[Tally] = field(default_factory=list)
    doubts: dict[str | None, Doubt] = field(default_factory=dict)
    decoded: set[str | None] = field(default_factory=set)

    def write(self, record: Record, *, decoded: bool) -> None:
        """Count a record of the manifest."""
        if doubt := self.doubts.get(record.sha256):
            self.contents.doubts.setdefault(doubt, Examples()).add_words(
                lambda: repr(record.image), record.line
            )
        self.rows[decoded] += record.rows
        self.images[record.image] = decoded
        self.contents.add(record)


def write_listing(
    listing: Listing,
    out: Path,
    *,
    max_rejected: float = 1.0,
    most_decoded: int = MOST_DECODED,
    limits: ImageLimits | None = None,
) -> ImportReport:
    """Write the manifest of a data set into `out`; the images stay where they are.

    Where the images are not inside `out`, a link `out`/images to their folder is made. Files that cannot be
    decoded are refused; those in doubt are decoded first.

    Args:
        listing: What a reader gave.
        out: Folder of the manifest; made if need be.
        max_rejected: Largest share of items that may be refused, from 0 to 1.
        most_decoded: Number of files to decode.
        limits: What an image may cost.

    Raises:
        DataError: Too many items cannot be used, or none can, or `out` cannot be written. A manifest that is
            there stays.
    """
    rejections = Rejections(
        listing.total, max_rejected, source=str(listing.source), unit=listing.unit, patience=_PATIENCE
    )
    found = _Found(left_out=Counter(listing.left_out))
    try:
        out.mkdir(parents=True, exist_ok=True)
        prefix = _prefix(listing.images, out)
        with progress_bar("Importing", listing.total) as progress:
            records = list(_usable(listing, rejections, found, progress))
        if not listing.decoded:
            records = _decoded(listing, records, rejections, found, most_decoded, limits or ImageLimits())
        notes = list(listing.notes)
        replaced = ReplacedManifest.read(out)
        settled = settle(records, notes, extracted=listing.extracted, replaced=replaced, prefix=prefix)
        counted = _counted(listing, settled, prefix, rejections, found)
        written = write_manifest(out, counted, rejections=rejections)
    except OSError as error:
        raise DataError(f"The manifest cannot be written to {out}: {error.strerror or error}.") from error
    except DataError as error:
        if named := name_reasons(found.left_out):
            error.add_note(f"Left out: {'; '.join(named)}.")
        for note in listing.notes:
            error.add_note(note)
        raise
    notes += replaced.sentences(
        {prefix + one.image: one.sha256 for one in settled if one.image in found.images}
    )
    return ImportReport(
        out, written, rejections, list(_tallies(listing, rejections, found)), found.contents, notes
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
    listing: Listing, rejections: Rejections, found: _Found, progress: ProgressBar
) -> Iterator[Record]:
    """Records whose files begin as images do, with the digests of these; many are read at a time."""
    with ThreadPoolExecutor(_READERS) as pool:
        while items := list(islice(listing.items, _READ_AT_ONCE)):
            for item, looked in zip(items, pool.map(partial(_look_at, listing.images), items), strict=True):
                if isinstance(item, Tally):
                    found.beside.append(item)
                    continue
                progress.advance(_rows(item))
                if isinstance(item, LeftOut):
                    found.left_out[item.reason] += item.count
                elif isinstance(item, Rejection):
                    rejections.add(item.line, item.reason, item.table, item.rows)
                elif looked.refused:
                    rejections.add(item.line, looked.refused, item.table, item.rows)
                else:
                    if looked.doubt:
                        found.doubts[looked.sha256] = looked.doubt
                    yield replace(item, sha256=looked.sha256)


def _decoded(
    listing: Listing,
    records: list[Record],
    rejections: Rejections,
    found: _Found,
    most: int,
    limits: ImageLimits,
) -> list[Record]:
    """Decode up to so many files, those in doubt first, and refuse what cannot be decoded."""
    # Digests are in no order of the data set, so that the first ones are of all parts of it.
    order = sorted(
        {record.sha256: record.image for record in records}.items(),
        key=lambda item: (item[0] not in found.doubts, item[0]),
    )[:most]
    processes = min(decoding_threads(), 1 + len(order) // _FILES_A_PROCESS)
    refused: dict[str | None, str] = {}
    with (
        # Closed first, so that threads do not wait for files when the import is stopped.
        ThreadPoolExecutor(processes) as pool,
        FileDecoder(processes, isolated=True) as files,
        progress_bar("Decoding", len(order)) as progress,
    ):
        paths = (listing.images / image for _, image in order)
        for (digest, _), reason in zip(order, pool.map(partial(_fault, files, limits), paths), strict=True):
            progress.advance()
            if reason:
                refused[digest] = reason
            else:
                found.decoded.add(digest)
                # The decoder knows better.
                if found.doubts.get(digest) == "cut":
                    del found.doubts[digest]
    for record in records:
        if record.sha256 in refused:
            rejections.add(
                record.line, f"{record.image!r}: {refused[record.sha256]}", record.table, record.rows
            )
    return [record for record in records if record.sha256 not in refused]


def _fault(files: FileDecoder, limits: ImageLimits, path: Path) -> str:
    """Why a file cannot be decoded; "" if it can."""
    try:
        files.decode(path, limits, _MIN_SIDE, _SQUARE)
    except ImageError as error:
        return str(error)
    return ""


def _counted(
    listing: Listing, records: Sequence[Record], prefix: str, rejections: Rejections, found: _Found
) -> Iterator[Record]:
    for record in records:
        before = len(rejections)
        yield replace(record, image=prefix + record.image)
        # Only now is it known whether a manifest may have the record.
        if len(rejections) == before:
            found.write(record, decoded=listing.decoded or record.sha256 in found.decoded)
    # The manifest has no name yet: after an error the one of before stays.
    rejections.finish()
    if not found.images:
        raise rejections.error(f"Nothing of {listing.source} can be used, so no manifest is written.")


@dataclass(frozen=True, slots=True)
class _Looked:
    """What the bytes of a file tell: why it can be no image, or a doubt, and its digest."""

    refused: str = ""
    doubt: Doubt = ""
    sha256: str | None = None


def _look_at(images: Path, item: Record | Rejection | LeftOut | Tally) -> _Looked:
    """Read the file of a record."""
    if not isinstance(item, Record):
        return _Looked()
    path = f"{images}/{item.image}"
    if not os.path.isfile(path):  # noqa: PTH113
        return _Looked(f"there is no image {item.image!r} in {images}")
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            start = file.read(_SIGNATURE_BYTES)
            if not start:
                return _Looked(f"{item.image!r} is an empty file")
            doubt = find_doubt(file, sniff_format(start))
            file.seek(0)
            return _Looked(doubt=doubt, sha256=hashlib.file_digest(file, "sha256").hexdigest())
    except OSError as error:
        return _Looked(f"{item.image!r} cannot be read: {error.strerror or error}")
    except ImageError:
        if is_heic(start):
            way_out = "install recoquest[heic], or convert it to JPEG or PNG"
            return _Looked(f"{item.image!r} holds a HEIC image, which cannot be read ({way_out})")
        return _Looked(f"{item.image!r} is no image that can be read, whatever its name says")


def _rows(item: Record | Rejection | LeftOut) -> int:
    return item.count if isinstance(item, LeftOut) else item.rows


def _tallies(listing: Listing, rejections: Rejections, found: _Found) -> Iterator[Tally]:
    beside = sum(listing.left_out.values())
    unit = "row" if listing.unit == "line" else listing.unit
    rows = found.rows
    # The number of entries that a reader expects may be an estimate from below.
    total = max(listing.total + beside, rows.total() + len(rejections) + sum(found.left_out.values()))
    yield Tally(str(listing.source), unit, total, rows[True], len(rejections), found.left_out, rows[False])
    if listing.files is not None:
        without = {path: reason for path, reason in listing.files.items() if path not in found.images}
        reasons = Counter(reason or _UNNAMED for reason in without.values())
        total, decoded = len(without) + len(found.images), sum(found.images.values())
        listed = len(found.images) - decoded
        yield Tally(str(listing.images), "file", total, decoded, 0, reasons, listed)
    yield from found.beside
