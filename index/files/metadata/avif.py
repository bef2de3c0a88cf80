"""AVIF and HEIC without their metadata (ISO/IEC 14496-12 and 23008-12), which is overwritten in place."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from index.files.metadata.errors import metadata_error
from index.files.metadata.orientation import empty_exif, minimal_exif, orientation_of, stated_orientation

_KEPT_OUTSIDE: Final = frozenset({b"ftyp", b"meta", b"mdat", b"moov"})
_META, _MOVIE, _DATA = b"meta", b"moov", b"mdat"
# Boxes in which others are looked for, with the bytes before those.
_CONTAINERS: Final = {
    **dict.fromkeys((b"moov", b"trak", b"mdia", b"minf", b"stbl", b"iprp", b"ipco"), 0),
    b"meta": 4,
}
# Texts of users and programs, and unused bytes.
_WORDS: Final = frozenset({b"udta", b"udes", b"uuid", b"free", b"skip"})
_EXIF, _MIME, _URI = b"Exif", b"mime", b"uri "
_HANDLER_NAME: Final = 24
_MOST_BOXES: Final = 10_000
_MOST_EXTENTS: Final = 20_000
_MOST_ITEMS: Final = 20_000
_MOST_DATA_BOXES: Final = 100


@dataclass(frozen=True, slots=True)
class _Box:
    kind: bytes
    start: int
    content: int
    end: int


@dataclass(slots=True)
class _Items:
    """A directory of items: the kind of each, and where its bytes lie."""

    kinds: dict[int, bytes] = field(default_factory=dict)
    extents: dict[int, list[tuple[int, int]]] = field(default_factory=dict)


def strip_avif(content: bytes) -> bytes:
    """Return the file with its pictures, profile and properties; EXIF and XMP items are overwritten.

    Raises:
        ImageError: Its boxes cannot be followed.
    """
    stripped = bytearray(content)
    outside = list(_boxes(content, 0, len(content)))
    inside = list(_within(content, outside))
    for box in outside:
        if box.kind not in _KEPT_OUTSIDE:
            _free(stripped, box)
    for box in inside:
        if box.kind in _WORDS:
            _free(stripped, box)
        elif box.kind == b"hdlr" and box.content + _HANDLER_NAME < box.end:
            stripped[box.content + _HANDLER_NAME : box.end] = bytes(box.end - box.content - _HANDLER_NAME)
        elif box.kind == b"iinf":
            _blank_names(stripped, box)
    directories = [_read_items(content, box) for box in (*outside, *inside) if box.kind == _META]
    for items in directories:
        turns = _states_orientation(content, items)
        for number, kind in items.kinds.items():
            if kind in (_EXIF, _MIME, _URI):
                _blank_item(stripped, kind, items.extents.get(number, []), turns=turns)
    if not any(box.kind == _MOVIE for box in outside):
        used = (part for items in directories for parts in items.extents.values() for part in parts)
        _blank_unused(stripped, outside, sorted(used))
    return bytes(stripped)


def _boxes(content: bytes | bytearray, start: int, end: int) -> Iterator[_Box]:
    """Walk over the boxes between two places."""
    for _ in range(_MOST_BOXES):
        if start == end:
            return
        size, head = int.from_bytes(content[start : start + 4]), 8
        if size == 1:
            size, head = int.from_bytes(content[start + 8 : start + 16]), 16
        elif size == 0:
            size = end - start
        if start + 8 > end or size < head or start + size > end:
            raise metadata_error("AVIF or HEIC", "a box ends behind the one around it")
        yield _Box(bytes(content[start + 4 : start + 8]), start, start + head, start + size)
        start += size
    raise metadata_error("AVIF or HEIC", f"it has over {_MOST_BOXES:,} boxes")


def _within(content: bytes, outside: list[_Box]) -> Iterator[_Box]:
    """Walk over the boxes inside of others."""
    around = [box for box in outside if box.kind in _CONTAINERS]
    found = 0
    while around:
        box = around.pop()
        for inner in _boxes(content, box.content + _CONTAINERS[box.kind], box.end):
            found += 1
            if found > _MOST_BOXES:
                raise metadata_error("AVIF or HEIC", f"it has over {_MOST_BOXES:,} boxes")
            yield inner
            if inner.kind in _CONTAINERS:
                around.append(inner)


def _read_items(content: bytes, meta: _Box) -> _Items:
    items = _Items()
    inner = {box.kind: box for box in _boxes(content, meta.content + _CONTAINERS[_META], meta.end)}
    if b"iinf" in inner:
        for entry, place in _entries(content, inner[b"iinf"]):
            items.kinds[int.from_bytes(content[entry.content + 4 : place])] = content[place + 2 : place + 6]
    if b"iloc" in inner:
        _read_extents(content, inner[b"iloc"], inner.get(b"idat"), items)
    return items


def _entries(content: bytes | bytearray, box: _Box) -> Iterator[tuple[_Box, int]]:
    """Walk over the entries of items, each with the place behind its number."""
    first = box.content + (6 if _version(content, box) == 0 else 8)
    for entry in _boxes(content, first, box.end):
        version = _version(content, entry)
        if entry.kind != b"infe" or version not in (2, 3):
            raise metadata_error("AVIF or HEIC", "its list of items is of an unknown form")
        yield entry, entry.content + (6 if version == 2 else 8)


def _version(content: bytes | bytearray, box: _Box) -> int:
    if box.content == box.end:
        raise metadata_error("AVIF or HEIC", "a box has nothing in it")
    return content[box.content]


def _read_extents(content: bytes, box: _Box, idat: _Box | None, items: _Items) -> None:
    """Read where items lie (ISO/IEC 14496-12, section 8.11.3)."""
    place = box.content + 4
    version = _version(content, box)

    def number(size: int) -> int:
        nonlocal place
        if place + size > box.end:
            raise metadata_error("AVIF or HEIC", "its list of places ends too early")
        place += size
        return int.from_bytes(content[place - size : place])

    sizes = number(2)
    offset_size, length_size, base_size = sizes >> 12, sizes >> 8 & 15, sizes >> 4 & 15
    index_size = sizes & 15 if version else 0
    listed = number(2 if version < 2 else 4)
    if listed > _MOST_ITEMS:
        raise metadata_error("AVIF or HEIC", f"it has over {_MOST_ITEMS:,} items")
    extents_left, bytes_left = _MOST_EXTENTS, 2 * len(content)
    for _ in range(listed):
        item = number(2 if version < 2 else 4)
        method = number(2) & 15 if version else 0
        if number(2) or method > 1 or (method == 1 and idat is None):
            raise metadata_error("AVIF or HEIC", "an item lies outside of the file")
        base = number(base_size) + (idat.content if method == 1 and idat else 0)
        extents = items.extents.setdefault(item, [])
        count = number(2)
        extents_left -= count
        if extents_left < 0:
            raise metadata_error("AVIF or HEIC", f"its items have over {_MOST_EXTENTS:,} parts")
        for _ in range(count):
            number(index_size)
            start = base + number(offset_size)
            length = number(length_size) or len(content) - start
            if not 0 <= start <= start + length <= len(content):
                raise metadata_error("AVIF or HEIC", "an item ends behind the file")
            bytes_left -= length
            if bytes_left < 0:
                raise metadata_error("AVIF or HEIC", "its items overlap")
            extents.append((start, start + length))


def _states_orientation(content: bytes, items: _Items) -> bool:
    """Tell whether EXIF data has an orientation: it counts for nothing, but hides that of the XMP data."""
    for number, kind in items.kinds.items():
        if kind == _EXIF:
            data = b"".join(content[start:end] for start, end in items.extents.get(number, []))
            try:
                if stated_orientation(data[4 + int.from_bytes(data[:4]) :]) is not None:
                    return True
            except struct.error:
                continue
    return False


def _blank_item(stripped: bytearray, kind: bytes, extents: list[tuple[int, int]], *, turns: bool) -> None:
    """Overwrite EXIF data with none, and anything else with spaces and the orientation that counts."""
    if not extents:
        return
    former = b"".join(stripped[start:end] for start, end in extents)
    if kind == _EXIF:
        # Four bytes tell how far in the data begins.
        text, rest = bytes(4) + (minimal_exif(1) if turns else empty_exif()), b"\0"
    else:
        orientation = orientation_of(None, former) if kind == _MIME and not turns else 1
        text, rest = b'<x tiff:Orientation="%d"/>' % orientation if orientation != 1 else b"", b" "
    if len(text) > len(former):
        raise metadata_error("AVIF or HEIC", "an item is too short for what it is")
    new = text.ljust(len(former), rest)
    for start, end in extents:
        stripped[start:end], new = new[: end - start], new[end - start :]


def _blank_names(stripped: bytearray, box: _Box) -> None:
    """Overwrite the names of items; what stands behind them is found by where they end."""
    for entry, place in _entries(stripped, box):
        start = place + 6
        end = stripped.find(b"\0", start, entry.end)
        if end > start:
            stripped[start:end] = b"_" * (end - start)


def _blank_unused(stripped: bytearray, outside: list[_Box], used: list[tuple[int, int]]) -> None:
    """Overwrite bytes of media data that belong to no item."""
    boxes = [box for box in outside if box.kind == _DATA]
    if len(boxes) > _MOST_DATA_BOXES:
        raise metadata_error("AVIF or HEIC", f"it has over {_MOST_DATA_BOXES:,} boxes of data")
    for box in boxes:
        place = box.content
        for start, end in [*used, (box.end, box.end)]:
            gap = min(start, box.end) - place
            if gap > 0:
                stripped[place : place + gap] = bytes(gap)
            place = max(place, min(end, box.end))


def _free(stripped: bytearray, box: _Box) -> None:
    stripped[box.start + 4 : box.start + 8] = b"free"
    stripped[box.content : box.end] = bytes(box.end - box.content)
