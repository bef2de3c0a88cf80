"""PNG: chunks that no picture needs are skipped, and 16-bit colour keeps all of its bits."""

import zlib
from typing import Final

from training.common.errors import ImageError, ImageTooLargeError
from training.imaging.colour import MOST_PROFILE_BYTES
from training.imaging.depth import DeepImage, Samples, bands_of

# libpng writes chunks of 8 KB: 2,560 in a file of 20 MB.
_MOST_CHUNKS: Final = 50_000
# One is the rule; each is decompressed to a megabyte.
_MOST_PROFILES: Final = 16
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
# Of what may have an orientation.
EXIF_MARKS: Final = (b"eXIf", _XMP)
_MOST_METADATA_BYTES: Final = 1 << 20
_OPACITY: Final = 65_535
# Bits of a sample, and types of colour.
_DEEP: Final = b"\x10"
_GREY_TYPES: Final = (0, 4)


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
        ImageTooLargeError: It has more chunks than any program writes.
        ImageError: The checksum of a chunk that the picture needs is wrong.
    """
    parts, profile = [content[:_SIGNATURE]], None
    place, last, kinds, chunks, profiles = _SIGNATURE, b"", set[bytes](), 0, 0
    while last != b"IEND" and place + 12 <= len(content):
        end = place + 12 + int.from_bytes(content[place : place + 4])
        last = content[place + 4 : place + 8]
        if end > len(content):
            break
        chunks, profiles = chunks + 1, profiles + (last == _PROFILE)
        if chunks > _MOST_CHUNKS or profiles > _MOST_PROFILES:
            raise ImageTooLargeError(
                f"The PNG image has over {_MOST_CHUNKS:,} chunks, or over {_MOST_PROFILES} colour profiles; "
                "save it anew without metadata."
            )
        kinds.add(last)
        if last == b"IEND":
            # Nothing is in it, so its checksum says nothing of the picture.
            parts.append(_END)
        elif last in _CRITICAL or _may_be_kept(content, place, end):
            if last in _CRITICAL and not checked:
                parts.append(content[place : end - 4] + zlib.crc32(content[place + 4 : end - 4]).to_bytes(4))
            elif _is_sound(content, place, end):
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
    """Read the first picture of a cleaned PNG file with 16 bits a sample, of which Pillow would keep 8.

    Returns:
        The image; None where samples have fewer bits.

    Raises:
        Exception: As libpng raises it for damaged files.
    """
    if content[24:25] != _DEEP:
        return None
    # The package takes longer to load than most images to decode.
    from imagecodecs import png_decode

    samples: Samples = png_decode(content)
    height, width = samples.shape[:2]
    samples = samples.reshape(height, width, -1)
    colours = 1 if content[25] in _GREY_TYPES else 3
    return DeepImage(
        width,
        height,
        colours,
        lambda: bands_of(samples),
        opaque=_OPACITY if samples.shape[2] > colours else None,
        full=None if colours == 1 else float(_OPACITY),
    )
