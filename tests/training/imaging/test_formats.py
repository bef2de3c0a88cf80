"""Formats told apart, HEIC images with their extra, and files of too many parts, refused before decoding."""

import struct
import sys
import zlib

import numpy as np
import pytest
from PIL import Image

from tests.heic_files import PLAIN, TURNED
from tests.image_quadrants import rgb
from tests.needed import needed_module
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
from training.imaging.formats import check_structure, is_readable_suffix, sniff_format
from training.imaging.images import ImageLimits, decode_image, decode_whole, read_header
from training.imaging.metadata import strip_metadata

RED, GREEN, BLUE, WHITE = (220, 30, 30), (30, 200, 30), (30, 30, 220), (230, 230, 230)
NEAR = 12


def test_heic_pictures_are_upright_stripped_and_bounded() -> None:
    needed_module("pi_heif", "pip install -c constraints.txt '.[heic]'")
    assert is_readable_suffix(".heic")
    for content, size, colours in (
        (PLAIN, (64, 48), (RED, GREEN, BLUE, WHITE)),
        (TURNED, (48, 64), (BLUE, RED, WHITE, GREEN)),
    ):
        decoded = decode_whole(content)
        assert (decoded.header.format, decoded.header.media_type) == ("HEIC", "image/heic")
        assert (decoded.width, decoded.height) == decoded.pixels.size == size
        quarters = [(size[0] * x // 4, size[1] * y // 4) for y in (1, 3) for x in (1, 3)]
        seen = np.array([decoded.pixels.getpixel(quarter) for quarter in quarters], int)
        assert np.abs(seen - np.array(colours)).max() <= NEAR
    stripped = strip_metadata(TURNED)
    assert b"Secret" in TURNED and b"Secret" not in stripped
    assert decode_whole(stripped).pixels.tobytes() == decode_whole(TURNED).pixels.tobytes()
    with pytest.raises(ImageTooLargeError):
        read_header(PLAIN, ImageLimits(max_pixels=3_000))
    for length in (40, 300, len(PLAIN) - 20):
        with pytest.raises(ImageError):
            decode_whole(PLAIN[:length])


def test_without_the_extra_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pi_heif", None)
    with pytest.raises(ImageError, match=r"HEIC image, which cannot be read: install recoquest\[heic\]"):
        sniff_format(PLAIN)
    assert not is_readable_suffix(".heic")


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


def _jpeg_with_all_metadata() -> bytes:
    profile = b"".join(
        segment(0xE2, b"ICC_PROFILE\0" + bytes([number, 255]) + bytes(50_000)) for number in range(1, 256)
    )
    extended = segment(0xE1, b"http://ns.adobe.com/xmp/extension/\0" + bytes(60_000)) * 60
    return jpeg_with(segment(0xE1, b"Exif\0\0II*\0\x08\0\0\0" + bytes(6)) * 3 + extended + profile)


def _webp_of_frames() -> bytes:
    frames = [Image.new("RGB", (8, 8), (number % 256, 0, 0)) for number in range(200)]
    return encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True)


def test_files_of_as_many_parts_as_programs_write_are_read() -> None:
    runs = (b"\xff\1" * 39 + b"\x37\1\0\0") * 100 + b"\0\1"
    for content, size, frames in (
        (_jpeg_with_all_metadata(), (8, 8), 1),
        (png_of_small_chunks(19_000_000, 8_192), (2_516, 2_516), 1),
        (striped_tiff(10_000), (8, 10_000), 1),
        (striped_tiff(10_000, big=True), (8, 10_000), 1),
        (rle_bmp(10_000, 100, runs), (10_000, 100), 1),
        (gif_of_blocks(50_000), (8, 8), 1),
        (_webp_of_frames(), (8, 8), 200),
    ):
        header = read_header(content)
        assert (header.width, header.height, header.frames) == (*size, frames)
        if header.format != "TIFF":
            # The strips of this one are empty.
            assert decode_image(content).size == size
    check_structure(slow_bmp(), "BMP")


@pytest.mark.parametrize("name", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_a_file_cut_anywhere_is_left_to_its_decoder(name: str) -> None:
    content = encoded(Image.new("RGB", (8, 8)), name)
    for length in range(12, len(content)):
        check_structure(content[:length], {"WEBP": "WebP"}.get(name, name))


def test_a_directory_beyond_every_address_is_refused() -> None:
    for order in ("<", ">"):
        head = {"<": b"II", ">": b"MM"}[order] + struct.pack(f"{order}HHHQ", 43, 8, 0, 2**64 - 1)
        with pytest.raises(ImageError, match="header of the TIFF image is damaged"):
            decode_image(head + bytes(100))
