"""Removal of metadata from image files: position, names, serial numbers, comments; pixels stay bit by bit.

Files are never decoded and encoded anew: that would take a second for a photograph, 20 times the bytes of an
AVIF or a HEIC, and give other bytes, so another identity, with each version of the encoder.
"""

import io
import struct
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import Final, NamedTuple

from PIL import Image
from PIL.ExifTags import Base as Tag

from training.common.errors import ImageError
from training.imaging.formats import (
    GIF_IMAGE,
    Box,
    TiffForm,
    check_structure,
    gif_blocks,
    sniff_format,
    walk_boxes,
    webp_chunks,
)
from training.imaging.images import read_orientation
from training.imaging.jpeg import (
    APP0,
    APP1,
    APP2,
    APP14,
    APP15,
    COM,
    EXIF_PREFIX,
    SOS,
    START_OF_IMAGE,
    pack_picture,
    pack_segment,
    segments,
)
from training.imaging.png import SIGNATURE_BYTES, clean_png, png_chunks

_Range = tuple[int, int]


def strip_metadata(content: bytes) -> bytes:
    """Return an image file without position, names, serial numbers, times, comments and thumbnails.

    Everything that the picture depends on stays: coded pixels bit by bit, orientation, colour profile,
    frames. A file without metadata is returned as it is. DICOM files are for `training.clinical.dicom.films`.

    Raises:
        ImageTooLargeError: The file has more parts than any program writes.
        ImageError: It is no image that can be read, or its parts cannot be followed.
    """
    format_name = sniff_format(content)
    check_structure(content, format_name)
    return _STRIPPERS[format_name](content)


def _error(format_name: str, reason: str) -> ImageError:
    """Return the error of a file whose parts cannot be followed; the reason is a clause about the file."""
    return ImageError(
        f"The {format_name} image cannot be stored: {reason}, so that its metadata cannot be removed; "
        "save it anew."
    )


def _only(content: bytes, ranges: Sequence[_Range]) -> bytearray:
    """Return the file up to the end of its last range, with zeros wherever no range is."""
    kept = bytearray(max(end for _, end in ranges))
    offset = 0
    for start, end in sorted(ranges):
        start = max(start, offset)
        if start < end:
            kept[start:end] = content[start:end]
            offset = end
    return kept


# Orientation: the one value of EXIF and XMP data that pixels depend on.

_SHORT: Final = 3
_TURNED: Final = range(2, 9)


def _find_orientation(exif: bytes | None, xmp: bytes | None) -> int:
    """Return the orientation, 1 to 8, as the decoder finds it: in the EXIF data, else in the XMP data."""
    image = Image.new("1", (1, 1))
    image.info = {"exif": exif, "xmp": xmp}
    orientation = read_orientation(image)
    return orientation if orientation in _TURNED else 1


def _exif(orientation: int) -> bytes:
    """Return EXIF data (a TIFF header and a directory) that gives an orientation."""
    return struct.pack("<2sHIHHHIHHI", b"II", 42, 8, 1, Tag.Orientation, _SHORT, 1, orientation, 0, 0)


# JPEG: application segments and comments (ITU-T T.81, annex B).

_XMP_PREFIX: Final = b"http://ns.adobe.com/xap/1.0/\0"
_ICC_PREFIX: Final = b"ICC_PROFILE\0"
_JPEG_ERROR: Final = partial(_error, "JPEG")


def _strip_jpeg(content: bytes) -> bytes:
    """Return the file with its tables, frames and scans, colour profile and orientation, and nothing else.

    What follows the end of the image is dropped, such as further images of a multi-picture file or a film.
    """
    jfif, kept, exif = [], [], []
    xmp, has_scan = b"", False
    for marker, _, payload, _ in segments(content, _JPEG_ERROR):
        has_scan = has_scan or marker == SOS
        if marker == APP0:
            jfif.append(pack_picture(marker, payload))
        elif marker == APP2 and payload.startswith(_ICC_PREFIX):
            kept.append(pack_segment(marker, payload))
        else:
            kept.append(pack_picture(marker, payload))
        # The decoder reads no more of them than this.
        if marker == APP1 and not has_scan and payload.startswith(EXIF_PREFIX):
            exif.append(payload.removeprefix(EXIF_PREFIX))
        elif marker == APP1 and not has_scan and payload.startswith(_XMP_PREFIX):
            xmp = payload.removeprefix(_XMP_PREFIX)
    orientation = _find_orientation(b"".join(exif), xmp)
    turned = [] if orientation == 1 else [pack_segment(APP1, EXIF_PREFIX + _exif(orientation))]
    return b"".join([START_OF_IMAGE, *jfif, *turned, *kept])


