"""Image files that cost a decoder far more than their bytes, and honest ones that look alike."""

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image


def encoded(image: Image.Image, file_format: str, **options: Any) -> bytes:
    """An image as a file."""
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def rle_bmp(width: int, height: int, runs: bytes, *, four_bits: bool = False) -> bytes:
    """A run-length encoded BMP of these sizes; its runs need not describe as many pixels."""
    palette = bytes(8)
    start = 14 + 40 + len(palette)
    depth, compression = (4, 2) if four_bits else (8, 1)
    about = struct.pack("<IiiHHIIiiII", 40, width, height, 1, depth, compression, len(runs), 0, 0, 2, 0)
    head = b"BM" + struct.pack("<IHHI", start + len(runs), 0, 0, start)
    return head + about + palette + runs


def slow_bmp(pixels: int = 50_000_000) -> bytes:
    """A BMP with as many bytes as its pixels need, whose decoder fills its rows pixel by pixel."""
    width = 10_000
    runs = b"\1\1\0\0" * (pixels // width)
    return rle_bmp(width, pixels // width, runs + bytes(max(0, pixels // 128 - len(runs))))


def jpeg_with(segments: bytes) -> bytes:
    """A small JPEG with these bytes behind its first segment."""
    content = encoded(Image.new("RGB", (8, 8)), "JPEG")
    return content[:20] + segments + content[20:]


def segment(marker: int, body: bytes = b"") -> bytes:
    """A marker segment of a JPEG."""
    return bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body


def png_chunk(kind: bytes, body: bytes = b"") -> bytes:
    """A chunk of a PNG."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_with(chunks: bytes) -> bytes:
    """A small PNG with these bytes before its pixels."""
    content = encoded(Image.new("L", (8, 8)), "PNG")
    place = content.index(b"IDAT") - 4
    return content[:place] + chunks + content[place:]


def png_of_small_chunks(size: int, chunk: int) -> bytes:
    """A PNG of noise with about `size` bytes of pixels in chunks of `chunk` bytes."""
    side = int((size / 3) ** 0.5)
    noise = np.random.default_rng(0).integers(0, 256, (side, 3 * side), dtype=np.uint8)
    rows = b"".join(b"\0" + row.tobytes() for row in noise)
    data = zlib.compress(rows, 0)
    chunks = [png_chunk(b"IDAT", data[place : place + chunk]) for place in range(0, len(data), chunk)]
    head = png_chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(chunks) + png_chunk(b"IEND")


def striped_tiff(strips: int, *, big: bool = False) -> bytes:
    """A grey TIFF of one row for each strip, classic or BigTIFF."""
    pointer, entry_size = ("Q", 20) if big else ("I", 12)
    listed = 8 + 8 * big
    offsets = struct.pack(f"<{strips}I", *[0] * strips)
    short = [(256, 8), (257, strips), (258, 8), (259, 1), (262, 1), (277, 1), (278, 1)]
    directory = listed + 2 * len(offsets)
    entries = [struct.pack(f"<HH{pointer}{pointer}", tag, 4, 1, value) for tag, value in short]
    entries += [
        struct.pack(f"<HH{pointer}{pointer}", tag, 4, strips, listed + place * len(offsets))
        for place, tag in enumerate((273, 279))
    ]
    assert all(len(entry) == entry_size for entry in entries)
    entries.sort(key=lambda entry: struct.unpack_from("<H", entry))
    start = (
        b"II+\0" + struct.pack("<HHQ", 8, 0, directory) if big else b"II*\0" + struct.pack("<I", directory)
    )
    count = struct.pack("<Q" if big else "<H", len(entries))
    return start + offsets * 2 + count + b"".join(entries) + bytes(8)


def gif_of_blocks(blocks: int) -> bytes:
    """A GIF with a comment of so many blocks of one byte."""
    content = encoded(Image.new("P", (8, 8)), "GIF")
    place = content.index(b",", 13)
    return content[:place] + b"!\xfe" + b"\x01x" * blocks + b"\0" + content[place:]


def webp_of_chunks(chunks: int) -> bytes:
    """A WebP with so many empty chunks behind its first."""
    body = encoded(Image.new("RGB", (8, 8)), "WEBP")[8:] + b"JUNK\0\0\0\0" * chunks
    return b"RIFF" + struct.pack("<I", len(body)) + body


def deep_png(width: int = 10_000, height: int = 5_000) -> bytes:
    """A 16-bit grey PNG whose pixels are many times its bytes."""
    rows = zlib.compressobj(6)
    row = b"\0" + np.arange(width, dtype=">u2").tobytes()
    data = b"".join(rows.compress(row) for _ in range(height)) + rows.flush()
    head = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + png_chunk(b"IDAT", data) + png_chunk(b"IEND")
