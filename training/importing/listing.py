"""The images that a layout's reader lists, and how they become a manifest."""

import hashlib
import os
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final

from PIL.ExifTags import Base as Tag

from training.common.errors import DataError, ImageError
from training.common.host import decoding_threads
from training.common.manifest import write_manifest
from training.common.progress import progress_bar
from training.common.record import Record
from training.common.rejections import LeftOut, Rejection, Rejections
from training.imaging.formats import is_heic, sniff_format
from training.imaging.images import ImageLimits
from training.imaging.jpeg import END_OF_IMAGE, EOI, segments
from training.imaging.processes.file_decoder import FileDecoder
from training.imaging.resizing import Square
from training.imaging.tiff import first_page, number, read_tags
from training.importing.report import Contents, Doubt, Examples, ImportReport, Tally, name_reasons
from training.importing.splits import ReplacedManifest, settle

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
_ENDS: Final = {"JPEG": END_OF_IMAGE, "PNG": b"IEND"}
_TAIL_BYTES: Final = 64
# Larger files are not read whole for a doubt.
_MOST_BYTES: Final = 1 << 26
_MOST_PAGES: Final = 16
_MOST_BOXES: Final = 1000
_LARGE_BOX: Final = b"\0\0\0\1"


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
        left_out: Number of further items that are left out, for each reason; not in `total`.
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


def write_listing(
    listing: Listing,
    out: Path,
    *,
    max_rejected: float = 1.0,
    most_decoded: int = MOST_DECODED,
    limits: ImageLimits | None = None,
) -> ImportReport:
    """Write the manifest of a data set into `out`, which is made if need be; the images stay where they are.

    Where the images are not inside `out`, a link `out`/images to their folder is made. Files that cannot be
    decoded are refused; those in doubt are decoded first.

    At most the share `max_rejected` of items may be refused.

    Raises:
        DataError: Too many items cannot be used, or none can, or `out` cannot be written. A manifest that is
            there stays.
    """
    rejections = Rejections(
        listing.total, max_rejected, source=str(listing.source), unit=listing.unit, patience=_PATIENCE
    )
    run = _Import(listing, rejections, Counter(listing.left_out))
    try:
        out.mkdir(parents=True, exist_ok=True)
        prefix = _prefix(listing.images, out)
        records = list(run.usable())
        if not listing.decoded:
            records = run.decodable(records, most_decoded, limits or ImageLimits())
        notes = list(listing.notes)
        replaced = ReplacedManifest.read(out)
        settled = settle(records, notes, extracted=listing.extracted, replaced=replaced, prefix=prefix)
        written = write_manifest(out, run.counted(settled, prefix), rejections=rejections)
    except OSError as error:
        raise DataError(f"The manifest cannot be written to {out}: {error.strerror or error}.") from error
    except DataError as error:
        if reasons := name_reasons(run.left_out):
            error.add_note(f"Left out: {'; '.join(reasons)}.")
        for note in listing.notes:
            error.add_note(note)
        raise
    notes += replaced.sentences(
        {prefix + one.image: one.sha256 for one in settled if one.image in run.images}
    )
    return ImportReport(out, written, rejections, list(run.tallies()), run.contents, notes)


def _prefix(images: Path, out: Path) -> str:
    """The path from `out` to the images, through a link if they are elsewhere."""
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