# PNG: texts, times, EXIF data, unknown chunks (PNG, third edition).

# Animations, colours and sizes of pixels; all others don't describe the picture.
_KEPT_CHUNKS: Final = frozenset(
    {b"tRNS", b"gAMA", b"cHRM", b"sRGB", b"iCCP", b"cICP", b"mDCV", b"cLLI", b"sBIT", b"bKGD", b"pHYs"}
    | {b"hIST", b"acTL", b"fcTL", b"fdAT"}
)
_CRITICAL_CHUNKS: Final = frozenset({b"IHDR", b"PLTE", b"IDAT", b"IEND"})
# Uncompressed, as the decoder reads it.
_PNG_XMP: Final = b"XML:com.adobe.xmp\0\0"


def _strip_png(content: bytes) -> bytes:
    """Return the file with what its pixels and colours depend on, its orientation, and nothing else.

    Of a file that was cut within its pixels, those that are left stay.
    """
    head, tail, kind, has_pixels = [content[:SIGNATURE_BYTES]], list[bytes](), b"", False
    for kind, offset, end in png_chunks(content):
        if end > len(content) and has_pixels:
            tail.append(content[offset:] if kind == b"IDAT" else b"")
            break
        if end > len(content) or not (kind.isalpha() and kind.isascii()):
            raise _error("PNG", "its chunks cannot be followed")
        if kind not in _CRITICAL_CHUNKS and kind[:1].isupper():
            raise _error("PNG", f"it has a chunk of the unknown kind {kind.decode('ascii')}")
        if kind in _CRITICAL_CHUNKS or kind in _KEPT_CHUNKS:
            (tail if tail or kind in (b"IDAT", b"fcTL") else head).append(content[offset:end])
        has_pixels = has_pixels or kind == b"IDAT"
    if kind != b"IEND" and not has_pixels:
        raise _error("PNG", "its chunks cannot be followed")
    # The orientation counts by the chunks that the decoder reads.
    exif, xmp, cleaned = None, None, clean_png(content)[0]
    for kind, offset, end in png_chunks(cleaned):
        if kind == b"eXIf":
            exif = cleaned[offset + 8 : end - 4]
        elif kind == b"iTXt" and cleaned.startswith(_PNG_XMP, offset + 8):
            xmp = cleaned[offset + 8 + len(_PNG_XMP) : end - 4]
    orientation = _find_orientation(exif, xmp)
    if orientation != 1:
        data = b"eXIf" + _exif(orientation)
        head.append((len(data) - 4).to_bytes(4) + data + zlib.crc32(data).to_bytes(4))
    return b"".join([*head, *tail])


# WebP: EXIF, XMP and chunks of unknown kinds (RFC 9649).

_SIMPLE: Final = frozenset({b"VP8 ", b"VP8L"})
_KEPT_WEBP: Final = frozenset({b"VP8X", b"ICCP", b"ANIM", b"ANMF", b"ALPH", *_SIMPLE})
_OF_A_FRAME: Final = frozenset({b"ALPH", *_SIMPLE})
_FRAME_BYTES: Final = 16
_HAS_EXIF, _HAS_XMP = 0x08, 0x04


def _strip_webp(content: bytes) -> bytes:
    """Return the file with its pictures, colour profile and orientation, and nothing else."""
    end = 8 + int.from_bytes(content[4:8], "little")
    if end > len(content):
        raise _error("WebP", "it is shorter than it says")
    chunks = list(_webp_chunks(content[:end]))
    if chunks and chunks[0][0] in _SIMPLE:
        # Nothing after the picture is read of a file of the simple form.
        return _webp([_chunk(*chunks[0])])
    if not chunks or chunks[0][0] != b"VP8X":
        raise _error("WebP", "its first chunk gives no size")
    exif = next((data for kind, data in chunks if kind == b"EXIF"), None)
    xmp = next((data for kind, data in chunks if kind == b"XMP "), None)
    orientation = _find_orientation(exif, xmp)
    kept = [_kept_chunk(kind, data, orientation) for kind, data in chunks if kind in _KEPT_WEBP]
    if orientation != 1:
        kept.append(_chunk(b"EXIF", _exif(orientation)))
    return _webp(kept)


