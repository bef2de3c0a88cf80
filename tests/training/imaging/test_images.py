"""Image files that nobody vouches for: each form is read and shown alike, and each refusal has its reason."""

import io
import os
import struct
import tracemalloc
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from imagecodecs import cms_profile
from numpy.typing import NDArray
from PIL import Image

from index.files.renditions import make_thumbnail
from tests.image_files import encoded, png, png_chunk, tiff
from tests.image_form import ImageForm
from tests.image_formats import IMAGE_FORMS
from tests.image_quadrants import (
    COLOURS,
    GREYS,
    HEIGHT,
    WIDTH,
    differs_by,
    grey,
    levels,
    profile_chunk,
    quadrants_of,
    rgb,
    swapped_profile,
    text_chunk,
)
from training.common.errors import ImageError, ImageTooLargeError
from training.imaging.images import ImageLimits, decode_image, decode_whole, read_header
from training.imaging.window import Window

PLAIN = png(levels(COLOURS), 8)


def picture(width: int = 40, height: int = 30) -> Image.Image:
    y, x = np.mgrid[0:height, 0:width]
    pixels = np.stack([x * 255 // width, y * 255 // height, np.full_like(x, 90)], axis=-1)
    return Image.fromarray(pixels.astype(np.uint8))


def png_of_size(width: int, height: int) -> bytes:
    head = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    data = png_chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + head + data + png_chunk(b"IEND", b"")


def webp_of_size(width: int, height: int) -> bytes:
    body = bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    chunk = b"WEBPVP8X" + struct.pack("<I", 10) + body
    return b"RIFF" + struct.pack("<I", len(chunk)) + chunk


def tiff_of(tags: dict[int, int]) -> bytes:
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(tags.items()))
    return b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", len(tags)) + entries + bytes(4) + bytes(64)


def _restated(name: str, place: int, size: bytes) -> bytes:
    """A small file whose header states another size."""
    content = bytearray(encoded(picture(), name))
    start = place + (content.index(b"\xff\xc0") if name == "JPEG" else 0)
    content[start : start + len(size)] = size
    return bytes(content)


_SIDE = 50_000
GIANTS = {
    "PNG": png_of_size(_SIDE, _SIDE),
    "WebP": webp_of_size(_SIDE, _SIDE),
    "JPEG": _restated("JPEG", 5, struct.pack(">HH", _SIDE, _SIDE)),
    "BMP": _restated("BMP", 18, struct.pack("<ii", _SIDE, _SIDE)),
    "GIF": _restated("GIF", 6, struct.pack("<HH", _SIDE, _SIDE)),
    "TIFF": tiff_of({256: _SIDE, 257: _SIDE, 258: 8, 259: 1, 262: 1, 273: 120, 277: 1, 278: 9, 279: 64}),
}


@pytest.mark.parametrize("name", GIANTS)
def test_giants_are_refused_by_their_header_and_our_own_limit_decides(name: str) -> None:
    tracemalloc.start()
    with pytest.raises(ImageTooLargeError) as caught:
        decode_image(GIANTS[name])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert str(caught.value) == (
        "The image is 50000 x 50000 pixels, 2,500 megapixels; the limit is 50 megapixels "
        "(RECOQUEST_MAX_IMAGE_PIXELS)."
    )
    assert peak < 5_000_000
    content = encoded(picture(), name.upper())
    reason = r"40 x 30 pixels, 0\.0012 megapixels; the limit is 0\.0011 "
    with pytest.raises(ImageTooLargeError, match=reason):
        read_header(content, ImageLimits(max_pixels=1_100))
    read_header(content, ImageLimits(max_pixels=1_200))


def test_images_over_pillows_limit_pass_when_ours_is_higher(recwarn: pytest.WarningsRecorder) -> None:
    before = Image.MAX_IMAGE_PIXELS
    header = read_header(png_of_size(20_000, 20_000), ImageLimits(max_pixels=400_000_000))
    assert (header.width, header.height) == (20_000, 20_000)
    assert before == Image.MAX_IMAGE_PIXELS
    assert not recwarn.list


def test_bytes_are_counted_before_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    for megabytes, limit in ((30, "21.0"), (200, "101.0")):
        with path.open("wb") as file:
            file.write(PLAIN)
            file.truncate(megabytes << 20)
        reason = rf"^The image file has .* MB; the limit is {limit} MB \(RECOQUEST_MAX_IMAGE_BYTES\)\.$"
        with pytest.raises(ImageTooLargeError, match=reason):
            decode_image(path)
    with pytest.raises(ImageTooLargeError, match="limit"):
        decode_image(PLAIN + bytes(2000), ImageLimits(max_bytes=1999))


def test_frames_are_capped() -> None:
    frames = [Image.new("RGB", (8, 8), (10 * number, 0, 0)) for number in range(6)]
    for name in ("GIF", "TIFF", "PNG", "WebP"):
        options = {"lossless": True} if name == "WebP" else {}
        content = encoded(frames[0], name, save_all=True, append_images=frames[1:], **options)
        assert read_header(content, ImageLimits(max_frames=6)).frames == 6
        for number in (1, 4, 6):
            assert decode_whole(content, frame=number).pixels.getpixel((4, 4)) == (10 * number - 10, 0, 0)
        with pytest.raises(ImageTooLargeError, match="more than 5 frames"):
            read_header(content, ImageLimits(max_frames=5))


def test_counts_and_parts_over_their_limits_are_refused() -> None:
    frames = [Image.new("P", (2, 2), number % 2) for number in range(2)]
    content = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    block = content.index(b",", 13)
    many = content[:-1] + content[block:-1] * 100_000 + b";"
    tags = {256: 10, 257: 10, 258: 8, 259: 1, 262: 1, 277: 1, 322: 40_000, 323: 40_000, 324: 150, 325: 64}
    wide = tiff(np.zeros((20, 20, 8), np.float64), photometric=2)
    for large, reason in (
        (many, "more than 1000 frames"),
        (tiff_of(tags), "tiles of 40000 x 40000"),
        (wide, "8 samples of 64 bits"),
    ):
        with pytest.raises(ImageTooLargeError, match=reason):
            decode_image(large, ImageLimits(max_pixels=400))


def test_jpegs_with_many_scans_are_refused() -> None:
    content = encoded(picture(), "JPEG", progressive=True)
    assert read_header(content).format == "JPEG"
    scan = content[content.rindex(b"\xff\xda") : -2]
    with pytest.raises(ImageTooLargeError, match="over 100 scans"):
        decode_image(content[:-2] + scan * 200 + content[-2:])


_NO_IMAGE = "The file is not an image that can be read: send JPEG, PNG, WebP, AVIF, GIF, BMP, TIFF or DICOM."
_GREY = np.zeros((4, 4, 1), np.uint8)
_REFUSED = {
    b"": "The image file is empty.",
    b"hello": _NO_IMAGE,
    b"%PDF-1.7 ...": _NO_IMAGE,
    b"<svg xmlns='http://www.w3.org/2000/svg'/>": _NO_IMAGE,
    b"\x89PNG\r\n\x1a\n": "The header of the PNG image is damaged: ",
    b"RIFF\0\0\0\0WEBP": "The header of the WebP image is damaged: its first chunk gives no size.",
    png_of_size(0, 5): "The header of the PNG image is damaged: it gives no size.",
    webp_of_size(5, 5): "The header of the WebP image is damaged: ",
    b"\xff\xd8\xff\xf7\0\x0b\x08\0\x05\0\x05\1\1\x11\0\xff\xd9": "The JPEG image is JPEG-LS, which cannot",
    tiff(_GREY, tags={259: 34_712}): "The TIFF image has the compression JPEG 2000, which cannot",
    tiff(_GREY, tags={259: 50_013}): "The TIFF image has the compression number 50013, which",
    tiff(_GREY, photometric=4): "The TIFF image has pixels of 8 bits of the photometric interpretation 4",
    encoded(picture(400, 400), "JPEG")[:2000]: "The JPEG image is damaged: image file is truncated",
    encoded(picture(400, 400), "BMP")[:2000]: "The BMP image is damaged: image file is truncated",
}


@pytest.mark.parametrize(("content", "reason"), _REFUSED.items())
def test_the_reason_is_named(content: bytes, reason: str) -> None:
    with pytest.raises(ImageError) as caught:
        decode_image(content)
    assert not isinstance(caught.value, ImageTooLargeError)
    assert str(caught.value).startswith(reason)
    assert str(caught.value).endswith(".")


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="There is no image file"):
        decode_image(tmp_path / "none")
    with pytest.raises(ImageError, match="is not a file"):
        decode_image(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ImageError, match="is not a file"):
        decode_image(tmp_path / "pipe")


