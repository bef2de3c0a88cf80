"""The matrix of image files that are read: one picture, or its grey or bilevel twin, in every form of file.

Add a row here, and every test of decoding, of uploads, queries, imports and thumbnails reads it.
"""

import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
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


@dataclass(frozen=True, slots=True)
class ImageForm:
    """One form of image file.

    Attributes:
        name: Of the row.
        make: Returns the bytes of the file.
        quadrants: Colours of the four quadrants, as they are seen.
        tolerance: Most that a channel may differ.
    """

    name: str
    make: Callable[[], bytes]
    quadrants: Quadrants
    tolerance: int = 1


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
    """Return an RGB profile with the red primary of sRGB in place of the green one, and the reverse.

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


def palette_tiff(bits: int) -> bytes:
    """Return a TIFF with a palette of 16-bit colours."""
    places, palette = indexed(bits, COLOURS)
    colours = np.zeros((1 << bits, 3), np.uint16)
    colours[:4] = np.frombuffer(palette, np.uint8).reshape(4, 3) * np.uint16(257)
    image = Image.fromarray(places[..., 0], "P")
    image.putpalette(list(palette))
    if bits == 8:
        return encoded(image, "TIFF")
    table = struct.pack(f"<{3 << bits}H", *colours.T.ravel().tolist())
    return _with_shorts(tiff(places, bits, photometric=3, tags={320: table}), 320)


def _with_shorts(content: bytes, tag: int) -> bytes:
    """Return a TIFF whose tag of bytes is one of numbers of 16 bits."""
    found = content.rindex(struct.pack("<HH", tag, 7))
    count = int.from_bytes(content[found + 4 : found + 8], "little") // 2
    return content[:found] + struct.pack("<HHI", tag, 3, count) + content[found + 8 :]


def _pngs() -> list[ImageForm]:
    def row(name: str, make: Callable[[], bytes], quadrants: Quadrants = COLOURS) -> ImageForm:
        return ImageForm(f"png {name}", make, quadrants)

    palette_alpha = png_chunk(b"tRNS", bytes([255, 0, 255, 255]))
    sixteen = partial(levels, COLOURS, 4095, "u2")
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    return [
        row("grey 1", lambda: png(levels(BILEVEL, 1)[..., :1], 1), BILEVEL),
        row("grey 2", lambda: png(grey(3), 2), GREYS),
        row("grey 4", lambda: png(grey(15), 4), GREYS),
        row("grey 8", lambda: png(grey(), 8), GREYS),
        row("grey 16", lambda: png(grey(4095, "u2"), 16), GREYS),
        row("grey 16 interlaced", lambda: png(grey(4095, "u2"), 16, interlaced=True), GREYS),
        row(
            "grey 8 transparent value",
            lambda: png_with(png_chunk(b"tRNS", struct.pack(">H", 85)), samples=grey()),
            ON_WHITE,
        ),
        row(
            "grey 16 transparent value",
            lambda: png_with(png_chunk(b"tRNS", struct.pack(">H", 1365)), samples=grey(4095, "u2"), bits=16),
            ON_WHITE,
        ),
        row("grey alpha 8", lambda: png(with_hole(grey(), 255), 8), ON_WHITE),
        row("grey alpha 16", lambda: png(with_hole(grey(4095, "u2"), 65535), 16), ON_WHITE),
        row(
            "grey alpha 16 interlaced",
            lambda: png(with_hole(grey(4095, "u2"), 65535), 16, interlaced=True),
            ON_WHITE,
        ),
        row(
            "white on clear",
            lambda: png(with_hole(np.full_like(grey(), 250), 255), 8),
            tuple((250,) * 3 if colour[0] else (0, 0, 0) for colour in WHITE_ON_BLACK),
        ),
        row("rgb 8", lambda: png(levels(COLOURS), 8)),
        row("rgb 8 interlaced", lambda: png(levels(COLOURS), 8, interlaced=True)),
        row("rgb 16", lambda: png(sixteen(), 16)),
        row("rgb 16 interlaced", lambda: png(sixteen(), 16, interlaced=True)),
        row(
            "rgb 16 transparent value",
            lambda: png_with(png_chunk(b"tRNS", struct.pack(">HHH", 0, 4095, 0)), samples=sixteen(), bits=16),
            (COLOURS[0], COLOURS[3], COLOURS[2], COLOURS[3]),
        ),
        row(
            "rgb 16 of 8 bits",
            lambda: png(
                levels(((40, 50, 60), (70, 80, 90), (100, 110, 120), (130, 140, 150))).astype("u2") * 257, 16
            ),
            ((40, 50, 60), (70, 80, 90), (100, 110, 120), (130, 140, 150)),
        ),
        row("rgba 8", lambda: png(with_opacity(levels(COLOURS), 255), 8)),
        row("rgba 16", lambda: png(with_opacity(sixteen(), 65535), 16)),
        row("rgba 16 interlaced", lambda: png(with_opacity(sixteen(), 65535), 16, interlaced=True)),
        row(
            "rgba 16 with a hole",
            lambda: png(with_hole(sixteen(), 65535), 16),
            (COLOURS[0], COLOURS[3], COLOURS[2], COLOURS[3]),
        ),
        row("palette 1", lambda: palette_png(1), BILEVEL),
        row("palette 2", lambda: palette_png(2)),
        row("palette 4", lambda: palette_png(4)),
        row("palette 8", lambda: palette_png(8)),
        row(
            "palette 8 transparent",
            lambda: palette_png(8, palette_alpha),
            (COLOURS[0], COLOURS[3], COLOURS[2], COLOURS[3]),
        ),
        row("orientation 6", lambda: turned("PNG", 6)),
        row("profile", lambda: png_with(profile_chunk(swapped_profile())), SWAPPED),
        row(
            "profile rgba",
            lambda: png_with(profile_chunk(swapped_profile()), samples=with_opacity(levels(COLOURS), 255)),
            SWAPPED,
        ),
        row("profile of 2 MB", lambda: png_with(profile_chunk(swapped_profile() + bytes(2 << 20))), SWAPPED),
        row("profile of sRGB", lambda: png_with(profile_chunk(srgb))),
        row("profile that is none", lambda: png_with(profile_chunk(b"no profile" * 20))),
        row("profile of wrong checksum", lambda: png_with(profile_chunk(swapped_profile(), damage=1))),
        row("text of 3 MB", lambda: png_with(text_chunk(3 << 20))),
        row("80 texts", lambda: png_with(*[text_chunk(900 << 10)] * 80)),
        row("checksum of pHYs", lambda: png_with(png_chunk(b"pHYs", bytes(9), damage=1))),
        row("length of tIME", lambda: png_with(png_chunk(b"tIME", bytes(3)))),
        row("animation from blank", lambda: animated("PNG")),
    ]


def _jpegs() -> list[ImageForm]:
    def row(name: str, make: Callable[[], bytes], quadrants: Quadrants = COLOURS) -> ImageForm:
        return ImageForm(f"jpeg {name}", make, quadrants, LOSSY)

    inks = Image.fromarray(cmyk(), "CMYK")
    return [
        row("grey", lambda: encoded(rgb(GREYS).convert("L"), "JPEG", quality=95), GREYS),
        row("rgb", lambda: encoded(rgb(), "JPEG", quality=95)),
        row("progressive", lambda: encoded(rgb(), "JPEG", quality=95, progressive=True)),
        row("cmyk of Adobe", lambda: encoded(inks, "JPEG", quality=95)),
        row("cmyk plain", plain_cmyk_jpeg),
        row("profile", lambda: encoded(rgb(), "JPEG", quality=95, icc_profile=swapped_profile()), SWAPPED),
        row(
            "several pictures",
            lambda: encoded(rgb(), "MPO", quality=95, save_all=True, append_images=[rgb(GREYS)]),
        ),
        *(row(f"orientation {number}", partial(turned, "JPEG", number, quality=95)) for number in STORED),
    ]


def _tiffs() -> list[ImageForm]:
    def row(name: str, make: Callable[[], bytes], quadrants: Quadrants = GREYS) -> ImageForm:
        return ImageForm(f"tiff {name}", make, quadrants)

    sixteen = partial(levels, COLOURS, 4095, "u2")
    deep = partial(grey, 4095, "u2")
    tone = partial(levels, COLOURS, 1.0, "f4")
    rows = [
        row("grey 1", lambda: tiff(levels(BILEVEL, 1)[..., :1], 1), BILEVEL),
        row("white is zero 1", lambda: tiff(1 - levels(BILEVEL, 1)[..., :1], 1, photometric=0), BILEVEL),
    ]
    for bits in (2, 4, 8, 10, 12, 14, 16):
        rows += [
            row(f"grey {bits}", partial(grey_tiff, bits)),
            row(f"white is zero {bits}", partial(grey_tiff, bits, inverted=True)),
        ]
    ranges: tuple[tuple[str, float, float], ...] = (
        ("i1", -128, 127),
        ("i2", -2000, 1000),
        ("i4", -200_000, 100_000),
        ("u4", 0, 3_000_000_000),
        ("u8", 0, 9_000_000_000),
        ("f2", -1, 2),
        ("f4", -0.001, 0.002),
        ("f8", -1e200, 2e200),
    )
    rows += [
        row(f"grey {kind}", partial(typed_tiff, kind, smallest, largest))
        for kind, smallest, largest in ranges
    ]
    return [
        *rows,
        row("grey 16 big-endian", lambda: tiff(deep(), order=">")),
        row("grey 12 big-endian", lambda: tiff(deep(), 12, order=">")),
        row(
            "white is zero 16 big-endian",
            lambda: tiff((4095 - deep()).astype("u2"), order=">", photometric=0),
        ),
        row("grey 16 of BigTIFF", lambda: tiff(deep(), big=True)),
        row("grey 16 deflated, differences", lambda: tiff(deep(), compression=8, predictor=2)),
        row(
            "grey 16 lzw, differences",
            lambda: encoded(
                Image.fromarray(deep()[..., 0]), "TIFF", compression="tiff_lzw", tiffinfo={317: 2}
            ),
        ),
        row("grey f4 deflated, float differences", lambda: tiff(grey(2, "f4"), compression=8, predictor=3)),
        row("grey alpha 8", lambda: tiff(with_hole(grey(), 255), extra=2), ON_WHITE),
        row("grey alpha 16", lambda: tiff(with_hole(deep(), 65535), extra=2), ON_WHITE),
        row("grey alpha 16 without a meaning", lambda: tiff(with_opacity(deep(), 65535))),
        row("rgb 8", lambda: tiff(levels(COLOURS)), COLOURS),
        row("rgb 8 in planes", lambda: tiff(levels(COLOURS), planar=True), COLOURS),
        row("rgb 4", lambda: tiff(levels(COLOURS, 15), 4), COLOURS),
        row("rgb 16", lambda: tiff(sixteen()), COLOURS),
        row("rgb 16 big-endian", lambda: tiff(sixteen(), order=">"), COLOURS),
        row("rgb 16 in planes", lambda: tiff(sixteen(), planar=True), COLOURS),
        row(
            "rgb 16 in planes, deflated",
            lambda: tiff(sixteen(), planar=True, compression=8, predictor=2),
            COLOURS,
        ),
        row("rgb 16 in tiles", lambda: tiff(sixteen(), tile=48), COLOURS),
        row(
            "rgb 16 in tiles, deflated", lambda: tiff(sixteen(), tile=48, compression=8, predictor=2), COLOURS
        ),
        row("rgb f4", lambda: tiff(tone()), COLOURS),
        row(
            "rgb f4 in tiles, float differences",
            lambda: tiff(tone(), tile=16, compression=8, predictor=3, order=">"),
            COLOURS,
        ),
        row("rgba 8", lambda: tiff(with_opacity(levels(COLOURS), 255), extra=2), COLOURS),
        row("rgba 16", lambda: tiff(with_opacity(sixteen(), 65535), extra=2), COLOURS),
        row("rgba 16 premultiplied", lambda: tiff(with_opacity(sixteen(), 65535), extra=1), COLOURS),
        row("rgb 16 and one more channel", lambda: tiff(with_hole(sixteen(), 65535), extra=0), COLOURS),
        row("cmyk 8", lambda: tiff(cmyk(), photometric=5), COLOURS),
        row("cmyk 16", lambda: tiff(cmyk().astype("u2") * 257, photometric=5), COLOURS),
        row("fax", lambda: encoded(rgb(BILEVEL).convert("1"), "TIFF", compression="group4"), BILEVEL),
        row(
            "grey 16 in PackBits",
            lambda: encoded(Image.fromarray(deep()[..., 0]), "TIFF", compression="packbits"),
        ),
        row("palette 4", lambda: palette_tiff(4), COLOURS),
        row("palette 8", lambda: palette_tiff(8), COLOURS),
        row("profile", lambda: tiff(levels(COLOURS), tags={34675: swapped_profile()}), SWAPPED),
        row("profile 16", lambda: tiff(sixteen(), tags={34675: swapped_profile()}), SWAPPED),
        row("pages from blank", lambda: animated("TIFF"), COLOURS),
        *(row(f"orientation {number}", partial(turned, "TIFF", number), COLOURS) for number in (3, 6)),
        *(
            row(f"orientation {number} of 16 bits", partial(turned_tiff, number), COLOURS)
            for number in STORED
        ),
    ]


def _others() -> list[ImageForm]:
    hole = Image.fromarray(with_hole(levels(GREYS), 255), "RGBA")
    few = rgb().quantize(8)
    return [
        ImageForm("gif", lambda: encoded(few, "GIF"), COLOURS),
        ImageForm("gif transparent", transparent_gif, ON_WHITE),
        ImageForm("gif from blank", lambda: animated("GIF"), COLOURS),
        ImageForm("webp lossless", lambda: encoded(rgb(), "WEBP", lossless=True), COLOURS),
        ImageForm("webp lossy", lambda: encoded(rgb(), "WEBP", quality=95), COLOURS, LOSSY),
        ImageForm("webp transparent", lambda: encoded(hole, "WEBP", lossless=True), ON_WHITE),
        ImageForm("webp orientation 8", lambda: turned("WEBP", 8, lossless=True), COLOURS),
        ImageForm(
            "webp profile",
            lambda: encoded(rgb(), "WEBP", lossless=True, icc_profile=swapped_profile()),
            SWAPPED,
        ),
        ImageForm("webp from blank", lambda: animated("WEBP", lossless=True), COLOURS),
        ImageForm("avif", lambda: encoded(rgb(), "AVIF", quality=95), COLOURS, LOSSY),
        ImageForm("avif transparent", lambda: encoded(hole, "AVIF", quality=95), ON_WHITE, LOSSY),
        ImageForm("avif orientation 6", lambda: turned("AVIF", 6, quality=95), COLOURS, LOSSY),
        # Pure colours of sRGB are outside of what 8 bits of CIELAB tell apart.
        ImageForm("tiff lab 8", lambda: encoded(lab(), "TIFF"), COLOURS, 2 * LOSSY),
        ImageForm(
            "tiff in JPEG", lambda: encoded(rgb(), "TIFF", compression="jpeg", quality=95), COLOURS, LOSSY
        ),
        ImageForm("bmp 1", lambda: encoded(rgb(BILEVEL).convert("1"), "BMP"), BILEVEL),
        ImageForm("bmp 8", lambda: encoded(few, "BMP"), COLOURS),
        ImageForm("bmp 24", lambda: encoded(rgb(), "BMP"), COLOURS),
        ImageForm("bmp 32", lambda: encoded(rgb().convert("RGBA"), "BMP"), COLOURS),
    ]


IMAGE_FORMS: Final = (*_pngs(), *_jpegs(), *_tiffs(), *_others())
