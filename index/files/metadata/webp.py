"""WebP files without their metadata: EXIF, XMP and chunks of unknown kinds (RFC 9649)."""

from collections.abc import Iterator
from typing import Final

from index.files.metadata.errors import metadata_error
from index.files.metadata.orientation import minimal_exif, orientation_of

_HEADER_BYTES: Final = 12
_SIMPLE: Final = frozenset({b"VP8 ", b"VP8L"})
_KEPT: Final = frozenset({b"VP8X", b"ICCP", b"ANIM", b"ANMF", b"ALPH", *_SIMPLE})
_OF_A_FRAME: Final = frozenset({b"ALPH", *_SIMPLE})
_FRAME_BYTES: Final = 16
_HAS_EXIF, _HAS_XMP = 0x08, 0x04
_MOST_CHUNKS: Final = 20_000


def strip_webp(content: bytes) -> bytes:
    """Return the file with its pictures, colour profile and orientation, and nothing else.

    Raises:
        ImageError: Its chunks cannot be followed.
    """
    end = 8 + int.from_bytes(content[4:8], "little")
    if end > len(content):
        raise metadata_error("WebP", "it is shorter than it says")
    chunks = list(_chunks(content[_HEADER_BYTES:end]))
    if chunks and chunks[0][0] in _SIMPLE:
        # Nothing behind the picture is read of a file of the simple form.
        return _file([_chunk(*chunks[0])])
    if not chunks or chunks[0][0] != b"VP8X":
        raise metadata_error("WebP", "its first chunk gives no size")
    exif = next((data for kind, data in chunks if kind == b"EXIF"), None)
    xmp = next((data for kind, data in chunks if kind == b"XMP "), None)
    orientation = orientation_of(exif, xmp)
    kept = [_kept(kind, data, orientation) for kind, data in chunks if kind in _KEPT]
    if orientation != 1:
        kept.append(_chunk(b"EXIF", minimal_exif(orientation)))
    return _file(kept)


def _kept(kind: bytes, data: bytes, orientation: int) -> bytes:
    if kind == b"VP8X" and data:
        flags = data[0] & ~(_HAS_EXIF | _HAS_XMP) | (_HAS_EXIF if orientation != 1 else 0)
        return _chunk(kind, bytes([flags]) + data[1:])
    if kind == b"ANMF":
        inside = (_chunk(*part) for part in _chunks(data[_FRAME_BYTES:]) if part[0] in _OF_A_FRAME)
        return _chunk(kind, data[:_FRAME_BYTES] + b"".join(inside))
    return _chunk(kind, data)


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    place = 0
    for _ in range(_MOST_CHUNKS):
        if place >= len(content):
            return
        size = int.from_bytes(content[place + 4 : place + 8], "little")
        end = place + 8 + size
        if place + 8 > len(content) or end > len(content):
            raise metadata_error("WebP", "a chunk ends behind the file")
        yield content[place : place + 4], content[place + 8 : end]
        place = end + size % 2
    raise metadata_error("WebP", f"it has over {_MOST_CHUNKS:,} chunks")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return kind + len(data).to_bytes(4, "little") + data + b"\0" * (len(data) % 2)


def _file(chunks: list[bytes]) -> bytes:
    body = b"WEBP" + b"".join(chunks)
    return b"RIFF" + len(body).to_bytes(4, "little") + body
