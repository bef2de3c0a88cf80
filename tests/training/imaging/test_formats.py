"""Every form of image file gives the same picture, and what is no picture is told from it."""

import io
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
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
from training.imaging.formats import READABLE_SUFFIXES
from training.imaging.images import ImageLimits, decode_image, decode_whole, read_header
from training.imaging.window import Window

PLAIN = png(levels(COLOURS), 8)


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


def test_the_matrix_has_many_rows_of_different_names() -> None:
    assert len({form.name for form in IMAGE_FORMS}) == len(IMAGE_FORMS) > 100


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


@pytest.mark.parametrize("name", ["PNG", "JPEG", "GIF", "WEBP", "AVIF", "BMP", "TIFF"])
def test_images_of_one_colour_are_blank(name: str) -> None:
    for colour in ("black", "white", (90, 120, 30)):
        decoded = decode_whole(encoded(Image.new("RGB", (50, 40), colour), name))
        assert decoded.blank
        assert decoded.flags == ("image.blank",)


@pytest.mark.parametrize("dtype", ["u2", "i2", "f4"])
def test_constant_images_stay_constant(dtype: str) -> None:
    for channels in (1, 3):
        constant = np.full((30, 40, channels), 700, dtype)
        decoded = decode_whole(tiff(constant))
        assert decoded.blank
        assert len(np.unique(np.asarray(decoded.pixels))) == 1


def test_a_line_is_not_blank() -> None:
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


def test_avif_is_judged_by_its_boxes() -> None:
    content = bytearray(encoded(rgb(), "AVIF"))
    place = content.index(b"ispe") + 8
    content[place : place + 8] = struct.pack(">II", 50_000, 50_000)
    first = int.from_bytes(content[:4])
    for before in (b"", struct.pack(">I4sQ", 1, b"free", 16), struct.pack(">I4sQ3s", 1, b"uuid", 19, b"abc")):
        with pytest.raises(ImageTooLargeError, match="50000 x 50000 pixels"):
            read_header(bytes(content[:first] + before + content[first:]))
    boxes = (
        struct.pack(">I4s4s4s4s", 20, b"ftyp", b"avif", bytes(4), b"avif")
        + struct.pack(">I4s", 8, b"free") * 10_000
    )
    with pytest.raises(ImageError, match="over 10,000 boxes"):
        read_header(boxes)


def test_tiffs_of_many_samples_are_refused() -> None:
    wide = tiff(np.zeros((20, 20, 8), np.float64), photometric=2)
    with pytest.raises(ImageTooLargeError, match="8 samples of 64 bits"):
        decode_image(wide, ImageLimits(max_pixels=400))


def test_suffixes_are_lower_case_and_told_apart() -> None:
    assert {".jfif", ".jpe", ".mpo", ".avif", ".tif"} <= set(READABLE_SUFFIXES)
    assert all(suffix == suffix.lower() for suffix in READABLE_SUFFIXES)


def test_a_profile_of_printing_inks_that_is_no_profile_is_ignored() -> None:
    image = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    content = encoded(image, "TIFF", icc_profile=swapped_profile())
    assert decode_image(content).getpixel((4, 4)) == (255, 0, 0)


def test_grey_profiles_are_followed() -> None:
    # A grey profile of gamma 1: a linear half is light grey in sRGB.
    image = Image.new("L", (8, 8), 128)
    content = encoded(image, "PNG", icc_profile=grey_profile(gamma=1.0))
    assert decode_image(content).getpixel((4, 4)) == pytest.approx((188, 188, 188), abs=2)
    assert quadrants_of(decode_image(encoded(rgb(GREYS).convert("L"), "PNG"))) == GREYS


def grey_profile(gamma: float) -> bytes:
    """Return a grey profile (ICC.1:2001, 6.3.1): white point and one curve."""

    def tag(kind: bytes, body: bytes) -> bytes:
        return kind + bytes(4) + body

    white = tag(b"XYZ ", struct.pack(">iii", 63_190, 65_536, 54_061))
    curve = tag(b"curv", struct.pack(">IH", 1, round(gamma * 256)) + bytes(2))
    about = tag(b"desc", struct.pack(">I", 5) + b"grey\0" + bytes(78)) + bytes(3)
    name = tag(b"text", b"none\0\0\0\0")
    parts = {b"desc": about, b"wtpt": white, b"kTRC": curve, b"cprt": name}
    place, table, data = 128 + 4 + 12 * len(parts), b"", b""
    for kind, part in parts.items():
        part += bytes(-len(part) % 4)
        table += kind + struct.pack(">II", place + len(data), len(part))
        data += part
    body = struct.pack(">I", len(parts)) + table + data
    head = struct.pack(">I4sI4s4s4s", 128 + len(body), bytes(4), 0x02400000, b"mntr", b"GRAY", b"XYZ ")
    head += bytes(12) + b"acsp" + bytes(28) + struct.pack(">iii", 63_190, 65_536, 54_061)
    return head.ljust(128, b"\0") + body