def _kept_chunk(kind: bytes, data: bytes, orientation: int) -> bytes:
    if kind == b"VP8X" and data:
        flags = data[0] & ~(_HAS_EXIF | _HAS_XMP) | (_HAS_EXIF if orientation != 1 else 0)
        return _chunk(kind, bytes([flags]) + data[1:])
    if kind == b"ANMF":
        inside = (_chunk(*part) for part in _webp_chunks(data, _FRAME_BYTES) if part[0] in _OF_A_FRAME)
        return _chunk(kind, data[:_FRAME_BYTES] + b"".join(inside))
    return _chunk(kind, data)


def _webp_chunks(content: bytes, first: int = 12) -> Iterator[tuple[bytes, bytes]]:
    for kind, start, end in webp_chunks(content, first):
        if end > len(content):
            raise _error("WebP", "a chunk ends beyond the file")
        yield kind, content[start:end]


def _chunk(kind: bytes, data: bytes) -> bytes:
    return kind + len(data).to_bytes(4, "little") + data + b"\0" * (len(data) % 2)


def _webp(chunks: list[bytes]) -> bytes:
    body = b"WEBP" + b"".join(chunks)
    return b"RIFF" + len(body).to_bytes(4, "little") + body


# GIF: comments, texts and extensions of applications (GIF89a).

# How often animations repeat, and colour profiles.
_KEPT_EXTENSIONS: Final = (
    b"!\xf9",
    b"!\xff\x0bNETSCAPE2.0",
    b"!\xff\x0bANIMEXTS1.0",
    b"!\xff\x0bICCRGBG1012",
)


def _strip_gif(content: bytes) -> bytes:
    """Return the file with its frames, their times and repeats, its colour profile, and nothing else."""
    blocks = list(gif_blocks(content))
    if not any(kind == GIF_IMAGE for kind, _, _ in blocks):
        raise _error("GIF", "no picture is found in it")
    kept = [
        content[start:end]
        for kind, start, end in blocks
        if kind == GIF_IMAGE or content.startswith(_KEPT_EXTENSIONS, start)
    ]
    return b"".join([content[: blocks[0][1]], *kept, b";"])


# TIFF: whatever no kept tag refers to is overwritten in place (TIFF 6.0).

_SUBSAMPLED, _SEPARATE = 6, 2
_UNCOMPRESSED, _OLD_JPEG, _JPEG = 1, 6, 7
# Tags that pixels, colours, sizes and pages depend on; 34675 is the colour profile.
_KEPT_TAGS: Final = frozenset(
    {*range(254, 260), *range(262, 267), *range(273, 275), *range(277, 285), *range(290, 294), 296, 297, 301}
    | {*range(317, 329), 332, 334, 336, *range(338, 343), 347, *range(529, 533), 32997, 34675, 50674}
)
_SIZES: Final = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}
_BIG_SIZES: Final = {16: 8, 17: 8, 18: 8}
_NUMBERS: Final = {1: "B", 3: "H", 4: "I", 13: "I", 16: "Q", 18: "Q"}
_MOST_PAGES: Final = 1_000
_MOST_ENTRIES: Final = 4_096
_MOST_ENTRIES_OF_ALL: Final = 65_536
# Strips and tiles of all pages.
_MOST_PARTS: Final = 200_000


class _Entry(NamedTuple):
    """A tag of a page; its values are in the file, or in the entry itself where they have no span."""

    tag: int
    kind: int
    length: int
    raw: bytes
    span: _Range | None