@dataclass
class _Import:
    """What has become of a listing so far.

    Attributes:
        rows: Number of rows of images that were decoded, and of others in the manifest.
        images: Images of the manifest, and whether each was decoded.
        decoded: Digests of the files that can be decoded.
    """

    listing: Listing
    rejections: Rejections
    left_out: Counter[str]
    rows: Counter[bool] = field(default_factory=Counter)
    images: dict[str, bool] = field(default_factory=dict)
    contents: Contents = field(default_factory=Contents)
    others: list[Tally] = field(default_factory=list)
    doubts: dict[str | None, Doubt] = field(default_factory=dict)
    decoded: set[str | None] = field(default_factory=set)

    def usable(self) -> Iterator[Record]:
        """Records whose files begin as images do, with the digests of these; many are read at a time."""
        look = partial(_look_at, self.listing.images)
        with progress_bar("Importing", self.listing.total) as progress, ThreadPoolExecutor(_READERS) as pool:
            while items := list(islice(self.listing.items, _READ_AT_ONCE)):
                for item, (refused, doubt, digest) in zip(items, pool.map(look, items), strict=True):
                    if isinstance(item, Tally):
                        self.others.append(item)
                        continue
                    progress.advance(item.count if isinstance(item, LeftOut) else item.rows)
                    if isinstance(item, LeftOut):
                        self.left_out[item.reason] += item.count
                    elif isinstance(item, Rejection):
                        self.rejections.add(item.line, item.reason, item.table, item.rows)
                    elif refused:
                        self.rejections.add(item.line, refused, item.table, item.rows)
                    else:
                        if doubt:
                            self.doubts[digest] = doubt
                        yield replace(item, sha256=digest)

    def decodable(self, records: list[Record], most: int, limits: ImageLimits) -> list[Record]:
        """Decode up to so many files, those in doubt first, and refuse what cannot be decoded."""
        # Digests are in no order of the data set, so that the first ones are of all parts of it.
        order = sorted(
            {record.sha256: record.image for record in records}.items(),
            key=lambda item: (item[0] not in self.doubts, item[0]),
        )[:most]
        processes = min(decoding_threads(), 1 + len(order) // _FILES_A_PROCESS)
        refused: dict[str | None, str] = {}
        with (
            # Closed first, so that threads do not wait for files when the import is stopped.
            ThreadPoolExecutor(processes) as pool,
            FileDecoder(processes, isolated=True) as files,
            progress_bar("Decoding", len(order)) as progress,
        ):
            paths = (self.listing.images / image for _, image in order)
            reasons = pool.map(partial(_why_not_decoded, files, limits), paths)
            for (digest, _), reason in zip(order, reasons, strict=True):
                progress.advance()
                if reason:
                    refused[digest] = reason
                    continue
                self.decoded.add(digest)
                # The decoder knows better.
                if self.doubts.get(digest) == "cut":
                    del self.doubts[digest]
        for record in records:
            if reason := refused.get(record.sha256, ""):
                self.rejections.add(record.line, f"{record.image!r}: {reason}", record.table, record.rows)
        return [record for record in records if record.sha256 not in refused]

    def counted(self, records: Sequence[Record], prefix: str) -> Iterator[Record]:
        """Give records as the manifest has them, and count those that it takes."""
        for record in records:
            before = len(self.rejections)
            yield replace(record, image=prefix + record.image)
            # Only now is it known whether a manifest may have the record.
            if len(self.rejections) > before:
                continue
            if doubt := self.doubts.get(record.sha256):
                self.contents.doubts.setdefault(doubt, Examples()).note(repr(record.image))
            decoded = self.listing.decoded or record.sha256 in self.decoded
            self.rows[decoded] += record.rows
            self.images[record.image] = decoded
            self.contents.add(record)
        # The manifest has no name yet: after an error the one of before stays.
        self.rejections.finish()
        if not self.images:
            raise self.rejections.error(
                f"Nothing of {self.listing.source} can be used, so no manifest is written."
            )

    def tallies(self) -> Iterator[Tally]:
        """Count rows or files of the source, then those in the folder of images, then other things."""
        listing, rows, refused = self.listing, self.rows, len(self.rejections)
        unit = "row" if listing.unit == "line" else listing.unit
        # The number of entries that a reader expects may be an estimate from below.
        total = max(
            listing.total + sum(listing.left_out.values()),
            rows.total() + refused + sum(self.left_out.values()),
        )
        yield Tally(str(listing.source), unit, total, rows[True], refused, self.left_out, rows[False])
        if listing.files is not None:
            others = [reason for path, reason in listing.files.items() if path not in self.images]
            reasons = Counter(reason or _UNNAMED for reason in others)
            total, decoded = len(others) + len(self.images), sum(self.images.values())
            listed = len(self.images) - decoded
            yield Tally(str(listing.images), "file", total, decoded, 0, reasons, listed)
        yield from self.others


def _look_at(images: Path, item: Record | Rejection | LeftOut | Tally) -> tuple[str, Doubt, str | None]:
    """Read a record's file: why it can be no image, or a doubt, and its digest."""
    if not isinstance(item, Record):
        return "", "", None
    path = f"{images}/{item.image}"
    if not os.path.isfile(path):  # noqa: PTH113
        return f"there is no image {item.image!r} in {images}", "", None
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            start = file.read(_SIGNATURE_BYTES)
            if not start:
                return f"{item.image!r} is an empty file", "", None
            doubt = _find_doubt(file, sniff_format(start))
            file.seek(0)
            return "", doubt, hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return f"{item.image!r} cannot be read: {error.strerror or error}", "", None
    except ImageError:
        if is_heic(start):
            way_out = "install recoquest[heic], or convert it to JPEG or PNG"
            return f"{item.image!r} holds a HEIC image, which cannot be read ({way_out})", "", None
        return f"{item.image!r} is no image that can be read, whatever its name says", "", None


def _why_not_decoded(files: FileDecoder, limits: ImageLimits, path: Path) -> str:
    try:
        files.decode(path, limits, _MIN_SIDE, _SQUARE)
    except ImageError as error:
        return str(error)
    return ""


def _find_doubt(file: BinaryIO, format_name: str) -> Doubt:
    """Why the picture in an open file may not be what its owner expects; "" without a doubt.

    A file is cut if it does not have the end of its format: a JPEG file the mark to which its segments lead,
    a PNG file its last chunk, others as many bytes as their parts say. A TIFF file may begin with a page that
    is smaller than another one and is not marked as a preview.
    """
    with suppress(OSError):
        size = os.fstat(file.fileno()).st_size
        if format_name == "TIFF":
            return "preview" if size <= _MOST_BYTES and _has_larger_page(file) else ""
        return "cut" if _is_cut(file, size, format_name) else ""
    return ""


def _is_cut(file: BinaryIO, size: int, format_name: str) -> bool:
    if format_name == "WebP":
        file.seek(4)
        return int.from_bytes(file.read(4), "little") + 8 > size + 1
    if format_name in ("AVIF", "HEIC"):
        return _has_cut_box(file, size)
    if (end := _ENDS.get(format_name)) is None or size > _MOST_BYTES:
        return False
    file.seek(max(0, size - _TAIL_BYTES))
    if size > _TAIL_BYTES and end in file.read():
        return False
    file.seek(0)
    content = file.read()
    if format_name == "PNG":
        return end not in content
    try:
        # Exif data ahead may hold a whole thumbnail.
        return all(segment.marker != EOI for segment in segments(content, ImageError))
    except ImageError:
        return True


def _has_cut_box(file: BinaryIO, size: int) -> bool:
    position = 0
    for _ in range(_MOST_BOXES):
        file.seek(position)
        head = file.read(16)
        length = int.from_bytes(head[8:16] if head[:4] == _LARGE_BOX else head[:4])
        # A box without a length goes to the end.
        if position >= size or length < 8:
            break
        position += length
    return position > size


def _has_larger_page(file: BinaryIO) -> bool:
    file.seek(0)
    content = file.read()
    areas: list[int] = []
    # Pillow warns of damaged directories, and raises whatever their bytes lead to.
    with warnings.catch_warnings(action="ignore"), suppress(Exception):
        taken = first_page(content, _MOST_PAGES)
        for page in range(_MOST_PAGES):
            tags = read_tags(content, page)
            areas.append(number(tags, Tag.ImageWidth, 0) * number(tags, Tag.ImageLength, 0))
    return bool(areas) and areas[min(taken, len(areas) - 1)] < max(areas)
