"""Images from bytes that nobody vouches for."""

import io
import os
import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from tests.image_files import png, tiff
from training.common.errors import ImageError, ImageTooLargeError
from training.imaging.images import ImageHeader, ImageLimits, decode_image, decode_whole, read_header

FORMATS = {
    "JPEG": "image/jpeg",
    "PNG": "image/png",
    "WebP": "image/webp",
    "GIF": "image/gif",
    "BMP": "image/bmp",
    "TIFF": "image/tiff",
}

GREY_PIXELS = np.zeros((4, 4, 1), np.uint8)


def picture(width: int = 40, height: int = 30) -> Image.Image:
    y, x = np.mgrid[0:height, 0:width]
    pixels = np.stack([x * 255 // width, y * 255 // height, np.full_like(x, 90)], axis=-1)
    return Image.fromarray(pixels.astype(np.uint8))


def encoded(image: Image.Image, file_format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def png_of_size(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


def webp_of_size(width: int, height: int) -> bytes:
    body = bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    chunk = b"WEBPVP8X" + struct.pack("<I", 10) + body
    return b"RIFF" + struct.pack("<I", len(chunk)) + chunk


def jpeg_of_size(width: int, height: int) -> bytes:
    content = bytearray(encoded(picture(), "JPEG"))
    place = content.index(b"\xff\xc0") + 5
    content[place : place + 4] = struct.pack(">HH", height, width)
    return bytes(content)


def bmp_of_size(width: int, height: int) -> bytes:
    content = bytearray(encoded(picture(), "BMP"))
    content[18:26] = struct.pack("<ii", width, height)
    return bytes(content)


def gif_of_size(width: int, height: int) -> bytes:
    content = bytearray(encoded(picture(), "GIF"))
    content[6:10] = struct.pack("<HH", width, height)
    return bytes(content)


def tiff_of(tags: dict[int, int]) -> bytes:
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(tags.items()))
    return b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", len(tags)) + entries + bytes(4) + bytes(64)


def tiff_of_size(width: int, height: int) -> bytes:
    return tiff_of({256: width, 257: height, 258: 8, 259: 1, 262: 1, 273: 120, 277: 1, 278: height, 279: 64})


GIANTS = {
    "PNG": png_of_size,
    "WebP": webp_of_size,
    "JPEG": jpeg_of_size,
    "BMP": bmp_of_size,
    "GIF": gif_of_size,
    "TIFF": tiff_of_size,
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_read(name: str, tmp_path: Path) -> None:
    content = encoded(picture(), name.upper())
    path = tmp_path / "file"
    path.write_bytes(content)
    for source in (content, path):
        assert read_header(source) == ImageHeader(name, 40, 30, 1, FORMATS[name])
        image = decode_image(source)
        assert (image.mode, image.size) == ("RGB", (40, 30))
        tolerance = {"JPEG": 14, "WebP": 20, "GIF": 60}.get(name, 0)
        assert np.abs(np.asarray(image).astype(int) - np.asarray(picture())).max() <= tolerance


@pytest.mark.parametrize("name", GIANTS)
def test_giants_are_refused_by_their_header(name: str) -> None:
    content = GIANTS[name](50_000, 50_000)
    assert len(content) < 10_000
    tracemalloc.start()
    with pytest.raises(ImageTooLargeError) as caught:
        decode_image(content)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert str(caught.value) == (
        "The image is 50000 x 50000 pixels, 2,500 megapixels; the limit is 50 megapixels "
        "(RECOQUEST_MAX_IMAGE_PIXELS)."
    )
    assert peak < 5_000_000


@pytest.mark.parametrize("name", GIANTS)
def test_our_own_limit_decides(name: str) -> None:
    content = encoded(picture(), name.upper())
    with pytest.raises(
        ImageTooLargeError, match=r"40 x 30 pixels, 0\.0012 megapixels; the limit is 0\.0011 "
    ):
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
    with path.open("wb") as file:
        file.truncate(30 * 1024 * 1024)
    with pytest.raises(
        ImageTooLargeError,
        match=r"^The image file has 31\.5 MB; the limit is 21\.0 MB \(RECOQUEST_MAX_IMAGE_BYTES\)\.$",
    ):
        decode_image(path)
    with pytest.raises(ImageTooLargeError, match="limit"):
        decode_image(bytes(2000), ImageLimits(max_bytes=1999))


def test_frames_are_capped_and_the_first_is_taken() -> None:
    colours = [(10 * number, 0, 0) for number in range(6)]
    frames = [Image.new("RGB", (8, 8), colour) for colour in colours]
    for name in ("GIF", "TIFF", "PNG", "WebP"):
        options = {"lossless": True} if name == "WebP" else {}
        content = encoded(frames[0], name, save_all=True, append_images=frames[1:], **options)
        assert read_header(content).frames == 6
        assert decode_image(content).getpixel((0, 0)) == (0, 0, 0)
        assert read_header(content, ImageLimits(max_frames=6)).frames == 6
        with pytest.raises(ImageTooLargeError, match="more than 5 frames"):
            read_header(content, ImageLimits(max_frames=5))


def test_the_frames_of_a_gif_are_counted_quickly() -> None:
    frames = [Image.new("P", (2, 2), number % 2) for number in range(2)]
    content = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    block = content.index(b",", 13)
    many = content[:-1] + content[block:-1] * 100_000 + b";"
    with pytest.raises(ImageTooLargeError, match="more than 1000 frames"):
        read_header(many)


def test_jpegs_with_many_scans_are_refused() -> None:
    content = encoded(picture(), "JPEG", progressive=True)
    assert read_header(content).format == "JPEG"
    scan = content[content.rindex(b"\xff\xda") : -2]
    with pytest.raises(ImageTooLargeError, match="over 100 scans"):
        decode_image(content[:-2] + scan * 200 + content[-2:])


def test_tiff_tiles_larger_than_the_limit_are_refused() -> None:
    tags = {256: 10, 257: 10, 258: 8, 259: 1, 262: 1, 277: 1, 322: 40_000, 323: 40_000, 324: 150, 325: 64}
    with pytest.raises(ImageTooLargeError, match="tiles of 40000 x 40000"):
        decode_image(tiff_of(tags))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "The image file is empty."),
        (
            b"hello",
            "The file is not an image that can be read: send JPEG, PNG, WebP, AVIF, GIF, BMP, TIFF or DICOM.",
        ),
        (
            b"%PDF-1.7 ...",
            "The file is not an image that can be read: send JPEG, PNG, WebP, AVIF, GIF, BMP, TIFF or DICOM.",
        ),
        (
            b"<svg xmlns='http://www.w3.org/2000/svg'/>",
            "The file is not an image that can be read: send JPEG, PNG, WebP, AVIF, GIF, BMP, TIFF or DICOM.",
        ),
        (b"\x89PNG\r\n\x1a\n", "The header of the PNG image is damaged: "),
        (b"RIFF\0\0\0\0WEBP", "The header of the WebP image is damaged: its first chunk gives no size."),
        (png_of_size(0, 5), "The header of the PNG image is damaged: it gives no size."),
        (webp_of_size(5, 5), "The header of the WebP image is damaged: "),
        (
            b"\xff\xd8\xff\xc1\0\x0b\x0c\0\x05\0\x05\1\1\x11\0\xff\xd9",
            "The JPEG image has 12 bits a sample, which",
        ),
        (
            b"\xff\xd8\xff\xf7\0\x0b\x08\0\x05\0\x05\1\1\x11\0\xff\xd9",
            "The JPEG image is JPEG-LS, which cannot",
        ),
        (tiff(GREY_PIXELS, tags={259: 34_712}), "The TIFF image has the compression JPEG 2000, which cannot"),
        (tiff(GREY_PIXELS, tags={259: 50_013}), "The TIFF image has the compression number 50013, which"),
        (
            tiff(GREY_PIXELS, photometric=4),
            "The TIFF image has pixels of 8 bits of the photometric interpretation 4",
        ),
        (encoded(picture(400, 400), "JPEG")[:2000], "The JPEG image is damaged: image file is truncated"),
        (encoded(picture(400, 400), "BMP")[:2000], "The BMP image is damaged: image file is truncated"),
    ],
)
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


def test_exif_orientation_is_followed() -> None:
    image = picture(40, 30)
    exif = Image.Exif()
    exif[0x0112] = 6
    content = encoded(image, "PNG", exif=exif)
    assert (read_header(content).width, decode_image(content).size) == (40, (30, 40))
    expected = np.rot90(np.asarray(image), -1)
    assert np.array_equal(np.asarray(decode_image(content)), expected)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF:UserWarning")
def test_a_damaged_exif_block_is_no_reason_to_refuse() -> None:
    content = encoded(picture(), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\x7f" + bytes(20))
    assert decode_image(content).size == (40, 30)


def test_deep_grey_is_scaled_not_clipped() -> None:
    values = np.array([[1000, 3000], [2000, 5000]], dtype=np.uint16)
    expected = [[0, 128], [64, 255]]
    for name in ("PNG", "TIFF"):
        image = decode_image(encoded(Image.fromarray(values), name))
        assert np.asarray(image)[..., 0].tolist() == expected
    floats = (values.astype(np.float32) - 3000.0) / 1000.0
    assert np.asarray(decode_image(encoded(Image.fromarray(floats), "TIFF")))[..., 1].tolist() == expected
    floats[0, 0] = np.nan
    assert np.asarray(decode_image(encoded(Image.fromarray(floats), "TIFF")))[..., 0].tolist() == [
        [0, 85],
        [0, 255],
    ]
    flat = Image.fromarray(np.full((3, 3), 700, dtype=np.uint16))
    assert np.asarray(decode_image(encoded(flat, "PNG"))).max() == 0


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
@pytest.mark.parametrize("bits", [10, 12])
def test_colours_of_fewer_bits_in_cells_of_16_are_windowed(name: str, bits: int) -> None:
    scene = _scene(20, 250)
    deep = np.rint(scene * ((1 << bits) - 1) / 255).astype(np.uint16)
    seen = np.asarray(decode_image(png(deep, 16) if name == "PNG" else tiff(deep)))
    assert np.corrcoef(seen.ravel(), scene.ravel())[0, 1] > 0.99
    assert seen.min() == 0 and seen.max() == 255


@pytest.mark.parametrize("name", ["PNG", "TIFF"])
def test_films_in_equal_channels_of_16_bits_are_windowed(name: str) -> None:
    grey = (_scene(60, 90)[..., :1] * 257 + 1).astype(np.uint16)
    deep = np.repeat(grey, 3, axis=-1)
    seen = np.asarray(decode_image(png(deep, 16) if name == "PNG" else tiff(deep)))
    assert (seen == np.asarray(decode_image(png(grey, 16)))).all()
    assert seen.min() == 0 and seen.max() == 255


def test_a_wide_deep_image_is_scaled_as_a_whole() -> None:
    values = np.arange(200_000, dtype=np.int32).reshape(2, 100_000) * 7
    image = decode_image(encoded(Image.fromarray(values), "TIFF"))
    low, high = np.quantile(values, [0.005, 0.995])
    scaled = np.rint(((values - low) * (255.0 / (high - low))).clip(0, 255)).astype(int)
    assert np.abs(np.asarray(image)[..., 0] - scaled).max() <= 1


def test_transparency_lies_on_white() -> None:
    image = Image.new("RGBA", (2, 1), (0, 0, 0, 0))
    image.putpixel((1, 0), (200, 0, 0, 255))
    for name in ("PNG", "TIFF"):
        assert np.asarray(decode_image(encoded(image, name))).tolist() == [[[255, 255, 255], [200, 0, 0]]]
    palette = Image.new("P", (2, 1), 0)
    palette.putpalette([9, 9, 9, 0, 100, 0])
    palette.putpixel((1, 0), 1)
    content = encoded(palette, "PNG", transparency=0)
    assert np.asarray(decode_image(content)).tolist() == [[[255, 255, 255], [0, 100, 0]]]


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "CMYK", "RGBA"])
def test_other_modes_become_rgb(mode: str) -> None:
    name = "TIFF" if mode == "CMYK" else "PNG"
    assert decode_image(encoded(picture().convert(mode), name)).mode == "RGB"


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