class _Page(NamedTuple):
    """A page: where its directory and its strips and tiles are, and its tags that are kept."""

    form: TiffForm
    table: _Range
    kept: list[_Entry]
    parts: list[_Range]

    def number(self, tag: int, default: int = 0) -> int:
        return next(iter(self.numbers(tag, 1)), default)

    def numbers(self, tag: int, most: int) -> Sequence[int]:
        """Return the whole numbers of a tag, at most so many; none where it is missing."""
        for entry in self.kept:
            if entry.tag == tag and entry.kind in _NUMBERS:
                source, start = (entry.raw, 0) if entry.span is None else (self.form.content, entry.span[0])
                packed = f"{self.form.order}{min(entry.length, most)}{_NUMBERS[entry.kind]}"
                return struct.unpack_from(packed, source, start)
        return ()


def _strip_tiff(content: bytes) -> bytes:
    """Return the file with the pixels and the colour profile of its pages; they stay where they are.

    Texts, EXIF, GPS and XMP data, smaller copies and unused bytes are overwritten with zeros.
    """
    form = TiffForm(content)
    try:
        pages = _read_pages(form)
    except (struct.error, OverflowError):
        raise _error("TIFF", "it ends before its directories do") from None
    ranges = [(0, form.first + form.pointer.size)]
    for page in pages:
        ranges += [page.table, *page.parts, *(entry.span for entry in page.kept if entry.span)]
    stripped = _only(content, ranges)
    following = [*(page.table[0] for page in pages[1:]), 0]
    for page, offset in zip(pages, following, strict=True):
        start, end = page.table
        entries = [form.entry.pack(*entry[:4]) for entry in page.kept]
        table = form.number.pack(len(entries)) + b"".join(entries) + form.pointer.pack(offset)
        stripped[start:end] = table.ljust(end - start, b"\0")
    for page in pages:
        if page.number(Tag.Compression) == _JPEG:
            tables = (entry.span for entry in page.kept if entry.tag == Tag.JPEGTables and entry.span)
            _blank_streams(stripped, [*page.parts, *tables])
    return bytes(stripped)


def _read_pages(form: TiffForm) -> list[_Page]:
    pages: list[_Page] = []
    parts, total = 0, 0
    for first, entries in form.directories():
        total += entries
        if len(pages) >= _MOST_PAGES or entries > _MOST_ENTRIES or total > _MOST_ENTRIES_OF_ALL:
            raise _error("TIFF", f"it has over {_MOST_PAGES:,} pages, or over {_MOST_ENTRIES:,} tags in one")
        listed = list(_read_entries(form, first, entries))
        kept = [entry for entry in listed if entry.tag in _KEPT_TAGS]
        packet = next((entry.span for entry in listed if entry.tag == Tag.XMLPacket), None)
        if packet and not any(entry.tag == Tag.Orientation for entry in kept):
            orientation = _find_orientation(None, form.content[slice(*packet)])
            if orientation != 1:
                # The XMP data alone has it.
                raw = struct.pack(f"{form.order}H", orientation).ljust(form.pointer.size, b"\0")
                kept.append(_Entry(Tag.Orientation, _SHORT, 1, raw, None))
                kept.sort(key=lambda entry: entry.tag)
        table = (first - form.number.size, first + entries * form.entry.size + form.pointer.size)
        page = _Page(form, table, kept, [])
        page.parts.extend(_read_parts(page, _MOST_PARTS - parts))
        parts += len(page.parts)
        pages.append(page)
    if not pages:
        raise _error("TIFF", "it has no directory")
    return pages


def _read_entries(form: TiffForm, first: int, entries: int) -> Iterator[_Entry]:
    """Read the entries of a directory, without those of unknown types or with values beyond the file."""
    sizes = _SIZES | _BIG_SIZES if form.big else _SIZES
    for number in range(entries):
        tag, kind, count, raw = form.entry.unpack_from(form.content, first + number * form.entry.size)
        size = sizes.get(kind, 0) * count
        (start,) = form.pointer.unpack(raw)
        if 0 < size <= len(raw):
            # The rest of the field has no meaning.
            yield _Entry(tag, kind, count, raw[:size].ljust(len(raw), b"\0"), None)
        elif size and start + size <= len(form.content):
            yield _Entry(tag, kind, count, raw, (start, start + size))


