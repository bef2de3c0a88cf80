"""PNG: chunks that no picture needs are skipped, and 16-bit colour keeps all of its bits."""

import io
import struct
import zlib
from collections.abc import Iterator
from typing import Final

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

from training.data.decoding.colour import MOST_PROFILE_BYTES
from training.data.decoding.depth import DeepImage, Samples, band_rows
from training.errors import ImageError

_SIGNATURE: Final = 8
_CRITICAL: Final = frozenset({b"IHDR", b"PLTE", b"IDAT"})
_END: Final = b"\0\0\0\0IEND\xaeB`\x82"
_KEPT: Final = frozenset({b"tRNS", b"eXIf", b"acTL", b"fcTL", b"fdAT"})
# Chunks of another length cannot be read.
_ANIMATION_BYTES: Final = {b"acTL": 8, b"fcTL": 26}
# Of the transparent grey or RGB value, by the type of colour; a palette has up to 256 opacities.
_LEAST_CLEAR_BYTES: Final = {0: 2, 2: 6}
_PROFILE: Final = b"iCCP"
_XMP: Final = b"iTXtXML:com.adobe.xmp\0\0"
_MOST_METADATA_BYTES: Final = 1 << 20
_OPACITY: Final = 65_535
# Pillow's names for the upper and the lower byte of each sample.
_UPPER, _LOWER = ";16B", ";16L"


def clean_png(content: bytes, *, checked: bool = True) -> tuple[bytes, bytes | None]:
    """Copy the chunks that make the picture, in one pass over the headers of all (PNG, third edition, 5.3).

    Text is left out unread, and so is an ancillary chunk of wrong checksum. Where the file is cut, it is
    left as it is from there on, or ended where the picture may be whole.

    Args:
        content: The file.
        checked: Whether the checksums of chunks that the picture needs are compared.

    Returns:
        The file without its profile, and the ICC profile as far as it is sound and not too large.

    Raises:
        ImageError: The checksum of a chunk that the picture needs is wrong.
    """
    parts, profile = [content[:_SIGNATURE]], None
    place, last, kinds = _SIGNATURE, b"", set[bytes]()
    while last != b"IEND" and place + 12 <= len(content):
        end = place + 12 + int.from_bytes(content[place : place + 4])
        last = content[place + 4 : place + 8]
        if end > len(content):
            break
        kinds.add(last)
        if last == b"IEND":
            # Nothing is in it, so its checksum says nothing of the picture.
            parts.append(_END)
        elif last in _CRITICAL or _may_be_kept(content, place, end):
            if (last in _CRITICAL and not checked) or _is_sound(content, place, end):
                parts.append(content[place:end])
            elif last in _CRITICAL:
                raise ImageError(f"The PNG image is damaged: its {last.decode()} chunk has a wrong checksum.")
        elif last == _PROFILE and profile is None and _is_sound(content, place, end):
            profile = _inflate_profile(content[place + 8 : end - 4])
        elif last[:1].isupper():
            parts.append(content[place:end])
        place = end
    if last != b"IEND":
        # The decoder tells whether the picture is whole that lies ahead of a cut chunk beside it.
        beside = content[place + 4 : place + 5].islower() or place + 8 > len(content)
        parts.append(_END if beside and b"IDAT" in kinds and b"acTL" not in kinds else content[place:])
    whole = sum(map(len, parts)) == len(content) and content.endswith(_END)
    return content if whole else b"".join(parts), profile


def _may_be_kept(content: bytes, place: int, end: int) -> bool:
    kind = content[place + 4 : place + 8]
    if kind == b"fdAT":
        return True
    if (
        kind == b"tRNS"
        and not _LEAST_CLEAR_BYTES.get(int.from_bytes(content[25:26]), 0) <= end - place - 12 <= 256
    ):
        return False
    if end - place - 12 != _ANIMATION_BYTES.get(kind, end - place - 12):
        return False
    small = end - place <= _MOST_METADATA_BYTES
    return small and (kind in _KEPT or content.startswith(_XMP, place + 4))


def _is_sound(content: bytes, place: int, end: int) -> bool:
    view = memoryview(content)
    return zlib.crc32(view[place + 4 : end - 4]) == int.from_bytes(content[end - 4 : end])


def _inflate_profile(chunk: bytes) -> bytes | None:
    """Return the profile of an iCCP chunk: a name, a zero, the method 0, and the compressed profile."""
    _, _, rest = chunk.partition(b"\0")
    inflater = zlib.decompressobj()
    try:
        profile = inflater.decompress(rest[1:], MOST_PROFILE_BYTES)
    except zlib.error:
        return None
    return profile if inflater.eof else None


def read_deep_png(content: bytes) -> DeepImage | None:
    """Read the first picture of a cleaned PNG file with 16 bits a sample in colour or with opacity.

    Pillow keeps the upper byte of such samples. A second decoder, told to keep the lower byte, gives what is
    missing; samples of grey and opacity have the size of four bytes, which are read as they are.

    Returns:
        The image; None where Pillow itself keeps all bits.

    Raises:
        Exception: As Pillow raises it for damaged files.
    """
    if len(content) < 26:
        return None
    depth, colour = struct.unpack_from(">BB", content, 24)
    if depth != 16 or colour not in (2, 4, 6):
        return None
    clear = None
    if colour == 4:
        upper = _decode(content, "RGBA")
        lower = None
    else:
        mode = "RGB" if colour == 2 else "RGBA"
        upper, lower = _decode(content, mode + _UPPER), _decode(content, mode + _LOWER)
        found = upper.info.get("transparency")
        clear = found if colour == 2 and isinstance(found, tuple) else None

    def bands() -> Iterator[tuple[int, Samples]]:
        for top, bottom in band_rows(upper.width, upper.height):
            box = (0, top, upper.width, bottom)
            values = np.asarray(upper.crop(box)).astype(np.uint16)
            if lower is None:
                yield top, values[..., ::2] << 8 | values[..., 1::2]
            else:
                yield top, values << 8 | np.asarray(lower.crop(box))

    return DeepImage(
        upper.width,
        upper.height,
        1 if colour == 4 else 3,
        bands,
        opaque=None if colour == 2 else _OPACITY,
        full=None if colour == 4 else float(_OPACITY),
        clear=clear,
        canvas=upper,
    )


def _decode(content: bytes, raw_mode: str) -> Image.Image:
    image = PngImageFile(io.BytesIO(content))
    image.tile = [tile._replace(args=raw_mode) for tile in image.tile]
    image.load()
    return image