def _large_jpeg(width: int, height: int, **options: Any) -> bytes:
    return encoded(Image.new("RGB", (width, height), (200, 40, 30)), "JPEG", **options)


def test_a_jpeg_counts_with_the_size_that_it_is_decoded_at() -> None:
    limits = ImageLimits(max_pixels=60_000)
    for size, smallest in (((1200, 900), (150, 113)), ((3000, 300), (375, 38)), ((900, 1200), (113, 150))):
        content = _large_jpeg(*size)
        whole = decode_whole(content, limits, min_side=30)
        assert (whole.width, whole.height, whole.pixels.size) == (*size, smallest)
        assert read_header(content, limits, min_side=30).width == size[0]
    turned = encoded(Image.new("RGB", (1200, 900)), "JPEG", exif=bytes.fromhex("457869660000") + _turned())
    found = decode_whole(turned, limits, min_side=30)
    assert (found.width, found.height, found.pixels.size) == (900, 1200, (113, 150))


@pytest.mark.parametrize(
    ("content", "min_side"),
    [
        (_large_jpeg(1200, 900), None),
        (_large_jpeg(1200, 900), 300),
        # All of its coefficients are kept.
        (_large_jpeg(1200, 900, progressive=True), 30),
        (encoded(Image.new("RGB", (1200, 900)), "PNG"), 30),
    ],
)
def test_what_is_decoded_large_is_over_the_limit(content: bytes, min_side: int | None) -> None:
    with pytest.raises(ImageTooLargeError, match=r"1200 x 900 pixels, 1.08 mega.*RECOQUEST_MAX_IMAGE_PIXELS"):
        decode_whole(content, ImageLimits(max_pixels=60_000), min_side=min_side)


