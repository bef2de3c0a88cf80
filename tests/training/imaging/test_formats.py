"""Formats told apart: HEIC images need an extra, and AVIF files are judged by their boxes."""

import struct
import sys

import numpy as np
import pytest

from tests.heic_files import PLAIN, TURNED
from tests.image_files import encoded
from tests.image_quadrants import rgb
from tests.needed import needed_module
from training.common.errors import ImageError, ImageTooLargeError
from training.imaging.formats import is_readable_suffix, sniff_format
from training.imaging.images import ImageLimits, decode_whole, read_header
from training.imaging.metadata import strip_metadata

RED, GREEN, BLUE, WHITE = (220, 30, 30), (30, 200, 30), (30, 30, 220), (230, 230, 230)
NEAR = 12


def quarters(content: bytes) -> list[tuple[int, ...]]:
    """Colours in the middle of the quarters, row by row."""
    pixels = np.asarray(decode_whole(content).pixels)
    height, width, _ = pixels.shape
    return [tuple(pixels[y * height // 4, x * width // 4].tolist()) for y in (1, 3) for x in (1, 3)]


@pytest.fixture
def with_extra() -> None:
    needed_module("pi_heif", "pip install -c constraints.txt '.[heic]'")


@pytest.mark.usefixtures("with_extra")
@pytest.mark.parametrize(
    ("content", "size", "colours"),
    [(PLAIN, (64, 48), (RED, GREEN, BLUE, WHITE)), (TURNED, (48, 64), (BLUE, RED, WHITE, GREEN))],
)
def test_pictures_are_upright(
    content: bytes, size: tuple[int, int], colours: tuple[tuple[int, ...], ...]
) -> None:
    decoded = decode_whole(content)
    assert (decoded.header.format, decoded.header.media_type) == ("HEIC", "image/heic")
    assert (decoded.width, decoded.height) == decoded.pixels.size == size
    for found, expected in zip(quarters(content), colours, strict=True):
        assert max(abs(a - b) for a, b in zip(found, expected, strict=True)) <= NEAR
    assert is_readable_suffix(".heic")


@pytest.mark.usefixtures("with_extra")
def test_metadata_goes_and_the_picture_stays() -> None:
    stripped = strip_metadata(TURNED)
    assert b"Secret" in TURNED
    assert b"Secret" not in stripped
    assert decode_whole(stripped).pixels.tobytes() == decode_whole(TURNED).pixels.tobytes()


@pytest.mark.usefixtures("with_extra")
def test_limits_hold_before_a_pixel_is_decoded() -> None:
    with pytest.raises(ImageTooLargeError):
        read_header(PLAIN, ImageLimits(max_pixels=3_000))


@pytest.mark.usefixtures("with_extra")
@pytest.mark.parametrize("length", [40, 300, len(PLAIN) - 20])
def test_cut_files_are_refused(length: int) -> None:
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
