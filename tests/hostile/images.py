"""Image files that cost more than they look, and files that lie."""

import io
import random
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
from PIL import Image

_PNG_MAGIC: Final = b"\x89PNG\r\n\x1a\n"
_JPEG_END: Final = b"\xff\xd9"
_FORMATS: Final = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP")
# Width and height of 50 megapixels, the most that the service takes, in several shapes.
_LARGEST: Final = ((7071, 7071), (50_000_000, 1), (10_000, 5_000), (100, 500_000))


def hostile_images(draw: random.Random) -> Iterator[tuple[str, bytes]]:
    """Files without end: each kind in turn, with other parameters each time."""
    while True:
        for make in _KINDS:
            yield make.__name__.strip("_"), make(draw)


def ordinary_image(draw: random.Random, format: str, side: int = 200) -> bytes:
    """A file of smooth noise that every service takes."""
    noise = np.random.default_rng(draw.getrandbits(32)).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(noise).resize((side, side * 3 // 4)).save(out, format)
    return out.getvalue()


def _chunk(name: bytes, content: bytes, flip: int = 0) -> bytes:
    checksum = zlib.crc32(name + content) ^ flip
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", checksum)


def _png(width: int, height: int, depth: int, colour: int, rows: bytes, interlaced: int = 0) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    palette = _chunk(b"PLTE", bytes(768)) + _chunk(b"tRNS", bytes(256)) if colour == 3 else b""
    return b"".join(
        (_PNG_MAGIC, _chunk(b"IHDR", header), palette, _chunk(b"IDAT", rows), _chunk(b"IEND", b""))
    )


def _zeros(size: int) -> bytes:
    """`size` zeros, deflated without ever lying in memory."""
    deflate, block = zlib.compressobj(9), bytes(1 << 20)
    parts = [deflate.compress(block) for _ in range(size >> 20)]
    return b"".join([*parts, deflate.compress(bytes(size & 0xFFFFF)), deflate.flush()])


def _png_bomb(draw: random.Random) -> bytes:
    """Few bytes, many pixels: grey of 16 bits, with alpha, with a palette, interlaced."""
    width, height = draw.choice(_LARGEST)
    depth, colour, size = draw.choice(
        ((16, 0, 2), (16, 4, 4), (8, 6, 4), (8, 3, 1), (16, 2, 6), (1, 0, 0.125))
    )
    row = 1 + int(width * size + 0.999)
    return _png(width, height, depth, colour, _zeros(row * height), draw.choice((0, 0, 1)))


def _png_over_the_limit(draw: random.Random) -> bytes:
    return _png(draw.randint(50_000, 2**31 - 1), draw.randint(50_000, 2**31 - 1), 8, 2, _zeros(1000))


def _png_of_chunks(draw: random.Random) -> bytes:
    """Millions of chunks without content, or texts that unpack to a hundred times their size."""
    small = ordinary_image(draw, "PNG")
    if draw.random() < 0.5:
        more = _chunk(draw.choice((b"teXt", b"tEXt", b"pHYs", b"IDAT")), b"") * draw.randint(
            100_000, 1_500_000
        )
    else:
        bomb = b"key\0\0" + zlib.compress(bytes(draw.randint(1 << 20, 1 << 26)), 9)
        more = _chunk(b"zTXt", bomb) * draw.randint(1, 80)
    return small[:33] + more[: 19 << 20] + small[33:]


def _png_with_wrong_checksum(draw: random.Random) -> bytes:
    small = ordinary_image(draw, "PNG")
    return small[:33] + _chunk(draw.choice((b"IDAT", b"pHYs", b"gAMA")), b"12345678", flip=1) + small[33:]


def _bmp_of_runs(draw: random.Random) -> bytes:
    """A run-length encoded bitmap whose few bytes stand for 50 megapixels."""
    width, height = draw.choice(_LARGEST)
    bits, method = draw.choice(((8, 1), (4, 2)))
    runs = bytes((255, 7)) * draw.choice((1, 5, 200_000)) + b"\0\1"
    start = 14 + 40 + 4 * (1 << bits)
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, method, len(runs), 0, 0, 0, 0)
    header = b"BM" + struct.pack("<IHHI", start + len(runs), 0, 0, start)
    return header + info + bytes(4 * (1 << bits)) + runs


def _jpeg_of_segments(draw: random.Random) -> bytes:
    """Segments by the hundred thousand; Exif ones are joined by some readers, again and again."""
    small = ordinary_image(draw, "JPEG")
    marker = draw.choice((b"\xff\xe1", b"\xff\xe0", b"\xff\xe2", b"\xff\xed", b"\xff\xfe"))
    content = draw.choice((b"", b"Exif\0\0", b"Exif\0\0" + bytes(60), b"ICC_PROFILE\0\1\1", b"MPF\0"))
    segment = marker + struct.pack(">H", 2 + len(content)) + content
    return small[:2] + segment * (draw.randint(1 << 20, 19 << 20) // len(segment)) + small[2:]


def _jpeg_of_scans(draw: random.Random) -> bytes:
    """A progressive file of 50 megapixels whose scans come again and again."""
    out = io.BytesIO()
    Image.new("L", (6_000, 8_000)).save(out, "JPEG", progressive=True)
    content = out.getvalue()
    scan = content.rindex(b"\xff\xda")
    return content[:-2] + content[scan:-2] * draw.randint(1, 500) + _JPEG_END


def _jpeg_bomb(draw: random.Random) -> bytes:
    """The most pixels in the fewest bytes, in grey or colour, progressive or not."""
    out = io.BytesIO()
    mode = draw.choice(("L", "RGB", "CMYK"))
    Image.new(mode, (7_071, 7_071)).save(out, "JPEG", progressive=draw.random() < 0.5)
    return out.getvalue()


def _tiff(tags: Sequence[tuple[int, int, int, int]], tail: bytes = b"", following: int = 0) -> bytes:
    entries = b"".join(struct.pack("<HHII", *tag) for tag in sorted(tags))
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + struct.pack("<I", following) + tail


def _tiff_of_strips(draw: random.Random) -> bytes:
    """Millions of strips, one row each."""
    count = draw.choice((1_000, 1_000_000, 2_400_000))
    start = 8 + 2 + 8 * 12 + 4
    tags = [
        (256, 4, 1, 1),
        (257, 4, 1, count),
        (258, 3, 1, 8),
        (259, 3, 1, draw.choice((1, 5, 8))),
        (262, 3, 1, 1),
        (273, 4, count, start),
        (278, 4, 1, 1),
        (279, 4, count, start + 4 * count),
    ]
    return _tiff(tags, bytes(8 * count))


def _tiff_that_lies(draw: random.Random) -> bytes:
    """Directories that point at themselves, counts and offsets beyond the file, tiles of gigabytes."""
    tags = [
        (256, 4, 1, draw.choice((1, 7_000, 2**32 - 1))),
        (257, 4, 1, draw.choice((1, 7_000, 2**32 - 1))),
        (258, 3, draw.choice((1, 3, 2**31)), 8),
        (259, 3, 1, draw.choice((1, 5, 7, 8, 34712))),
        (262, 3, 1, draw.choice((0, 1, 2, 3, 5, 6, 8))),
        (322, 4, 1, draw.choice((16, 2**20, 2**31))),
        (323, 4, 1, draw.choice((16, 2**20, 2**31))),
        (324, 4, draw.choice((1, 2**30)), draw.choice((8, 2**31))),
        (325, 4, draw.choice((1, 2**30)), draw.choice((8, 2**31))),
    ]
    return _tiff(
        draw.sample(tags, draw.randint(4, len(tags))), bytes(draw.randint(0, 4096)), draw.choice((0, 8))
    )


def _gif_of_frames(draw: random.Random) -> bytes:
    """Frames, or blocks of comments, by the hundred thousand, on the largest canvas."""
    small = ordinary_image(draw, "GIF")
    header = bytearray(small[:13])
    if draw.random() < 0.5:
        header[6:10] = struct.pack("<HH", 7_071, 7_071)
    palette = 3 << ((header[10] & 7) + 1)
    body = small[13 + palette : -1]
    more = draw.choice((body, b"!\xfe\0", b"!\xf9\4\0\0\0\0\0")) if len(body) < 100_000 else b"!\xfe\0"
    content = bytes(header) + small[13 : 13 + palette] + body + more * ((4 << 20) // len(more))
    return content + b";"


def _webp_canvas(draw: random.Random) -> bytes:
    """A canvas far larger than the file."""
    side = struct.pack("<I", draw.choice((7_070, 16_383, 2**24 - 1)))[:3]
    chunk = b"VP8X" + struct.pack("<IB", 10, draw.choice((0, 2, 16))) + bytes(3) + side + side
    frames = b"ANIM" + struct.pack("<I", 6) + bytes(6)
    inner = b"WEBP" + chunk + frames + ordinary_image(draw, "WEBP")[12:]
    return b"RIFF" + struct.pack("<I", len(inner)) + inner


def _cut(draw: random.Random) -> bytes:
    content = ordinary_image(draw, draw.choice(_FORMATS))
    return content[: draw.randint(1, len(content) - 1)]


def _flipped(draw: random.Random) -> bytes:
    content = bytearray(ordinary_image(draw, draw.choice(_FORMATS)))
    for _ in range(draw.randint(1, 40)):
        content[draw.randrange(len(content))] = draw.randrange(256)
    return bytes(content)


def _noise_behind_a_magic(draw: random.Random) -> bytes:
    magic = draw.choice(
        (b"\xff\xd8\xff\xe0", _PNG_MAGIC, b"GIF89a", b"BM", b"II*\0", b"MM\0*", b"RIFF1234WEBP", b"")
    )
    return magic + draw.randbytes(draw.randint(0, 100_000))


_KINDS: Final[tuple[Callable[[random.Random], bytes], ...]] = (
    _png_bomb,
    _bmp_of_runs,
    _jpeg_of_segments,
    _png_of_chunks,
    _tiff_of_strips,
    _jpeg_bomb,
    _gif_of_frames,
    _tiff_that_lies,
    _webp_canvas,
    _jpeg_of_scans,
    _png_over_the_limit,
    _png_with_wrong_checksum,
    _cut,
    _flipped,
    _noise_behind_a_magic,
)
