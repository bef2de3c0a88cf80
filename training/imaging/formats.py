"""The formats of image files: how they are recognized, Pillow's decoder of each, and bounds on their parts.

Decoders keep every chunk and strip of a file as an object, some in quadratic time. The walks here are linear,
decode nothing, and stop at their limit. Damage is left for the decoder to name.
"""

import io
import struct
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from itertools import islice
from typing import Final, NamedTuple

from PIL import AvifImagePlugin, ImageFile
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from training.common.errors import ImageError, ImageTooLargeError

MEDIA_TYPES: Final = {
    "JPEG": "image/jpeg",
    "PNG": "image/png",
    "WebP": "image/webp",
    "AVIF": "image/avif",
    "HEIC": "image/heic",
    "GIF": "image/gif",
    "BMP": "image/bmp",
    "TIFF": "image/tiff",
    "DICOM": "application/dicom",
}
# Endings of files in these formats, in lower case.
READABLE_SUFFIXES: Final = (
    *(".jpg", ".jpeg", ".jfif", ".jpe", ".mpo", ".png", ".webp", ".avif", ".gif", ".bmp", ".tif", ".tiff"),
)
# Files of iPhones, Canon and Sony; the extra `heic` decodes them.
HEIC_SUFFIXES: Final = (".heic", ".heif", ".hif")
_AVIF_BRANDS: Final = frozenset({b"avif", b"avis"})
_HEIF_BRANDS: Final = frozenset({b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1"})
_MOST_BOXES: Final = 10_000
# Boxes in which others are looked for, with the bytes before those.
_CONTAINERS: Final = {
    **dict.fromkeys((b"moov", b"trak", b"mdia", b"minf", b"stbl", b"iprp", b"ipco"), 0),
    **{b"meta": 4, b"iinf": 6},
}

# The first bytes that tell a DICOM file: it may begin without its mark.
SIGNATURE_BYTES: Final = 256
PREAMBLE_BYTES: Final = 128
MARK: Final = b"DICM"
# Old files begin with their file meta information, or with the first elements of their data set: value
# representations by the number of the element, by group.
_STARTS: Final = {
    0x0002: {0x00: b"UL", 0x01: b"OB", 0x02: b"UI", 0x10: b"UI"},
    0x0008: {0x00: b"UL", 0x01: b"UL", 0x05: b"CS", 0x06: b"SQ", 0x08: b"CS", 0x12: b"DA"}
    | {0x13: b"TM", 0x14: b"UI", 0x15: b"DT", 0x16: b"UI", 0x18: b"UI"},
}
_FIRST_GROUPS: Final = frozenset({b"\2\0", b"\0\2", b"\x08\0", b"\0\x08"})
_LONGEST: Final = 4096
_UNDEFINED: Final = 0xFFFF_FFFF
_PIXEL_GROUP: Final = 0x0028
_MOST_WEBP_CHUNKS: Final = 20_000
# A full block has 255 bytes: 82,000 in a file of 20 MB.
_MOST_GIF_BLOCKS: Final = 400_000
GIF_IMAGE, _GIF_EXTENSION = 0x2C, 0x21
_MOST_TIFF_ENTRIES: Final = 4_096
# Tiles of 32 x 32 pixels, in an image of 50 megapixels with two planes.
_MOST_TIFF_PARTS: Final = 100_000
# Pages that are looked at for one that is not blank.
_MOST_TIFF_PAGES: Final = 16
# A run of 255 pixels takes two bytes.
_RLE_PIXELS_A_BYTE: Final = 128

_RLE_COMPRESSIONS: Final = frozenset({1, 2})
# Tags with one value for each sample, strip or tile.
_LISTED_TAGS: Final = frozenset({258, 273, 279, 324, 325, 338, 339})


class Box(NamedTuple):
    """A box of an AVIF or HEIC file.

    Attributes:
        kind: Its four letters.
        start: Offset in the file.
        content: Offset of what follows its size and kind.
        end: Offset after it by its size; in a damaged file, anywhere.
        parent: The box around it, if any.
    """

    kind: bytes
    start: int
    content: int
    end: int
    parent: "Box | None"


def reads_heic() -> bool:
    """Whether the extra `heic` is installed."""
    return find_spec("pi_heif") is not None


def is_heic(content: bytes) -> bool:
    """Whether a file begins as a HEIC image does."""
    brands = _brands(content)
    return bool(brands & _HEIF_BRANDS) and not brands & _AVIF_BRANDS


def is_readable_suffix(suffix: str) -> bool:
    """Whether files with an ending, in lower case, can be decoded here."""
    return suffix in READABLE_SUFFIXES or (suffix in HEIC_SUFFIXES and reads_heic())


def sniff_format(content: bytes) -> str:
    """Tell the format of an image file from its signature.

    Raises:
        ImageError: It is of none that can be read.
    """
    # The preamble may be the header of a TIFF; names after it would not be looked for then.
    if is_dicom(content):
        return "DICOM"
    if content.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return "WebP"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "GIF"
    if content.startswith(b"BM"):
        return "BMP"
    if content.startswith((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")):
        return "TIFF"
    brands = _brands(content)
    if brands & _AVIF_BRANDS:
        return "AVIF"
    if brands & _HEIF_BRANDS:
        if not reads_heic():
            raise ImageError(
                "The file is a HEIC image, which cannot be read: install recoquest[heic], "
                "or convert it to JPEG."
            )
        return "HEIC"
    raise ImageError(
        "The file is not an image that can be read: send JPEG, PNG, WebP, AVIF, GIF, BMP, TIFF or DICOM."
    )


def is_dicom(content: bytes) -> bool:
    """Tell if a file begins as a DICOM file does: with its mark, or with one of the first elements."""
    if content[PREAMBLE_BYTES : PREAMBLE_BYTES + 4] == MARK:
        return True
    if len(content) < 12 or content[:2] not in _FIRST_GROUPS:
        return False
    order = ">" if content[0] == 0 else "<"
    group, number, representation, short, long = struct.unpack_from(order + "HH2sHI", content)
    expected = _STARTS[group].get(number)
    if representation == expected:
        start, length = (12, long) if expected in (b"OB", b"SQ") else (8, short)
    elif expected is not None and order == "<":
        start, length = 8, struct.unpack_from("<I", content, 4)[0]
    else:
        # Big-endian files have representations.
        return False
    if expected == b"SQ" and length == _UNDEFINED:
        return True
    if length > _LONGEST or length % 2 or (expected == b"UL" and length != 4):
        return False
    after = content[start + length : start + length + 4]
    # Elements are in order of their tags; an image has some of these groups, and no group a length alone.
    last = _PIXEL_GROUP if number else group
    return len(after) < 4 or (group, number) < struct.unpack(order + "HH", after) < (last, 0xFFFF)


def is_big_endian(content: bytes, start: int, *, otherwise: bool) -> bool:
    """Tell the byte order by the group of the first element; groups up to 255 have a byte of zero."""
    group = content[start : start + 2]
    return group[0] == 0 if len(group) == 2 and (group[0] == 0) != (group[1] == 0) else otherwise


def stated_sizes(content: bytes, format_name: str) -> Iterator[tuple[int, int]]:
    """Yield the widths and heights that a file states, where opening it would already take memory for them.

    Raises:
        ImageError: It states none.
    """
    if format_name == "WebP":
        # Pillow's decoder reserves the whole canvas as soon as it is opened.
        yield _webp_size(content)
    elif format_name in ("AVIF", "HEIC"):
        for box in walk_boxes(content):
            if box.kind == b"ispe" and box.content + 12 <= len(content):
                # ISO/IEC 23008-12, section 6.5.3.
                yield struct.unpack_from(">II", content, box.content + 4)


def _webp_size(content: bytes) -> tuple[int, int]:
    """Width and height from the first chunk of a WebP file (RFC 9649, sections 2.5 to 2.7)."""
    kind, chunk = content[12:16], content[20:30]
    if kind == b"VP8X" and len(chunk) >= 10:
        return int.from_bytes(chunk[4:7], "little") + 1, int.from_bytes(chunk[7:10], "little") + 1
    if kind == b"VP8 " and len(chunk) >= 10:
        width, height = struct.unpack_from("<HH", chunk, 6)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L" and len(chunk) >= 5:
        bits = int.from_bytes(chunk[1:5], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    raise ImageError("The header of the WebP image is damaged: its first chunk gives no size.")


def _brands(content: bytes) -> set[bytes]:
    """Return the major and the compatible brands of an ISO base media file."""
    size = min(int.from_bytes(content[:4]), len(content), 256)
    if content[4:8] != b"ftyp":
        return set()
    return {content[8:12], *(content[offset : offset + 4] for offset in range(16, size - 3, 4))}


def walk_boxes(content: bytes) -> Iterator[Box]:
    """Walk over the boxes of a file and those inside of others (ISO/IEC 14496-12, section 4.2).

    Raises:
        ImageError: They are more than any program writes.
    """
    spans: list[tuple[int, int, Box | None]] = [(0, len(content), None)]
    left = _MOST_BOXES
    while spans:
        start, end, parent = spans.pop()
        while start != end:
            size, head = int.from_bytes(content[start : start + 4]) or end - start, 8
            if size == 1:
                size, head = int.from_bytes(content[start + 8 : start + 16]), 16
            kind = content[start + 4 : start + 8]
            box = Box(kind, start, start + head, start + size, parent)
            left -= 1
            if left < 0:
                raise ImageError(f"The AVIF or HEIC image has over {_MOST_BOXES:,} boxes; save it anew.")
            yield box
            if kind in _CONTAINERS:
                # A later version of the list of items counts them with four bytes.
                wide = 2 if kind == b"iinf" and content[box.content : box.content + 1] != b"\0" else 0
                spans.append((box.content + _CONTAINERS[kind] + wide, min(box.end, end), box))
            if max(box.content, box.end) > end:
                break
            # The walk continues after a box that is smaller than its header.
            start = max(box.end, start + 8)


def check_structure(content: bytes, format_name: str) -> None:
    """Refuse a WebP, GIF, BMP or TIFF file of more parts than any program writes.

    Those of JPEG and PNG are bounded by their own modules; libavif and libheif bound the boxes they keep.

    Raises:
        ImageTooLargeError: It has more parts than the limit, or describes more pixels than its bytes can.
    """
    match format_name:
        case "WebP":
            deque(webp_chunks(content), maxlen=0)
        case "GIF":
            deque(gif_blocks(content), maxlen=0)
        case "BMP":
            _check_bmp(content)
        case "TIFF":
            _check_tiff(content)


def webp_chunks(content: bytes, first: int = 12) -> Iterator[tuple[bytes, int, int]]:
    """Walk over the chunks of a WebP file, or from another offset those of a frame (RFC 9649, section 2.3).

    Yields:
        The kind of each, and the offsets of its data's beginning and end, which may be beyond the file.

    Raises:
        ImageTooLargeError: They are more than the limit.
    """
    offset = first
    for _ in range(_MOST_WEBP_CHUNKS):
        if offset + 8 > len(content):
            return
        size = int.from_bytes(content[offset + 4 : offset + 8], "little")
        yield content[offset : offset + 4], offset + 8, offset + 8 + size
        offset += 8 + size + size % 2
    raise ImageTooLargeError(f"The WebP image has over {_MOST_WEBP_CHUNKS:,} chunks; save it anew.")


def _colour_table_size(flags: int) -> int:
    """Bytes of a GIF colour table, from the packed field before it."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def gif_blocks(content: bytes) -> Iterator[tuple[int, int, int]]:
    """Walk over the images and extensions of a GIF file (GIF89a, sections 15 to 26).

    Yields:
        The first byte of each, and the offsets of its beginning and end, which may be beyond the file.

    Raises:
        ImageTooLargeError: They have more blocks than the limit.
    """
    length = len(content)
    offset = 13 + _colour_table_size(content[10]) if length > 10 else length
    blocks = 0
    while offset < length:
        start, kind = offset, content[offset]
        if kind == GIF_IMAGE and offset + 9 < length:
            offset += 11 + _colour_table_size(content[offset + 9])
        elif kind == _GIF_EXTENSION:
            offset += 2
        else:
            return
        while offset < length and content[offset] and blocks <= _MOST_GIF_BLOCKS:
            offset += 1 + content[offset]
            blocks += 1
        offset += 1
        blocks += 2
        if blocks > _MOST_GIF_BLOCKS:
            raise ImageTooLargeError(f"The GIF image has over {_MOST_GIF_BLOCKS:,} blocks; save it anew.")
        yield kind, start, offset


def count_gif_frames(content: bytes, most: int) -> int:
    """Count the images of a GIF file, at most one more than `most`."""
    images = (block for block in gif_blocks(content) if block[0] == GIF_IMAGE)
    return max(1, sum(1 for _ in islice(images, most + 1)))


def _check_bmp(content: bytes) -> None:
    """Compare the pixels of a run-length encoding with the bytes that describe them."""
    if len(content) < 34 or int.from_bytes(content[14:18], "little") < 40:
        return
    width, height, _, _, compression = struct.unpack_from("<iiHHI", content, 18)
    pixels = abs(width) * abs(height)
    if compression in _RLE_COMPRESSIONS and pixels > _RLE_PIXELS_A_BYTE * len(content):
        raise ImageTooLargeError(
            f"The BMP image has {pixels:,} pixels in {len(content):,} bytes of runs, more than those can "
            "describe; save it as PNG."
        )


def _check_tiff(content: bytes) -> None:
    """Look at the image file directories that may be decoded."""
    form = TiffForm(content)
    with suppress(struct.error, OverflowError):
        for first, entries in islice(form.directories(), _MOST_TIFF_PAGES):
            if entries > _MOST_TIFF_ENTRIES:
                raise ImageTooLargeError(
                    f"The TIFF image has over {_MOST_TIFF_ENTRIES:,} tags; save it anew."
                )
            if any(
                tag in _LISTED_TAGS and n > _MOST_TIFF_PARTS for tag, _, n, _ in form.entries(first, entries)
            ):
                raise ImageTooLargeError(
                    f"The TIFF image has over {_MOST_TIFF_PARTS:,} strips or tiles; save it with fewer."
                )


class TiffForm:
    """Byte order, widths and directories of a TIFF or BigTIFF file, or of EXIF data (TIFF 6.0, section 2).

    Attributes:
        order: Byte order, < or >.
        first: Offset of the pointer to the first directory.
        pointer: An offset in the file.
        number: The number of entries of a directory.
        entry: Tag, type, number of values, and the values or their offset.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.order = "<" if content[:2] == b"II" else ">"
        self.big = content[2:4] in (b"+\0", b"\0+")
        self.first = 8 if self.big else 4
        self.pointer = struct.Struct(self.order + ("Q" if self.big else "I"))
        self.number = struct.Struct(self.order + ("Q" if self.big else "H"))
        self.entry = struct.Struct(self.order + ("HHQ8s" if self.big else "HHI4s"))

    def directories(self) -> Iterator[tuple[int, int]]:
        """Walk over the chain of directories: the offset of the entries of each, and their number.

        Raises:
            struct.error, OverflowError: The file ends before the chain does.
        """
        seen: set[int] = set()
        offset = self.first
        while True:
            (start,) = self.pointer.unpack_from(self.content, offset)
            if not start or start in seen:
                return
            seen.add(start)
            (entries,) = self.number.unpack_from(self.content, start)
            first = start + self.number.size
            yield first, entries
            offset = first + entries * self.entry.size

    def entries(self, first: int, entries: int) -> Iterator[tuple[int, int, int, bytes]]:
        """Walk over the entries of a directory, as far as the file goes."""
        last = min(first + entries * self.entry.size, len(self.content) - self.entry.size + 1)
        for offset in range(first, last, self.entry.size):
            yield self.entry.unpack_from(self.content, offset)


def count_tiff_pages(content: bytes, most: int) -> int:
    """Count the image file directories of a TIFF file, at most one more than `most`."""
    pages = 0
    # If a file ends before the chain does, the pages up to there count.
    with suppress(struct.error, OverflowError):
        for _ in islice(TiffForm(content).directories(), most + 1):
            pages += 1
    return max(1, pages)


def check_size(width: int, height: int, most_pixels: int) -> None:
    """Refuse an image by its width and height.

    Raises:
        ImageTooLargeError: It has too many pixels.
        ImageError: It has none.
    """
    if width < 1 or height < 1:
        raise ImageError(f"The image is {width} x {height} pixels: there is nothing in it.")
    if width * height > most_pixels:
        raise ImageTooLargeError(
            f"The image is {width} x {height} pixels, {megapixels(width * height)}; "
            f"the limit is {megapixels(most_pixels)} (RECOQUEST_MAX_IMAGE_PIXELS)."
        )


def megapixels(pixels: int) -> str:
    """Return a number of pixels as text."""
    return f"{pixels / 1e6:,.10g} megapixels"


def _open_avif(file: io.BytesIO) -> ImageFile.ImageFile:
    # Pillow takes this setting nowhere else. A thread for each core would take its stack from the memory
    # that decoding one image may have.
    AvifImagePlugin.DEFAULT_MAX_THREADS = 1
    return AvifImagePlugin.AvifImageFile(file)


def _open_heic(file: io.BytesIO) -> ImageFile.ImageFile:
    # The extra may be missing, and its libraries are large: loaded for the first such file.
    from pi_heif import HeifImageFile, options

    # The package takes these settings nowhere else.
    options.DECODE_THREADS = 1
    options.THUMBNAILS = options.DEPTH_IMAGES = options.AUX_IMAGES = False
    opened: ImageFile.ImageFile = HeifImageFile(file)
    return opened


# Pillow's decoders of all formats but TIFF, which read the header of a file. They are called directly:
# Image.open tries every plugin installed and applies a limit of its own, Image.MAX_IMAGE_PIXELS, which is one
# global for the whole process.
OPENERS: Final[dict[str, Callable[[io.BytesIO], ImageFile.ImageFile]]] = {
    "JPEG": JpegImageFile,
    "PNG": PngImageFile,
    "WebP": WebPImageFile,
    "AVIF": _open_avif,
    "HEIC": _open_heic,
    "GIF": GifImageFile,
    "BMP": BmpImageFile,
}
