"""PNG: chunks that no picture needs are skipped, and 16-bit colour keeps all of its bits."""

import zlib
from collections.abc import Iterator
from typing import Final

from training.common.errors import ImageError, ImageTooLargeError
from training.imaging.colour import MOST_PROFILE_BYTES
from training.imaging.depth import DeepImage, Samples, split_bands

# libpng writes chunks of 8 KB: 2,560 in a file of 20 MB.
_MOST_CHUNKS: Final = 50_000
# One is the rule; each is decompressed to a megabyte.
_MOST_PROFILES: Final = 16
SIGNATURE_BYTES: Final = 8
_CRITICAL: Final = frozenset({b"IHDR", b"PLTE", b"IDAT"})
_END: Final = b"\0\0\0\0IEND\xaeB`\x82"
# Chunks of another length cannot be read.
_ANIMATION_BYTES: Final = {b"acTL": 8, b"fcTL": 26}
# Bytes of the transparent grey or RGB value, by color type; a palette has up to 256 opacities.
_LEAST_CLEAR_BYTES: Final = {0: 2, 2: 6}
_PROFILE: Final = b"iCCP"
_XMP: Final = b"iTXtXML:com.adobe.xmp\0\0"
# Chunks that may have an orientation.
EXIF_MARKS: Final = (b"eXIf", _XMP)
_MOST_METADATA_BYTES: Final = 1 << 20
_OPACITY: Final = 65_535
# Bits of a sample, and types of colour.
_DEEP: Final = b"\x10"
_GREY_TYPES: Final = (0, 4)


def clean_png(content: bytes, *, checked: bool = True) -> tuple[bytes, bytes | None]:
    """Copy the chunks that make the picture, in one pass over the headers of all (PNG, third edition, 5.3).

    Text is left out unread, and so is an ancillary chunk of wrong checksum. Where the file is cut, it is
    left as it is from there on, or ended where the picture may be whole. `checked`: the checksums of chunks
    that the picture needs are compared.

    Returns:
        The file without its profile, and the ICC profile if it is sound and not too large.

    Raises:
        ImageTooLargeError: It has more chunks than any program writes.
        ImageError: The checksum of a chunk that the picture needs is wrong.
    """
    parts, profile = [content[:SIGNATURE_BYTES]], None
    kinds, profiles, kind, offset, end = set[bytes](), 0, b"", SIGNATURE_BYTES, SIGNATURE_BYTES
    for kind, offset, end in png_chunks(content):
        if kind == b"IEND":
            # Nothing is in it, so its checksum says nothing of the picture.
            parts.append(_END)
            break
        if end > len(content):
            break
        kinds.add(kind)
        is_profile, is_critical = kind == _PROFILE, kind in _CRITICAL
        profiles += is_profile
        if profiles > _MOST_PROFILES:
            raise ImageTooLargeError(
                f"The PNG image has over {_MOST_PROFILES} colour profiles; save it anew without metadata."
            )
        if is_critical and not checked:
            parts.append(content[offset : end - 4] + zlib.crc32(content[offset + 4 : end - 4]).to_bytes(4))
        elif is_critical or is_profile or _may_be_kept(content, offset, end):
            checksum = zlib.crc32(memoryview(content)[offset + 4 : end - 4])
            is_sound = checksum == int.from_bytes(content[end - 4 : end])
            if is_critical and not is_sound:
                raise ImageError(f"The PNG image is damaged: its {kind.decode()} chunk has a wrong checksum.")
            if is_sound and not is_profile:
                parts.append(content[offset:end])
            elif is_sound and profile is None:
                profile = _inflate_profile(content[offset + 8 : end - 4])
        elif kind[:1].isupper():
            parts.append(content[offset:end])
        offset = end
    if kind != b"IEND":
        # The decoder decides whether the picture ahead of a cut ancillary chunk is whole.
        is_ancillary = content[offset + 4 : offset + 5].islower() or offset + 8 > len(content)
        parts.append(_END if is_ancillary and b"IDAT" in kinds and b"acTL" not in kinds else content[offset:])
    whole = sum(map(len, parts)) == len(content) and content.endswith(_END)
    return content if whole else b"".join(parts), profile


def png_chunks(content: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Walk over the chunks up to the end of the image: kind, and the offsets of its beginning and end.

    The last one may end beyond the file.

    Raises:
        ImageTooLargeError: They are more than any program writes.
    """
    offset = SIGNATURE_BYTES
    for _ in range(_MOST_CHUNKS):
        if offset + 8 > len(content):
            return
        kind = content[offset + 4 : offset + 8]
        end = offset + 12 + int.from_bytes(content[offset : offset + 4])
        yield kind, offset, end
        if kind == b"IEND":
            return
        offset = end
    raise ImageTooLargeError(
        f"The PNG image has over {_MOST_CHUNKS:,} chunks; save it anew without metadata."
    )


def _may_be_kept(content: bytes, offset: int, end: int) -> bool:
    kind, size = content[offset + 4 : offset + 8], end - offset - 12
    if kind == b"tRNS":
        return _LEAST_CLEAR_BYTES.get(int.from_bytes(content[25:26]), 0) <= size <= 256
    if kind in _ANIMATION_BYTES:
        return size == _ANIMATION_BYTES[kind]
    is_oriented = kind == b"eXIf" or content.startswith(_XMP, offset + 4)
    return kind == b"fdAT" or (is_oriented and size <= _MOST_METADATA_BYTES)


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

    None: samples have fewer bits. Damaged files raise what libpng makes of them.
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
        lambda: split_bands(samples),
        opaque=_OPACITY if samples.shape[2] > colours else None,
        full=None if colours == 1 else float(_OPACITY),
    )
