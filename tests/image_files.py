"""Writers of PNG and TIFF files of every depth, which Pillow writes only in part."""

import hashlib
import io
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[Any]
Order = Literal["<", ">"]


# First column and row, and their steps, of the seven passes of an interlaced PNG.
_ADAM7: Final = (
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
)
_EVERY_PIXEL: Final = ((0, 0, 1, 1),)
_GREY, _RGB, _PALETTE, _GREY_ALPHA, _RGBA = 0, 2, 3, 4, 6
_LZW_CLEAR, _LZW_END, _LZW_RUN = 256, 257, 250
_COLOUR_TYPES: Final = {1: _GREY, 2: _GREY_ALPHA, 3: _RGB, 4: _RGBA}


def write_photo(path: Path) -> None:
    """Write a small JPEG file, another one for each name; an import decodes it whatever its ending."""
    shade = np.frombuffer(hashlib.sha256("/".join(path.parts[-3:]).encode()).digest()[:12], np.uint8)
    path.write_bytes(encoded(Image.fromarray(shade.reshape(2, 2, 3)).resize((16, 16)), "JPEG"))


def encoded(image: Image.Image, file_format: str, **options: Any) -> bytes:
    """Return an image as Pillow writes it."""
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def png_chunk(kind: bytes, body: bytes, *, damage: int = 0) -> bytes:
    """Return a chunk, of wrong checksum where `damage` is not 0."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body) ^ damage)


def png(
    samples: Pixels,
    bits: int,
    *,
    palette: bytes | None = None,
    interlaced: bool = False,
    before: Sequence[bytes] = (),
) -> bytes:
    """Return a PNG file of samples (H, W, C), with all five filters.

    Args:
        samples: Grey, grey with opacity, RGB, RGBA, or places in the palette.
        bits: Of a sample.
        palette: Colours, three bytes each.
        interlaced: Whether it has seven passes.
        before: Chunks before the pixels.
    """
    height, width, channels = samples.shape
    colour = _PALETTE if palette else _COLOUR_TYPES[channels]
    rows = bytearray()
    for left, top, right, down in _ADAM7 if interlaced else _EVERY_PIXEL:
        part = samples[top::down, left::right]
        if part.size:
            rows += _filtered(_packed(part, bits, ">"), max(1, bits * channels // 8))
    head = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, int(interlaced))
    chunks = [png_chunk(b"IHDR", head), *([png_chunk(b"PLTE", palette)] if palette else []), *before]
    body = zlib.compress(bytes(rows))
    # The pixels of many files are spread over several chunks.
    chunks += [png_chunk(b"IDAT", body[:20]), png_chunk(b"IDAT", body[20:]), png_chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _filtered(rows: Pixels, step: int) -> bytes:
    """Filter rows of bytes by each method in turn (PNG, third edition, section 9)."""
    wide = rows.astype(np.int16)
    left = np.pad(wide, ((0, 0), (step, 0)))[:, : rows.shape[1]]
    up = np.pad(wide, ((1, 0), (0, 0)))[:-1]
    corner = np.pad(left, ((1, 0), (0, 0)))[:-1]
    guess = left + up - corner
    distances = np.stack([abs(guess - left), abs(guess - up), abs(guess - corner)])
    paeth = np.choose(distances.argmin(axis=0), [left, up, corner])
    predictions = [np.zeros_like(wide), left, up, (left + up) // 2, paeth]
    content = bytearray()
    for row in range(len(rows)):
        method = row % len(predictions)
        content.append(method)
        content += ((wide[row] - predictions[method][row]) % 256).astype(np.uint8).tobytes()
    return bytes(content)


def _packed(samples: Pixels, bits: int, order: Order) -> Pixels:
    """Return the rows of samples (H, W, C) as bytes (H, B)."""
    height = len(samples)
    if bits % 8 == 0:
        return np.frombuffer(samples.astype(samples.dtype.newbyteorder(order)).tobytes(), np.uint8).reshape(
            height, -1
        )
    numbers = samples.reshape(height, -1, 1).astype(np.uint16)
    digits = (numbers >> np.arange(bits)[::-1].astype(np.uint16) & 1).astype(np.uint8)
    return np.packbits(digits.reshape(height, -1), axis=-1)


def tiff(
    samples: Pixels,
    bits: int | None = None,
    *,
    photometric: int | None = None,
    order: Order = "<",
    big: bool = False,
    compression: int = 1,
    predictor: int = 1,
    planar: bool = False,
    tile: int = 0,
    extra: int | None = None,
    tags: dict[int, int | bytes] | None = None,
) -> bytes:
    """Return a TIFF file of samples (H, W, C), in strips of 7 rows or in tiles (TIFF 6.0).

    Args:
        samples: Unsigned, signed or float; their type is the sample format.
        bits: Of a sample; None: as its type has.
        photometric: None: BlackIsZero or RGB.
        order: Byte order, < or >.
        big: Whether it is a BigTIFF.
        compression: 1: none, 5: LZW, 8: Deflate.
        predictor: 2: differences of samples, 3: those of the bytes of floats.
        planar: Whether each channel has a plane.
        tile: Side of tiles; 0: strips.
        extra: Meaning of the last channel.
        tags: More tags.
    """
    height, width, channels = samples.shape
    bits = bits or 8 * samples.dtype.itemsize
    planes = [samples[..., channel : channel + 1] for channel in range(channels)] if planar else [samples]
    side = tile or 0
    parts = []
    for plane in planes:
        if tile:
            plane = np.pad(plane, ((0, -height % tile), (0, -width % tile), (0, 0)))
            parts += [
                plane[top : top + tile, left : left + tile]
                for top in range(0, height, tile)
                for left in range(0, width, tile)
            ]
        else:
            parts += [plane[top : top + 7] for top in range(0, height, 7)]
    blocks = []
    for part in parts:
        block = _predicted(part, bits, order, predictor)
        blocks.append(_PACKERS[compression](block))
    kind = {"u": 1, "i": 2, "f": 3}[samples.dtype.kind]
    default = 2 if channels > 2 else 1
    listed: dict[int, tuple[int, ...] | bytes] = {
        256: (width,),
        257: (height,),
        258: (bits,) * channels,
        259: (compression,),
        262: (default if photometric is None else photometric,),
        277: (channels,),
        284: (2 if planar else 1,),
        317: (predictor,),
        339: (kind,) * channels,
    }
    if extra is not None:
        listed[338] = (extra,)
    listed |= {tag: value if isinstance(value, bytes) else (value,) for tag, value in (tags or {}).items()}
    listed |= {322: (side,), 323: (side,)} if tile else {278: (7,)}
    return _tiff_file(listed, blocks, order, big=big, tiled=bool(tile))


def _lzw(block: bytes) -> bytes:
    """Return bytes as codes of LZW, whose table is cleared before the codes grow longer (TIFF 6.0, 13)."""
    codes = []
    for start in range(0, len(block), _LZW_RUN):
        codes += [_LZW_CLEAR, *block[start : start + _LZW_RUN]]
    bits = "".join(f"{code:09b}" for code in [*codes, _LZW_END])
    bits += "0" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8)


_PACKERS: Final[Mapping[int, Callable[[bytes], bytes]]] = {1: bytes, 5: _lzw, 8: zlib.compress}


def _predicted(part: Pixels, bits: int, order: Order, predictor: int) -> bytes:
    if predictor == 2:
        unsigned = part.view(f"u{part.dtype.itemsize}")
        part = np.diff(unsigned, axis=1, prepend=unsigned.dtype.type(0)).astype(unsigned.dtype)
    elif predictor == 3:
        height, _, channels = part.shape
        big_endian = np.ascontiguousarray(part.astype(part.dtype.newbyteorder(">")))
        planes = big_endian.view(np.uint8).reshape(height, -1, part.dtype.itemsize).swapaxes(1, 2)
        rows = np.ascontiguousarray(planes).reshape(height, -1, channels)
        return np.diff(rows, axis=1, prepend=np.uint8(0)).astype(np.uint8).tobytes()
    return _packed(part, bits, order).tobytes()


def _tiff_file(
    listed: dict[int, tuple[int, ...] | bytes],
    blocks: Sequence[bytes],
    order: Order,
    *,
    big: bool,
    tiled: bool,
) -> bytes:
    pointer, size = ("Q", 8) if big else ("I", 4)
    start = 16 if big else 8
    places, data = [], b""
    for block in blocks:
        places.append(start + len(data))
        data += block + bytes(len(block) % 2)
    listed[324 if tiled else 273] = tuple(places)
    listed[325 if tiled else 279] = tuple(map(len, blocks))
    directory = start + len(data)
    place = directory + (8 if big else 2) + len(listed) * (20 if big else 12) + size
    entries, values = b"", b""
    for tag, value in sorted(listed.items()):
        packed = value if isinstance(value, bytes) else struct.pack(f"{order}{len(value)}I", *value)
        kind, count = (7, len(packed)) if isinstance(value, bytes) else (4, len(value))
        entries += struct.pack(f"{order}HH{pointer}", tag, kind, count)
        if len(packed) <= size:
            entries += packed.ljust(size, b"\0")
        else:
            entries += struct.pack(order + pointer, place + len(values))
            values += packed + bytes(len(packed) % 2)
    mark = {"<": b"II", ">": b"MM"}[order]
    head = (
        struct.pack(f"{order}HHHQ", 43, 8, 0, directory) if big else struct.pack(f"{order}HI", 42, directory)
    )
    count_of = struct.pack(order + ("Q" if big else "H"), len(listed))
    return mark + head + data + count_of + entries + bytes(size) + values