def _read_parts(page: _Page, most: int) -> Iterator[_Range]:
    """Give where the strips and tiles of a page are."""
    compression = page.number(Tag.Compression) or _UNCOMPRESSED
    if compression == _OLD_JPEG:
        raise _error("TIFF", "its compression is the old form of JPEG")
    for offsets_tag, bytes_tag in (
        (Tag.StripOffsets, Tag.StripByteCounts),
        (Tag.TileOffsets, Tag.TileByteCounts),
    ):
        offsets, sizes = page.numbers(offsets_tag, most + 1), page.numbers(bytes_tag, most + 1)
        if max(len(offsets), len(sizes)) > most:
            raise _error("TIFF", f"it has over {_MOST_PARTS:,} strips and tiles")
        if compression == _UNCOMPRESSED:
            # The decoder goes by the size of the picture, whatever the file says.
            least = _part_sizes(page, len(offsets), tiled=offsets_tag == Tag.TileOffsets)
            sizes = [max(pair) for pair in zip_longest(sizes, least, fillvalue=0)]
        elif len(sizes) < len(offsets) or not all(sizes):
            raise _error("TIFF", "it does not say how long its strips are")
        for start, size in zip(offsets, sizes, strict=False):
            end = min(len(page.form.content), start + size)
            if start < end:
                yield start, end


