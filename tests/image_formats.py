"""The matrix of image files that are read: one picture, or its grey or bilevel twin, in every form of file.

Add a row here, and every test of decoding, of uploads, queries, imports and thumbnails reads it.
"""

import struct
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
from PIL import Image, ImageCms

from tests.image_files import encoded, png, png_chunk, tiff
from tests.image_form import ImageForm
from tests.image_formats_dicom import dicoms
from tests.image_quadrants import (
    BILEVEL,
    COLOURS,
    GREYS,
    LOSSY,
    ON_WHITE,
    STORED,
    SWAPPED,
    WHITE_ON_BLACK,
    Quadrants,
    animated,
    bmp_16,
    bmp_in_runs,
    cmyk,
    grey,
    grey_tiff,
    lab,
    levels,
    palette_png,
    palette_tiff,
    plain_cmyk_jpeg,
    png_with,
    profile_chunk,
    rgb,
    swapped_profile,
    text_chunk,
    tiff_behind_its_thumbnail,
    transparent_gif,
    turned,
    turned_tiff,
    typed_tiff,
    with_hole,
    with_opacity,
    with_two_more,
    without_data,
    ycck_jpeg,
)


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
        *(row(f"orientation {number}", partial(turned, "PNG", number)) for number in range(5, 9)),
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
        row("checksum of IEND", lambda: png_with()[:-1] + b"\0"),
        row("length of tRNS", lambda: png_with(png_chunk(b"tRNS", bytes(4)))),
        row("animation from blank", lambda: animated("PNG")),
        row("animation behind a blank picture", lambda: animated("PNG", default_image=True)),
    ]


def _jpegs() -> list[ImageForm]:
    def row(name: str, make: Callable[[], bytes], quadrants: Quadrants = COLOURS) -> ImageForm:
        return ImageForm(f"jpeg {name}", make, quadrants, LOSSY)

    inks = Image.fromarray(cmyk(), "CMYK")
    return [
        row("grey", lambda: encoded(rgb(GREYS).convert("L"), "JPEG", quality=95), GREYS),
        row("rgb", lambda: encoded(rgb(), "JPEG", quality=95)),
        row("progressive", lambda: encoded(rgb(), "JPEG", quality=95, progressive=True)),
        row("without its end", lambda: encoded(rgb(), "JPEG", quality=95)[:-2]),
        row("cmyk of Adobe", lambda: encoded(inks, "JPEG", quality=95)),
        row("cmyk plain", plain_cmyk_jpeg),
        row("ycck of Adobe", ycck_jpeg),
        row("rgb of Adobe", lambda: encoded(rgb(), "JPEG", quality=95, keep_rgb=True)),
        row("restarts", lambda: encoded(rgb(), "JPEG", quality=95, restart_marker_blocks=1)),
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
        row("grey 16 of BigTIFF, big-endian", lambda: tiff(deep(), big=True, order=">")),
        row("grey 8 of BigTIFF, big-endian", lambda: tiff(grey(), big=True, order=">")),
        row("rgb 8 of BigTIFF, big-endian", lambda: tiff(levels(COLOURS), big=True, order=">"), COLOURS),
        row(
            "rgb 16 of BigTIFF in planes and tiles, lzw, differences, big-endian",
            lambda: tiff(sixteen(), big=True, order=">", planar=True, tile=48, compression=5, predictor=2),
            COLOURS,
        ),
        ImageForm(
            "tiff behind its thumbnail", tiff_behind_its_thumbnail, COLOURS, flags=("image.preview_skipped",)
        ),
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
        row("rgb 8 and two more channels", lambda: tiff(with_two_more(levels(COLOURS))), COLOURS),
        row(
            "rgb 8 and two more channels in planes",
            lambda: tiff(with_two_more(levels(COLOURS)), planar=True),
            COLOURS,
        ),
        row("grey f4 without data in parts", lambda: tiff(without_data("f4", -3.4e38))),
        row("grey i4 without data in parts", lambda: tiff(without_data("i4", -(2**31)))),
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
        row("palette 4 of 8-bit colours", lambda: palette_tiff(4, 1), COLOURS),
        row("palette 8 of 8-bit colours", lambda: palette_tiff(8, 1), COLOURS),
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
        *(
            ImageForm(f"webp orientation {number}", partial(turned, "WEBP", number, lossless=True), COLOURS)
            for number in range(5, 9)
        ),
        ImageForm(
            "webp profile",
            lambda: encoded(rgb(), "WEBP", lossless=True, icc_profile=swapped_profile()),
            SWAPPED,
        ),
        ImageForm("webp from blank", lambda: animated("WEBP", lossless=True), COLOURS),
        ImageForm("avif", lambda: encoded(rgb(), "AVIF", quality=95), COLOURS, LOSSY),
        ImageForm("avif transparent", lambda: encoded(hole, "AVIF", quality=95), ON_WHITE, LOSSY),
        ImageForm("avif from blank", lambda: animated("AVIF", quality=95), COLOURS, LOSSY),
        ImageForm("avif orientation 6", lambda: turned("AVIF", 6, quality=95), COLOURS, LOSSY),
        # Pure colours of sRGB are outside of what 8 bits of CIELAB tell apart.
        ImageForm("tiff lab 8", lambda: encoded(lab(), "TIFF"), COLOURS, 2 * LOSSY),
        ImageForm(
            "tiff in JPEG", lambda: encoded(rgb(), "TIFF", compression="jpeg", quality=95), COLOURS, LOSSY
        ),
        ImageForm("bmp 1", lambda: encoded(rgb(BILEVEL).convert("1"), "BMP"), BILEVEL),
        ImageForm("bmp 8", lambda: encoded(few, "BMP"), COLOURS),
        ImageForm("bmp 4 in runs", lambda: bmp_in_runs(4), COLOURS),
        ImageForm("bmp 8 in runs", lambda: bmp_in_runs(8), COLOURS),
        ImageForm("bmp 16", bmp_16, COLOURS),
        ImageForm("bmp 16 with masks", lambda: bmp_16((0xF800, 0x7E0, 0x1F)), COLOURS),
        ImageForm("bmp 24", lambda: encoded(rgb(), "BMP"), COLOURS),
        ImageForm("bmp 32", lambda: encoded(rgb().convert("RGBA"), "BMP"), COLOURS),
    ]


IMAGE_FORMS: Final = (*_pngs(), *_jpegs(), *_tiffs(), *_others(), *dicoms())
