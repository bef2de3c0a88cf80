"""A picture of four quadrants, drawn in the depths, colours and turns that image files store."""

import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms

from tests.image_files import encoded, png, png_chunk, tiff

Levels = NDArray[np.float64]
Colour = tuple[int, int, int]
Quadrants = tuple[Colour, ...]

WIDTH, HEIGHT = 64, 48
LOSSY: Final = 14

# Upper left, upper right, lower left, lower right.
COLOURS: Final[Quadrants] = ((255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255))
GREYS: Final[Quadrants] = ((0, 0, 0), (85, 85, 85), (170, 170, 170), (255, 255, 255))
BILEVEL: Final[Quadrants] = ((0, 0, 0), (255, 255, 255), (0, 0, 0), (255, 255, 255))
# The grey picture whose upper right is transparent.
ON_WHITE: Final[Quadrants] = ((0, 0, 0), (255, 255, 255), (170, 170, 170), (255, 255, 255))
WHITE_ON_BLACK: Final[Quadrants] = ((255, 255, 255), (0, 0, 0), (255, 255, 255), (255, 255, 255))


def quadrants_of(image: Image.Image) -> Quadrants:
    """Return the colours in the middle of the quadrants of an RGB image."""
    pixels = np.asarray(image)
    found = [pixels[image.height * y // 4, image.width * x // 4].tolist() for y in (1, 3) for x in (1, 3)]
    return tuple((red, green, blue) for red, green, blue in found)


def differs_by(image: Image.Image, quadrants: Quadrants) -> int:
    """Return the largest difference of a channel from the colours of the quadrants."""
    return int(np.abs(np.array(quadrants_of(image)) - np.array(quadrants)).max())


def filled(quadrants: NDArray[Any]) -> NDArray[Any]:
    """Return samples (H, W, C) with one value (C,) in each quadrant of (4, C)."""
    return quadrants.reshape(2, 2, -1).repeat(HEIGHT // 2, axis=0).repeat(WIDTH // 2, axis=1)


def levels(quadrants: Quadrants, largest: float = 255.0, kind: str = "u1") -> NDArray[Any]:
    """Return the picture as samples (H, W, 3) from 0 to `largest`."""
    return filled(np.array(quadrants) / 255.0 * largest).round(0 if kind[0] in "ui" else 9).astype(kind)


def grey(largest: float = 255.0, kind: str = "u1", *, smallest: float = 0.0) -> NDArray[Any]:
    """Return the grey picture as samples (H, W, 1)."""
    return (levels(GREYS, largest - smallest, "f8")[..., :1] + smallest).astype(kind)


def with_hole(samples: NDArray[Any], opaque: float) -> NDArray[Any]:
    """Return samples with a channel of opacity that is 0 in the upper right."""
    opacity = filled(np.array([[opaque], [0], [opaque], [opaque]])).astype(samples.dtype)
    return np.concatenate((samples, opacity), axis=-1)


def with_opacity(samples: NDArray[Any], opaque: float) -> NDArray[Any]:
    """Return samples with a channel of full opacity."""
    return np.concatenate((samples, np.full_like(samples[..., :1], opaque)), axis=-1)


def with_two_more(samples: NDArray[Any]) -> NDArray[Any]:
    """Return samples with two channels that are no colours."""
    return np.concatenate((samples, samples[..., :1], samples[..., :1] // 2), axis=-1)


def without_data(kind: str, value: float) -> NDArray[Any]:
    """Return the grey picture with a value that stands for no data in its first rows."""
    samples = grey(1.0 if kind[0] == "f" else 4095, kind)
    samples[:2] = value
    return samples


def rgb(quadrants: Quadrants = COLOURS) -> Image.Image:
    """Return the picture as Pillow holds it."""
    return Image.fromarray(levels(quadrants))


# How an upright picture is stored for each orientation of Exif.
STORED: Final[Mapping[int, Callable[[Image.Image], Image.Image]]] = {
    1: lambda image: image,
    2: lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    3: lambda image: image.transpose(Image.Transpose.ROTATE_180),
    4: lambda image: image.transpose(Image.Transpose.FLIP_TOP_BOTTOM),
    5: lambda image: image.transpose(Image.Transpose.TRANSPOSE),
    6: lambda image: image.transpose(Image.Transpose.ROTATE_90),
    7: lambda image: image.transpose(Image.Transpose.TRANSVERSE),
    8: lambda image: image.transpose(Image.Transpose.ROTATE_270),
}


def turned(file_format: str, orientation: int, **options: Any) -> bytes:
    """Return a file that is to be turned upright."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(STORED[orientation](rgb()), file_format, exif=exif, **options)


def turned_tiff(orientation: int) -> bytes:
    """Return a TIFF of 16 bits that is to be turned upright."""
    stored = np.asarray(STORED[orientation](rgb())).astype(np.uint16) * 16
    return tiff(stored, tags={274: orientation})


def animated(file_format: str, **options: Any) -> bytes:
    """Return an animation that fades in from a blank frame."""
    blank = Image.new("RGB", (WIDTH, HEIGHT), "white")
    options |= {} if file_format == "TIFF" else {"duration": 100}
    return encoded(blank, file_format, save_all=True, append_images=[blank, rgb()], **options)


def transparent_gif() -> bytes:
    """Return a GIF whose upper right is transparent."""
    image = Image.fromarray(filled(np.array([[0], [1], [2], [3]], np.uint8))[..., 0], "P")
    image.putpalette([level for colour in GREYS for level in colour])
    return encoded(image, "GIF", transparency=1)


def swapped_profile() -> bytes:
    """Return an RGB profile with the red primary of sRGB instead of the green one, and the reverse.

    A picture with it is only right after a conversion.
    """
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    for place in range(132, 132 + 12 * int.from_bytes(profile[128:132]), 12):
        name = bytes(profile[place : place + 4])
        profile[place : place + 4] = {b"rXYZ": b"gXYZ", b"gXYZ": b"rXYZ"}.get(name, name)
    return bytes(profile)


SWAPPED: Final[Quadrants] = (COLOURS[1], COLOURS[0], COLOURS[2], COLOURS[3])


def png_with(*chunks: bytes, samples: NDArray[Any] | None = None, bits: int = 8) -> bytes:
    """Return a PNG of the picture with chunks before its pixels."""
    return png(levels(COLOURS) if samples is None else samples, bits, before=chunks)


def text_chunk(size: int) -> bytes:
    """Return a chunk of compressed text that unpacks to `size` bytes."""
    return png_chunk(b"zTXt", b"workflow\0\0" + zlib.compress(b"A" * size))


def profile_chunk(profile: bytes, *, damage: int = 0) -> bytes:
    """Return a chunk with a colour profile."""
    return png_chunk(b"iCCP", b"profile\0\0" + zlib.compress(profile), damage=damage)


def cmyk(quadrants: Quadrants = COLOURS) -> NDArray[np.uint8]:
    """Return the picture in inks (H, W, 4)."""
    inks = 255 - levels(quadrants)
    return np.concatenate((inks, np.zeros_like(inks[..., :1])), axis=-1)


def lab() -> Image.Image:
    """Return the picture in CIELAB."""
    to_lab = ImageCms.buildTransform(
        ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB"), "RGB", "LAB"
    )
    return to_lab.apply(rgb())


def plain_cmyk_jpeg() -> bytes:
    """Return a CMYK JPEG without Adobe's marker, whose inks are not inverted."""
    # Pillow writes inks inverted, with the marker.
    content = encoded(Image.fromarray(255 - cmyk(), "CMYK"), "JPEG", quality=95)
    start = content.index(b"\xff\xee")
    return content[:start] + content[start + 2 + int.from_bytes(content[start + 2 : start + 4]) :]


def indexed(bits: int, quadrants: Quadrants) -> tuple[NDArray[np.uint8], bytes]:
    """Return places in a palette (H, W, 1), and the palette."""
    places = filled(np.array([[0], [1], [0 if bits == 1 else 2], [1 if bits == 1 else 3]], np.uint8))
    colours = quadrants[:2] if bits == 1 else quadrants
    return places, bytes(level for colour in colours for level in colour)


def palette_png(bits: int, *chunks: bytes) -> bytes:
    """Return a PNG with a palette."""
    places, palette = indexed(bits, BILEVEL if bits == 1 else COLOURS)
    return png(places, bits, palette=palette, before=chunks)


def grey_tiff(bits: int, *, inverted: bool = False) -> bytes:
    """Return a TIFF of the grey picture over all values of a depth, WhiteIsZero where it is inverted."""
    largest = (1 << bits) - 1
    samples = grey(largest, "u1" if bits <= 8 else "u2")
    if not inverted:
        return tiff(samples, bits)
    return tiff((largest - samples).astype(samples.dtype), bits, photometric=0)


def typed_tiff(kind: str, smallest: float, largest: float) -> bytes:
    """Return a TIFF of the grey picture in samples of another type."""
    return tiff(grey(largest, kind, smallest=smallest))


def palette_tiff(bits: int, step: int = 257) -> bytes:
    """Return a TIFF with a palette of 16-bit colours, multiples of a step."""
    places, palette = indexed(bits, COLOURS)
    colours = np.zeros((1 << bits, 3), np.uint16)
    colours[:4] = np.frombuffer(palette, np.uint8).reshape(4, 3) * np.uint16(step)
    image = Image.fromarray(places[..., 0], "P")
    image.putpalette(list(palette))
    if bits == 8 and step != 1:
        return encoded(image, "TIFF")
    table = struct.pack(f"<{3 << bits}H", *colours.T.ravel().tolist())
    return _with_shorts(tiff(places, bits, photometric=3, tags={320: table}), 320)


def _with_shorts(content: bytes, tag: int) -> bytes:
    """Return a TIFF whose tag of bytes is one of numbers of 16 bits."""
    found = content.rindex(struct.pack("<HH", tag, 7))
    count = int.from_bytes(content[found + 4 : found + 8], "little") // 2
    return content[:found] + struct.pack("<HHI", tag, 3, count) + content[found + 8 :]


def ycck_jpeg() -> bytes:
    """Return a JPEG of inverted inks as brightness, two colours and black, as Adobe Photoshop writes it."""
    planes = np.asarray(Image.fromarray(255 - levels(COLOURS)).convert("YCbCr"))
    stored = np.concatenate((planes, np.full_like(planes[..., :1], 255)), axis=-1)
    # Pillow inverts them, and marks them as inks.
    content = bytearray(encoded(Image.fromarray(255 - stored, "CMYK"), "JPEG", quality=95, subsampling=0))
    content[content.index(b"Adobe") + 11] = 2
    return bytes(content)


def _bmp(bits: int, compression: int, data: bytes, *, palette: bytes = b"", masks: bytes = b"") -> bytes:
    """Return a BMP file with a header of 40 bytes, and the rows from below."""
    size = 54 + len(masks) + len(palette)
    file = struct.pack("<2sIHHI", b"BM", size + len(data), 0, 0, size)
    colours = len(palette) // 4
    head = struct.pack("<IiiHHIIiiII", 40, WIDTH, HEIGHT, 1, bits, compression, len(data), 0, 0, colours, 0)
    return file + head + masks + palette + data


def bmp_in_runs(bits: int) -> bytes:
    """Return a BMP of 4 or 8 bits in runs of equal pixels."""
    places, colours = indexed(bits, COLOURS)
    palette = b"".join(bytes([*colours[start : start + 3][::-1], 0]) for start in range(0, 12, 3))
    repeated = 17 if bits == 4 else 1
    data = b""
    for row in places[::-1, :, 0]:
        left, right = int(row[0]), int(row[-1])
        data += bytes([WIDTH // 2, left * repeated, WIDTH // 2, right * repeated]) + b"\0\0"
    return _bmp(bits, 1 if bits == 8 else 2, data + b"\0\1", palette=palette)


def bmp_16(masks: tuple[int, int, int] | None = None) -> bytes:
    """Return a BMP of 16 bits: 5 for each colour, or as masks have it."""
    given = masks or (0x7C00, 0x3E0, 0x1F)
    colours = levels(COLOURS)[::-1] // 255
    values = sum(colours[..., place].astype("<u2") * mask for place, mask in enumerate(given))
    data = np.asarray(values).astype("<u2").tobytes()
    return _bmp(16, 3 if masks else 0, data, masks=struct.pack("<3I", *masks) if masks else b"")


def tiff_behind_its_thumbnail() -> bytes:
    """Return a TIFF whose first page is a small version of the second, of another colour to tell them."""
    small = Image.new("RGB", (16, 12), (200, 10, 120))
    whole = rgb()
    whole.encoderinfo = {"tiffinfo": {254: 0}}
    return encoded(small, "TIFF", save_all=True, append_images=[whole], tiffinfo={254: 1})