def _part_sizes(page: _Page, parts: int, *, tiled: bool) -> list[int]:
    """Return the bytes of each uncompressed strip or tile; none where colours are subsampled."""
    if page.number(Tag.PhotometricInterpretation) == _SUBSAMPLED:
        return []
    width, height = page.number(Tag.ImageWidth), page.number(Tag.ImageLength)
    samples = page.number(Tag.SamplesPerPixel, 1)
    samples = 1 if page.number(Tag.PlanarConfiguration) == _SEPARATE else samples
    if tiled:
        width, rows = page.number(Tag.TileWidth, width), [page.number(Tag.TileLength, height)] * parts
    else:
        each = max(1, min(page.number(Tag.RowsPerStrip, height), height))
        strips = max(1, -(-height // each))
        rows = [min(each, height - part % strips * each) for part in range(parts)]
    row = (width * samples * page.number(Tag.BitsPerSample, 1) + 7) // 8
    return [row * count for count in rows]


def _blank_streams(stripped: bytearray, ranges: Sequence[_Range]) -> None:
    """Overwrite comments and application segments of JPEG streams, whose sizes must stay."""
    for first, last in ranges:
        for marker, start, payload, end in segments(bytes(stripped[first:last]), _JPEG_ERROR):
            if marker == COM or (APP0 < marker <= APP15 and marker != APP14):
                stripped[first + start + 4 : first + end] = bytes(len(payload))


# AVIF and HEIC: metadata is overwritten in place (ISO/IEC 14496-12 and 23008-12).

_KEPT_OUTSIDE: Final = frozenset({b"ftyp", b"meta", b"mdat", b"moov"})
# Texts of users and programs, and unused bytes.
_WORDS: Final = frozenset({b"udta", b"udes", b"uuid", b"free", b"skip"})
# What replaces items: EXIF data without a tag, after the offset of its beginning, and spaces. No orientation
# of theirs counts (ISO/IEC 23008-12).
_NO_EXIF: Final = bytes(4) + struct.pack("<2sHIHI", b"II", 42, 8, 0, 0)
_TEXT_ITEMS: Final = {b"Exif": _NO_EXIF, b"mime": b" ", b"uri ": b" "}
_HANDLER_NAME: Final = 24
_MOST_EXTENTS: Final = 20_000
_BOX_ERROR: Final = partial(_error, "AVIF or HEIC")


# An item of a file: where its directory begins, and its number.
_Item = tuple[int, int]


def _strip_heif(content: bytes) -> bytes:
    """Return the file with its pictures, profile and properties; EXIF and XMP items are overwritten."""
    boxes = list(walk_boxes(content))
    if any(not box.content <= box.end <= (box.parent.end if box.parent else len(content)) for box in boxes):
        raise _BOX_ERROR("a box ends beyond the one around it")
    outside = [box for box in boxes if box.parent is None]
    extents = _read_extents(content, boxes)
    if any(box.kind == b"moov" for box in outside):
        used = [(0, len(content))]
    else:
        # Bytes of media data that belong to no item go.
        used = [(box.start, box.content if box.kind == b"mdat" else box.end) for box in outside]
        used += [part for parts in extents.values() for part in parts]
    stripped = _only(content, [*used, (len(content), len(content))])
    for box in boxes:
        if box.kind in _WORDS or (box.parent is None and box.kind not in _KEPT_OUTSIDE):
            stripped[box.start + 4 : box.start + 8] = b"free"
            stripped[box.content : box.end] = bytes(box.end - box.content)
        elif box.kind == b"hdlr" and box.content + _HANDLER_NAME < box.end:
            stripped[box.content + _HANDLER_NAME : box.end] = bytes(box.end - box.content - _HANDLER_NAME)
        elif box.parent is not None and box.parent.kind == b"iinf":
            item, kind = _read_item(content, box, stripped)
            if kind in _TEXT_ITEMS:
                new = _TEXT_ITEMS[kind]
                for number, (start, end) in enumerate(extents[item]):
                    stripped[start:end] = (b"" if number else new)[: end - start].ljust(end - start, new[-1:])
    return bytes(stripped)


def _read_item(content: bytes, box: Box, stripped: bytearray) -> tuple[_Item, bytes]:
    """Return an item and its kind, and overwrite its name, whose end must stay: other texts follow it."""
    widths = {b"\2": 2, b"\3": 4}
    width = widths.get(content[box.content : min(box.content + 1, box.end)])
    if box.kind != b"infe" or width is None or box.parent is None or box.parent.parent is None:
        raise _BOX_ERROR("its list of items is of an unknown form")
    offset = box.content + 4 + width
    name = offset + 6
    end = stripped.find(b"\0", name, box.end)
    if end > name:
        stripped[name:end] = b"_" * (end - name)
    number = int.from_bytes(content[box.content + 4 : offset])
    return (box.parent.parent.start, number), content[offset + 2 : name]


def _read_extents(content: bytes, boxes: Sequence[Box]) -> dict[_Item, list[_Range]]:
    """Read where items are (ISO/IEC 14496-12, section 8.11.3)."""
    data = {box.parent.start: box for box in boxes if box.kind == b"idat" and box.parent is not None}
    items: dict[_Item, list[_Range]] = defaultdict(list)
    extents_left, bytes_left = _MOST_EXTENTS, 2 * len(content)
    for box in boxes:
        if box.kind != b"iloc" or box.parent is None:
            continue
        fields = io.BytesIO(content[box.content : box.end])

        def number(size: int, fields: io.BytesIO = fields) -> int:
            read = fields.read(size)
            if len(read) < size:
                raise _BOX_ERROR("its list of locations ends too early")
            return int.from_bytes(read)

        version = number(4) >> 24
        sizes = number(2)
        offset_size, length_size, base_size = sizes >> 12, sizes >> 8 & 15, sizes >> 4 & 15
        index_size = sizes & 15 if version else 0
        for _ in range(number(2 if version < 2 else 4)):
            extents = items[box.parent.start, number(2 if version < 2 else 4)]
            method = number(2) & 15 if version else 0
            inside = data.get(box.parent.start)
            if number(2) or method > 1 or (method == 1 and inside is None):
                raise _BOX_ERROR("an item is outside of the file")
            base = number(base_size) + (inside.content if method == 1 and inside else 0)
            count = number(2)
            extents_left -= count
            if extents_left < 0:
                raise _BOX_ERROR(f"its items have over {_MOST_EXTENTS:,} parts")
            for _ in range(count):
                number(index_size)
                start = base + number(offset_size)
                length = number(length_size) or len(content) - start
                if not 0 <= start <= start + length <= len(content):
                    raise _BOX_ERROR("an item ends beyond the file")
                bytes_left -= length
                if bytes_left < 0:
                    raise _BOX_ERROR("its items overlap")
                extents.append((start, start + length))
    return items


# A BMP file has none, apart from bytes that no program reads.
_STRIPPERS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "JPEG": _strip_jpeg,
    "PNG": _strip_png,
    "WebP": _strip_webp,
    "GIF": _strip_gif,
    "TIFF": _strip_tiff,
    "AVIF": _strip_heif,
    "HEIC": _strip_heif,
    "BMP": bytes,
}