@pytest.mark.filterwarnings("ignore:Corrupt EXIF:UserWarning")
def test_a_damaged_exif_block_is_no_reason_to_refuse() -> None:
    content = encoded(picture(), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\x7f" + bytes(20))
    assert decode_image(content).size == (40, 30)


def _scene(low: int, high: int, shape: tuple[int, int] = (48, 64)) -> NDArray[np.float64]:
    """Draw a photograph in the grey levels of 8 bits, whose channels differ (H, W, 3)."""
    y, x = np.mgrid[0 : shape[0], 0 : shape[1]] / shape[1]
    waves = [np.sin(9 * x + turn) * np.cos(7 * y * turn) for turn in (1, 2, 3)]
    return low + (high - low) * (np.stack(waves, axis=-1) / 2 + 0.5)


@pytest.mark.parametrize(("low", "high"), [(0, 255), (130, 190), (3, 70), (240, 255)])
@pytest.mark.parametrize(
    "name", ["PNG", "PNG with opacity", "TIFF", "TIFF in planes, big-endian", "PNG of red"]
)
def test_photographs_of_16_bits_look_as_they_do_in_8(name: str, low: int, high: int) -> None:
    scene = _scene(low, high)
    noise = np.random.default_rng(4).integers(-120, 121, scene.shape)
    deep = (scene * 257 + noise).clip(0, 65_535).astype(np.uint16)
    if name == "PNG of red":
        # One channel alone has the picture.
        scene[..., 1:], deep[..., 1:] = 9, 9 * 257 + 3
    if name == "PNG with opacity":
        content = png(np.dstack([deep, np.full(deep.shape[:2], 65_535, np.uint16)]), 16)
    elif name.startswith("TIFF"):
        other = name.endswith("endian")
        content = tiff(deep, order=">" if other else "<", planar=other)
    else:
        content = png(deep, 16)
    assert np.abs(np.asarray(decode_image(content)).astype(float) - scene).max() < 2


@pytest.mark.parametrize("name", ["PNG", "TIFF"])
def test_colours_that_are_no_photograph_and_floats_are_windowed(name: str) -> None:
    def of_file(samples: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(decode_image(png(samples, 16) if name == "PNG" else tiff(samples)))

    for bits in (10, 12):
        scene = _scene(20, 250)
        seen = of_file(np.rint(scene * ((1 << bits) - 1) / 255).astype(np.uint16))
        assert np.corrcoef(seen.ravel(), scene.ravel())[0, 1] > 0.99
        assert seen.min() == 0 and seen.max() == 255
    grey = (_scene(60, 90)[..., :1] * 257 + 1).astype(np.uint16)
    seen = of_file(np.repeat(grey, 3, axis=-1))
    assert (seen == of_file(grey)).all()
    assert seen.min() == 0 and seen.max() == 255
    floats = np.array([[-2.0, 0.0], [-1.0, 2.0]], np.float32)[..., None]
    assert np.asarray(decode_image(tiff(floats)))[..., 0].tolist() == [[0, 128], [64, 255]]
    floats[0, 0] = np.nan
    assert np.asarray(decode_image(tiff(floats)))[..., 0].tolist() == [[0, 85], [0, 255]]


@pytest.mark.parametrize(
    ("min_side", "size"), [(None, (800, 600)), (300, (400, 300)), (75, (100, 75)), (700, (800, 600))]
)
def test_large_jpegs_are_decoded_small_where_that_is_enough(
    min_side: int | None, size: tuple[int, int]
) -> None:
    content = encoded(picture(800, 600), "JPEG")
    image = decode_image(content, min_side=min_side)
    assert image.size == size
    whole = decode_image(content).resize(size, Image.Resampling.BOX)
    assert np.abs(np.asarray(image).astype(int) - np.asarray(whole)).mean() < 2.0


def test_a_jpeg_counts_with_the_size_that_it_is_decoded_at() -> None:
    def jpeg(width: int, height: int, **options: Any) -> bytes:
        return encoded(Image.new("RGB", (width, height), (200, 40, 30)), "JPEG", **options)

    limits = ImageLimits(max_pixels=60_000)
    for size, smallest in (((1200, 900), (150, 113)), ((3000, 300), (375, 38)), ((900, 1200), (113, 150))):
        whole = decode_whole(jpeg(*size), limits, min_side=30)
        assert (whole.width, whole.height, whole.pixels.size) == (*size, smallest)
        assert read_header(jpeg(*size), limits, min_side=30).width == size[0]
    exif = Image.Exif()
    exif[274] = 6
    turned = decode_whole(jpeg(1200, 900, exif=exif), limits, min_side=30)
    assert (turned.width, turned.height, turned.pixels.size) == (900, 1200, (113, 150))
    for content, min_side in (
        (jpeg(1200, 900), None),
        (jpeg(1200, 900), 300),
        # All of its coefficients are kept.
        (jpeg(1200, 900, progressive=True), 30),
        (encoded(Image.new("RGB", (1200, 900)), "PNG"), 30),
    ):
        reason = r"1200 x 900 pixels, 1.08 mega.*RECOQUEST_MAX_IMAGE_PIXELS"
        with pytest.raises(ImageTooLargeError, match=reason):
            decode_whole(content, limits, min_side=min_side)


@pytest.mark.parametrize("form", IMAGE_FORMS, ids=lambda form: form.name)
def test_every_form_is_read_and_shown_alike(form: ImageForm, tmp_path: Path) -> None:
    content = form.make()
    header, decoded = read_header(content), decode_whole(content)
    assert header == decoded.header
    assert (decoded.width, decoded.height) == decoded.pixels.size == (WIDTH, HEIGHT)
    assert decoded.pixels.mode == "RGB"
    assert differs_by(decoded.pixels, form.quadrants) <= form.tolerance
    assert decoded.flags == form.flags
    path = tmp_path / "file"
    path.write_bytes(content)
    with Image.open(io.BytesIO(make_thumbnail(path))) as thumbnail:
        assert thumbnail.size == (WIDTH, HEIGHT)
        lossy = np.abs(np.asarray(thumbnail.convert("RGB")).astype(int) - np.asarray(decoded.pixels)).mean()
    assert lossy < 8


@pytest.mark.parametrize("form", IMAGE_FORMS, ids=lambda form: form.name)
def test_a_file_that_is_cut_is_refused_or_read_whole(form: ImageForm) -> None:
    content = form.make()
    for end in (len(content) // 3, len(content) * 2 // 3, len(content) - 3):
        try:
            decode_image(content[:end])
        except ImageError as error:
            assert str(error).endswith(".")


@pytest.mark.parametrize(
    "chunks",
    [
        [text_chunk(3 << 20)],
        [text_chunk(900 << 10)] * 80,
        [png_chunk(b"pHYs", bytes(9), damage=1)],
        [png_chunk(b"tIME", b""), png_chunk(b"acTL", bytes(2))],
        [png_chunk(b"iTXt", b"a" * 100, damage=1), png_chunk(b"gAMA", bytes(4))],
        [profile_chunk(bytes(64 << 20))],
    ],
)
def test_chunks_that_no_picture_needs_cost_nothing(chunks: list[bytes]) -> None:
    content = png(levels(COLOURS), 8, before=chunks)
    tracemalloc.start()
    image = decode_image(content)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert image.tobytes() == decode_image(PLAIN).tobytes()
    assert peak < 10_000_000


def test_a_png_that_is_cut_behind_its_picture_is_whole_and_one_cut_within_it_refused() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (200, 200, 3), dtype=np.uint8)
    whole = encoded(Image.fromarray(noise), "PNG")
    picture = whole[:-12]
    assert picture.count(b"IDAT") > 1
    behind = png_chunk(b"tEXt", b"Comment\0" + b"x" * 40) + whole[-12:]
    for cut in range(1, len(behind)):
        assert np.array_equal(np.asarray(decode_image(picture + behind[:cut])), noise), cut
    last = picture.rindex(b"IDAT") - 4
    for within in (picture[:last], picture[: last + 4], picture[: last + 9], picture[: last + 40]):
        for end in (b"", behind[:20]):
            with pytest.raises(ImageError, match="The PNG image is damaged"):
                decode_image(within + end)


@pytest.mark.parametrize("kind", [b"IHDR", b"PLTE", b"IDAT"])
def test_a_wrong_checksum_of_what_the_picture_needs_is_refused(kind: bytes) -> None:
    places = np.zeros((HEIGHT, WIDTH, 1), np.uint8)
    content = bytearray(png(places, 8, palette=bytes(range(6))))
    place = content.index(kind) - 4
    end = place + 12 + int.from_bytes(content[place : place + 4], "big")
    content[end - 1] ^= 1
    with pytest.raises(ImageError, match=f"^The PNG image is damaged: its {kind.decode()} chunk has a wrong"):
        decode_image(bytes(content))
    if kind == b"IDAT":
        # Stored when nobody looked at it, it stays readable.
        assert decode_image(bytes(content), ImageLimits(checksums=False)).size == (WIDTH, HEIGHT)


def test_a_truncated_jpeg_is_taken_by_a_setting_alone() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (200, 200, 3), dtype=np.uint8)
    for options in ({}, {"progressive": True}):
        content = encoded(Image.fromarray(noise), "JPEG", **options)
        cut = content[: len(content) * 3 // 4]
        with pytest.raises(ImageError, match=r"^The JPEG image is damaged: image file is truncated"):
            decode_whole(cut)
        limits = ImageLimits(accept_truncated=True)
        decoded = decode_whole(cut, limits)
        assert (decoded.truncated, decoded.flags) == (True, ("image.truncated",))
        whole = decode_whole(content, limits)
        assert (whole.truncated, whole.flags) == (False, ())
        if not options:
            top = (0, 0, 200, 100)
            assert decoded.pixels.crop(top).tobytes() == whole.pixels.crop(top).tobytes()
        with pytest.raises(ImageError):
            decode_whole(content[:150], limits)


def test_images_of_one_colour_are_blank_and_those_with_a_line_are_not() -> None:
    for name in ("PNG", "JPEG", "GIF", "WEBP", "AVIF", "BMP", "TIFF"):
        for colour in ("black", "white", (90, 120, 30)):
            decoded = decode_whole(encoded(Image.new("RGB", (50, 40), colour), name))
            assert decoded.blank
            assert decoded.flags == ("image.blank",)
    for kind in ("u2", "i2", "f4"):
        for channels in (1, 3):
            decoded = decode_whole(tiff(np.full((30, 40, channels), 700, kind)))
            assert decoded.blank
            assert len(np.unique(np.asarray(decoded.pixels))) == 1
    image = Image.new("RGB", (500, 400), "white")
    image.putpixel((499, 399), (240, 255, 255))
    assert not decode_whole(encoded(image, "PNG")).blank


def test_few_frames_are_looked_at() -> None:
    blank, drawn = Image.new("RGB", (WIDTH, HEIGHT), "white"), rgb()
    # A GIF joins equal frames, so they differ in their time.
    for name in ("GIF", "PNG", "WEBP"):
        options: dict[str, Any] = {"lossless": True} if name == "WEBP" else {}
        frames = [Image.new("RGB", (WIDTH, HEIGHT), (250 - number, 255, 255)) for number in range(40)]
        for count, seen in ((10, True), (30, False)):
            content = encoded(
                blank, name, save_all=True, append_images=[*frames[:count], drawn], duration=50, **options
            )
            decoded = decode_whole(content)
            assert decoded.blank is not seen
            assert seen == (differs_by(decoded.pixels, COLOURS) <= 1)


def test_pages_of_other_sizes_are_judged_like_the_first() -> None:
    blank = Image.new("L", (WIDTH, HEIGHT))
    content = encoded(blank, "TIFF", save_all=True, append_images=[Image.linear_gradient("L")])
    assert decode_whole(content).pixels.size == (256, 256)
    # The second page is over the limit, so the first is what there is.
    assert decode_whole(content, ImageLimits(max_pixels=WIDTH * HEIGHT)).pixels.size == (WIDTH, HEIGHT)


def test_a_window_that_is_asked_for_wins() -> None:
    window = Window(centre=1365, width=2730)
    expected = ((0,) * 3, (128,) * 3, (255,) * 3, (255,) * 3)
    for content in (png(grey(4095, "u2"), 16), tiff(grey(4095, "u2")), tiff(levels(GREYS, 4095, "u2"))):
        assert differs_by(decode_whole(content, window=window).pixels, expected) <= 1
    eight = decode_whole(png(grey(), 8), window=Window(centre=85, width=170)).pixels
    assert differs_by(eight, expected) <= 1
    inverted = decode_whole(tiff(grey(4095, "u2"), photometric=0), window=window).pixels
    assert differs_by(inverted, tuple((255 - r, 255 - g, 255 - b) for r, g, b in expected)) <= 1


def test_no_drawing_of_white_on_clear_is_lost() -> None:
    drawing = Image.new("RGBA", (WIDTH, HEIGHT), (255, 255, 255, 0))
    drawing.paste((255, 255, 255, 255), (10, 10, 30, 30))
    for name in ("PNG", "WEBP", "TIFF"):
        options = {"lossless": True} if name == "WEBP" else {}
        decoded = decode_whole(encoded(drawing, name, **options))
        assert not decoded.blank
        assert decoded.pixels.getpixel((20, 20)) == (255, 255, 255)
        assert decoded.pixels.getpixel((50, 40)) == (0, 0, 0)
    drawing.putpixel((12, 12), (10, 20, 30, 255))
    assert decode_image(encoded(drawing, "PNG")).getpixel((50, 40)) == (255, 255, 255)


@pytest.mark.parametrize("size", [(1, 70_000), (70_000, 1), (3, 5)])
def test_thin_and_small_deep_images(size: tuple[int, int]) -> None:
    width, height = size
    values = np.linspace(0, 4095, width * height).reshape(height, width, 1).astype(np.uint16)
    for content in (png(values, 16), tiff(values), tiff(np.tile(values, 3))):
        image = np.asarray(decode_image(content))
        assert image.shape == (height, width, 3)
        assert (image[0, 0, 0], image[-1, -1, 0]) == (0, 255)


def test_a_profile_of_printing_inks_that_is_no_profile_is_ignored() -> None:
    image = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    content = encoded(image, "TIFF", icc_profile=swapped_profile())
    assert decode_image(content).getpixel((4, 4)) == (255, 0, 0)


def test_grey_profiles_are_followed() -> None:
    # A grey profile of gamma 1: a linear half is light grey in sRGB.
    image = Image.new("L", (8, 8), 128)
    content = encoded(image, "PNG", icc_profile=cms_profile("gray", gamma=1.0))
    assert decode_image(content).getpixel((4, 4)) == pytest.approx((188, 188, 188), abs=2)
    assert quadrants_of(decode_image(encoded(rgb(GREYS).convert("L"), "PNG"))) == GREYS


STARTS = [
    b"",
    b"\xff\xd8\xff",
    b"\x89PNG\r\n\x1a\n",
    b"GIF89a",
    b"BM",
    b"II*\0",
    b"MM\0*",
    b"RIFF1234WEBPVP8X",
]


def check_survives(content: bytes) -> None:
    limits = ImageLimits(max_pixels=100_000, max_frames=20)
    try:
        read_header(content, limits)
        decode_image(content, limits)
    except ImageError as error:
        assert str(error).endswith(".")
        assert "\n" not in str(error)


@pytest.mark.filterwarnings("ignore::UserWarning")
@given(st.sampled_from(STARTS), st.binary(max_size=300))
def test_random_bytes_never_raise_anything_else(start: bytes, rest: bytes) -> None:
    check_survives(start + rest)


@cache
def made(form: ImageForm) -> bytes:
    # Some forms have another UID each time.
    return form.make()


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(IMAGE_FORMS), st.data())
def test_corrupted_files_never_raise_anything_else(form: ImageForm, data: st.DataObject) -> None:
    content = bytearray(made(form))
    for _ in range(data.draw(st.integers(0, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    check_survives(bytes(content[: data.draw(st.integers(0, len(content)))]))
