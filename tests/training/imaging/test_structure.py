"""Files of too many parts are refused before a decoder reads them, and honest ones are not."""

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from tests.training.data.hostile import (
    encoded,
    gif_of_blocks,
    jpeg_with,
    png_chunk,
    png_of_small_chunks,
    png_with,
    rle_bmp,
    segment,
    slow_bmp,
    striped_tiff,
    webp_of_chunks,
)
from training.common.errors import ImageError, ImageTooLargeError
from training.imaging.images import decode_image, read_header
from training.imaging.structure import check_structure

SEGMENTS = r"over 4,000 segments; save it without metadata\."
EXIF = r"over 64 segments with Exif data; save it without metadata\."


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (rle_bmp(50_000_000, 1, b"\1\1\0\0"), "50,000,000 pixels in 66 bytes of runs"),
        (rle_bmp(50_000_000, 1, b"\1\1\0\0", four_bits=True), "50,000,000 pixels in 66 bytes of runs"),
        (rle_bmp(10_000, -5_000, bytes(1000)), "50,000,000 pixels in"),
        (jpeg_with(segment(0xE1, b"Exif\0\0" + bytes(30)) * 20_000), EXIF),
        (jpeg_with(segment(0xE1, b"Exif\0\0II*\0" + bytes(60_000)) * 65), EXIF),
        (jpeg_with(segment(0xE5) * 200_000), SEGMENTS),
        (jpeg_with(segment(0xFE) * 200_000), SEGMENTS),
        (jpeg_with(b"\xff\xd0" * 200_000), SEGMENTS),
        (jpeg_with(bytes(200_000)), "65,536 bytes between its segments"),
        (jpeg_with(b"\xff" * 200_000), "65,536 bytes between its segments"),
        (jpeg_with(b"\xff\0" * 200_000), "65,536 bytes between its segments"),
        (jpeg_with(segment(0xF0, bytes(60_000)) * 4), "65,536 bytes between its segments"),
        (png_with(png_chunk(b"teSt") * 200_000), "over 50,000 chunks"),
        (png_with(png_chunk(b"IDAT") * 200_000), "over 50,000 chunks"),
        (png_with(png_chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(1 << 20))) * 500), "over 16 colour"),
        (striped_tiff(500_000), "over 100,000 strips or tiles"),
        (striped_tiff(500_000, big=True), "over 100,000 strips or tiles"),
        (b"II+\0" + struct.pack("<HHQQ", 8, 0, 16, 900_000) + bytes(1_000_000), "over 4,096 tags"),
        (gif_of_blocks(500_000), "over 400,000 blocks"),
        (webp_of_chunks(50_000), "over 20,000 chunks"),
    ],
)
def test_files_of_too_many_parts_are_refused(content: bytes, reason: str) -> None:
    for read in (read_header, decode_image):
        with pytest.raises(ImageTooLargeError, match=reason) as caught:
            read(content)
        assert str(caught.value).endswith(".")


def test_a_jpeg_with_all_the_metadata_there_may_be_is_read() -> None:
    profile = b"".join(
        segment(0xE2, b"ICC_PROFILE\0" + bytes([number, 255]) + bytes(50_000)) for number in range(1, 256)
    )
    extended = segment(0xE1, b"http://ns.adobe.com/xmp/extension/\0" + bytes(60_000)) * 60
    exif = segment(0xE1, b"Exif\0\0II*\0\x08\0\0\0" + bytes(6)) * 3
    content = jpeg_with(exif + extended + profile)
    assert len(content) > 16_000_000
    assert decode_image(content).size == (8, 8)


def test_a_large_png_of_usual_chunks_is_read() -> None:
    content = png_of_small_chunks(19_000_000, 8_192)
    assert content.count(b"IDAT") > 2_000
    assert decode_image(content).width > 2_000


@pytest.mark.parametrize("big", [False, True])
def test_a_tiff_of_one_row_a_strip_is_read(big: bool) -> None:
    header = read_header(striped_tiff(10_000, big=big))
    assert (header.format, header.width, header.height) == ("TIFF", 8, 10_000)


def test_run_lengths_that_describe_their_pixels_are_read() -> None:
    row = b"\xff\1" * 39 + b"\x37\1\0\0"
    image = decode_image(rle_bmp(10_000, 100, row * 100 + b"\0\1"))
    assert (image.size, np.asarray(image).max()) == ((10_000, 100), 0)


def test_a_gif_with_large_metadata_and_a_webp_of_many_frames_are_read() -> None:
    assert decode_image(gif_of_blocks(50_000)).size == (8, 8)
    frames = [Image.new("RGB", (8, 8), (number % 256, 0, 0)) for number in range(200)]
    content = encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    assert read_header(content).frames == 200


@pytest.mark.parametrize("name", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_a_file_cut_anywhere_is_left_to_its_decoder(name: str) -> None:
    content = encoded(Image.new("RGB", (8, 8)), name)
    for length in range(12, len(content)):
        check_structure(content[:length], {"WEBP": "WebP"}.get(name, name))


def test_a_slow_file_within_the_bounds_passes_them() -> None:
    check_structure(slow_bmp(), "BMP")


def test_a_directory_beyond_every_address_is_refused() -> None:
    for order in ("<", ">"):
        head = {"<": b"II", ">": b"MM"}[order] + struct.pack(f"{order}HHHQ", 43, 8, 0, 2**64 - 1)
        with pytest.raises(ImageError, match="header of the TIFF image is damaged"):
            decode_image(head + bytes(100))
