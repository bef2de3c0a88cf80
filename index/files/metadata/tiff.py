"""TIFF files without their metadata (TIFF 6.0): whatever no kept tag refers to is overwritten in place."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from index.files.metadata.errors import metadata_error
from index.files.metadata.jpeg import blank_jpeg_metadata
from index.files.metadata.orientation import ORIENTATION_TAG, orientation_of

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _SAMPLES, _ROWS = 256, 257, 258, 259, 277, 278
_STRIP_OFFSETS, _STRIP_BYTES, _TILE_OFFSETS, _TILE_BYTES = 273, 279, 324, 325
_TILE_WIDTH, _TILE_HEIGHT, _JPEG_TABLES, _XMP = 322, 323, 347, 700
_PHOTOMETRIC, _PLANES = 262, 284
_SUBSAMPLED, _SEPARATE = 6, 2
_UNCOMPRESSED, _OLD_JPEG, _JPEG = 1, 6, 7
# Tags that pixels, colours, sizes and pages depend on; 34675 is the colour profile.
_KEPT: Final = frozenset(
    {*range(254, 260), *range(262, 267), *range(273, 275), *range(277, 285), *range(290, 294), 296, 297, 301}
    | {*range(317, 329), 332, 334, 336, *range(338, 343), 347, *range(529, 533), 32997, 34675, 50674}
)
_SIZES: Final = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}
_BIG_SIZES: Final = {16: 8, 17: 8, 18: 8}
_NUMBERS: Final = {1: "B", 3: "H", 4: "I", 13: "I", 16: "Q", 18: "Q"}
_SHORT: Final = 3
_MOST_PAGES: Final = 1_000
_MOST_ENTRIES: Final = 4_096
_MOST_ENTRIES_OF_ALL: Final = 65_536
# Strips and tiles of all pages.
_MOST_PARTS: Final = 200_000

_Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Entry:
    tag: int
    kind: int
    count: int
    value: bytes
    place: _Range | None


@dataclass(slots=True)
class _Page:
    place: int
    table: _Range
    following: int
    kept: list[_Entry] = field(default_factory=list)
    parts: list[_Range] = field(default_factory=list)
    is_jpeg: bool = False


@dataclass(frozen=True, slots=True)
class _Form:
    """Byte order and widths of a file: those of TIFF, or of BigTIFF."""

    order: str
    big: bool

    @property
    def header_bytes(self) -> int:
        return 16 if self.big else 8

    @property
    def pointer(self) -> struct.Struct:
        return struct.Struct(self.order + ("Q" if self.big else "I"))

    @property
    def number(self) -> struct.Struct:
        return struct.Struct(self.order + ("Q" if self.big else "H"))

    @property
    def entry(self) -> struct.Struct:
        return struct.Struct(self.order + ("HHQ8s" if self.big else "HHI4s"))

    def sizes(self) -> dict[int, int]:
        return {**_SIZES, **_BIG_SIZES} if self.big else _SIZES


def strip_tiff(content: bytes) -> bytes:
    """Return the file with the pixels and the colour profile of its pages; they stay where they lie.

    Texts, EXIF, GPS and XMP data, smaller copies and unused bytes are overwritten with zeros.

    Raises:
        ImageError: Its directories cannot be followed.
    """
    form = _Form("<" if content[:2] == b"II" else ">", content[2:4] in (b"+\0", b"\0+"))
    try:
        pages = list(_pages(content, form))
    except (struct.error, OverflowError):
        raise metadata_error("TIFF", "it ends before its directories do") from None
    ranges = [(0, form.header_bytes)]
    for page in pages:
        ranges += [page.table, *page.parts, *(entry.place for entry in page.kept if entry.place)]
    stripped = bytearray(max(end for _, end in ranges))
    for start, end in _merged(ranges):
        stripped[start:end] = content[start:end]
    for page in pages:
        _write(stripped, page, form)
    for page in pages:
        if page.is_jpeg:
            _blank_streams(stripped, page)
    return bytes(stripped)


def _pages(content: bytes, form: _Form) -> Iterator[_Page]:
    """Walk over the chain of directories."""
    (place,) = form.pointer.unpack_from(content, form.header_bytes - form.pointer.size)
    seen: set[int] = set()
    parts, total = 0, 0
    while place and place not in seen:
        seen.add(place)
        (entries,) = form.number.unpack_from(content, place)
        total += entries
        if len(seen) > _MOST_PAGES or entries > _MOST_ENTRIES or total > _MOST_ENTRIES_OF_ALL:
            raise metadata_error(
                "TIFF", f"it has over {_MOST_PAGES:,} pages, or over {_MOST_ENTRIES:,} tags in one"
            )
        end = place + form.number.size + entries * form.entry.size
        (following,) = form.pointer.unpack_from(content, end)
        found = [_entry(content, form, end - (entries - n) * form.entry.size) for n in range(entries)]
        page = _Page(place, (place, end + form.pointer.size), 0 if following in seen else following)
        page.kept = [entry for entry in found if entry is not None and entry.tag in _KEPT]
        _keep_orientation(page, found, content, form)
        page.parts = _parts(content, page.kept, form, _MOST_PARTS - parts)
        parts += len(page.parts)
        page.is_jpeg = _first(page.kept, _COMPRESSION, form, content) == _JPEG
        yield page
        place = following
    if not seen:
        raise metadata_error("TIFF", "it has no directory")


def _entry(content: bytes, form: _Form, place: int) -> _Entry | None:
    """Read an entry; None for one of an unknown type or whose values lie outside of the file."""
    tag, kind, count, raw = form.entry.unpack_from(content, place)
    size = form.sizes().get(kind, 0) * count
    if not size:
        return None
    if size <= len(raw):
        # The rest of the field has no meaning.
        return _Entry(tag, kind, count, raw[:size].ljust(len(raw), b"\0"), None)
    (start,) = form.pointer.unpack(raw)
    if start + size > len(content):
        return None
    return _Entry(tag, kind, count, raw, (start, start + size))


def _keep_orientation(page: _Page, found: Sequence[_Entry | None], content: bytes, form: _Form) -> None:
    """Write an orientation that the XMP data alone has into the place of its tag."""
    packet = next((entry for entry in found if entry is not None and entry.tag == _XMP), None)
    if packet is None or packet.place is None or any(item.tag == ORIENTATION_TAG for item in page.kept):
        return
    orientation = orientation_of(None, content[slice(*packet.place)])
    if orientation != 1:
        value = struct.pack(f"{form.order}H", orientation).ljust(form.pointer.size, b"\0")
        page.kept.append(_Entry(ORIENTATION_TAG, _SHORT, 1, value, None))
        page.kept.sort(key=lambda entry: entry.tag)


def _parts(content: bytes, entries: Sequence[_Entry], form: _Form, most: int) -> list[_Range]:
    """Return where the strips and tiles of a page lie."""
    compression = _first(entries, _COMPRESSION, form, content) or _UNCOMPRESSED
    if compression == _OLD_JPEG:
        raise metadata_error("TIFF", "its compression is the old form of JPEG")
    ranges = []
    for offsets_tag, bytes_tag in ((_STRIP_OFFSETS, _STRIP_BYTES), (_TILE_OFFSETS, _TILE_BYTES)):
        offsets = _values(entries, offsets_tag, form, content, most)
        sizes = _values(entries, bytes_tag, form, content, most)
        if compression == _UNCOMPRESSED:
            # The decoder goes by the size of the picture, whatever the file says.
            least = _part_sizes(entries, form, content, len(offsets), tiled=offsets_tag == _TILE_OFFSETS)
            given = [*sizes, *[0] * (len(offsets) - len(sizes))]
            sizes = [max(size, part) for size, part in zip(given, least, strict=False)]
        elif len(sizes) < len(offsets) or not all(sizes):
            raise metadata_error("TIFF", "it does not say how long its strips are")
        pairs = zip(offsets, sizes, strict=False)
        ends = ((start, min(len(content), start + size)) for start, size in pairs)
        ranges += [(start, end) for start, end in ends if start < end]
    return ranges


def _part_sizes(
    entries: Sequence[_Entry], form: _Form, content: bytes, parts: int, *, tiled: bool
) -> list[int]:
    """Return the bytes of each uncompressed strip or tile; zeros where colours are subsampled."""

    def first(tag: int, default: int) -> int:
        value = _first(entries, tag, form, content)
        return default if value is None else value

    if first(_PHOTOMETRIC, 0) == _SUBSAMPLED:
        return [0] * parts
    width, height = first(_WIDTH, 0), first(_HEIGHT, 0)
    samples = 1 if first(_PLANES, 1) == _SEPARATE else first(_SAMPLES, 1)
    if tiled:
        width, rows = first(_TILE_WIDTH, width), [first(_TILE_HEIGHT, height)] * parts
    else:
        each = max(1, min(first(_ROWS, height), height))
        strips = max(1, -(-height // each))
        rows = [min(each, height - number % strips * each) for number in range(parts)]
    row = (width * samples * first(_BITS, 1) + 7) // 8
    return [row * count for count in rows]


def _first(entries: Sequence[_Entry], tag: int, form: _Form, content: bytes) -> int | None:
    entry = next((entry for entry in entries if entry.tag == tag and entry.kind in _NUMBERS), None)
    return None if entry is None else _unpacked(entry, 1, form, content)[0]


def _values(entries: Sequence[_Entry], tag: int, form: _Form, content: bytes, most: int) -> Sequence[int]:
    """Return the whole numbers of a tag."""
    entry = next((entry for entry in entries if entry.tag == tag and entry.kind in _NUMBERS), None)
    if entry is None:
        return []
    if entry.count > most:
        raise metadata_error("TIFF", f"it has over {_MOST_PARTS:,} strips and tiles")
    return _unpacked(entry, entry.count, form, content)


def _unpacked(entry: _Entry, count: int, form: _Form, content: bytes) -> Sequence[int]:
    source, start = (entry.value, 0) if entry.place is None else (content, entry.place[0])
    return struct.unpack_from(f"{form.order}{count}{_NUMBERS[entry.kind]}", source, start)


def _write(stripped: bytearray, page: _Page, form: _Form) -> None:
    """Write the directory of a page in its old place, without the tags that are removed."""
    start, end = page.table
    entries = [form.entry.pack(entry.tag, entry.kind, entry.count, entry.value) for entry in page.kept]
    table = form.number.pack(len(entries)) + b"".join(entries) + form.pointer.pack(page.following)
    stripped[start:end] = table.ljust(end - start, b"\0")


def _blank_streams(stripped: bytearray, page: _Page) -> None:
    """Overwrite comments inside of JPEG streams."""
    tables = [entry.place for entry in page.kept if entry.tag == _JPEG_TABLES and entry.place]
    for start, end in (*page.parts, *tables):
        stream = stripped[start:end]
        blank_jpeg_metadata(stream)
        stripped[start:end] = stream


def _merged(ranges: Sequence[_Range]) -> Iterator[_Range]:
    """Join ranges that overlap, so that each byte is copied once."""
    first, *rest = sorted(ranges)
    start, end = first
    for next_start, next_end in rest:
        if next_start > end:
            yield start, end
            start, end = next_start, next_end
        end = max(end, next_end)
    yield start, end