def _turned() -> bytes:
    exif = Image.Exif()
    exif[274] = 6
    return exif.tobytes().removeprefix(b"Exif\0\0")


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


# The seeds of damaged files.
KINDS = [*FORMATS, "deep PNG", "deep TIFF", "float TIFF", "AVIF"]


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


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(KINDS), st.data())
def test_corrupted_files_never_raise_anything_else(name: str, data: st.DataObject) -> None:
    content = bytearray(SEEDS[name])
    for _ in range(data.draw(st.integers(0, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    check_survives(bytes(content[: data.draw(st.integers(0, len(content)))]))


SEEDS = {
    "JPEG": encoded(picture(), "JPEG", exif=b"Exif\0\0" + tiff_of({0x0112: 6})),
    "PNG": encoded(picture().convert("P"), "PNG", transparency=3),
    "WebP": encoded(picture(), "WEBP", save_all=True, append_images=[picture().rotate(90)]),
    "GIF": encoded(picture(), "GIF", save_all=True, append_images=[picture().rotate(90)]),
    "BMP": encoded(picture().convert("P"), "BMP"),
    "TIFF": encoded(picture(), "TIFF", compression="tiff_lzw"),
    "deep PNG": png(np.asarray(picture()).astype(np.uint16) * 40, 16, interlaced=True),
    "deep TIFF": tiff(np.asarray(picture()).astype(np.uint16) * 40, tile=16, compression=8, predictor=2),
    "float TIFF": tiff(np.asarray(picture()).astype(np.float32), planar=True, big=True),
    "AVIF": encoded(picture(), "AVIF", exif=b"Exif\0\0" + tiff_of({0x0112: 6})),
}
