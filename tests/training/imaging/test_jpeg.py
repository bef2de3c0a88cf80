"""JPEG files: 12 bits a sample, and those without the marker of their end, which are whole or truncated."""

from typing import Any

import numpy as np
import pytest
from imagecodecs import jpeg8_encode
from PIL import Image

from tests.image_files import encoded, png
from training.common.errors import ImageError
from training.imaging.images import ImageHeader, ImageLimits, decode_image, decode_whole, read_header
from training.imaging.jpeg import DATA, END_OF_IMAGE, SOS, pack_segment, segments, with_end
from training.imaging.metadata import strip_metadata

_CUTS = range(1, 61)
_SEQUENTIAL: dict[str, dict[str, Any]] = {
    "plain": {},
    "whole colours": {"subsampling": 0},
    "optimised": {"optimize": True},
    "restarts": {"restart_marker_blocks": 1},
    "restarts of rows": {"restart_marker_rows": 1},
}


def _noise(width: int, height: int, seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def _pictures() -> list[Image.Image]:
    noise = _noise(52, 38)
    return [noise, noise.convert("L"), noise.reduce(8).resize(noise.size), _noise(24, 72)]


def _scan_ends(content: bytes) -> list[int]:
    return [segment.end for segment in segments(content, ImageError) if segment.marker == DATA]


def _in_three_scans() -> bytes:
    """Return a sequential JPEG with a scan for each colour, put together from three of grey."""
    parts = [encoded(band, "JPEG", quality=90) for band in _noise(40, 40).split()]
    listed = [list(segments(part, ImageError)) for part in parts]
    content = b"\xff\xd8"
    for marker, _, payload, _ in listed[0]:
        if marker == 0xC0:
            payload = payload[:5] + b"\x03" + b"".join(bytes([number, 0x11, 0]) for number in (1, 2, 3))
        if marker not in (SOS, DATA, 0xD9):
            content += pack_segment(marker, payload)
    for number, part in enumerate(listed, 1):
        (header,) = (segment.payload for segment in part if segment.marker == SOS)
        (data,) = (segment.payload for segment in part if segment.marker == DATA)
        content += pack_segment(SOS, b"\x01" + bytes([number]) + header[2:]) + data
    return content + END_OF_IMAGE


def _refused(content: bytes) -> None:
    with pytest.raises(ImageError, match=r"image file is truncated, its end is missing\.$"):
        decode_whole(content)


@pytest.mark.slow
@pytest.mark.parametrize("options", _SEQUENTIAL.values(), ids=_SEQUENTIAL)
@pytest.mark.parametrize("quality", [30, 95])
def test_a_sequential_file_is_whole_without_its_last_two_bytes_alone(
    options: dict[str, Any], quality: int
) -> None:
    for picture in _pictures():
        content = encoded(picture, "JPEG", quality=quality, **options)
        whole = decode_whole(content)
        data = next(segment for segment in segments(content, ImageError) if segment.marker == DATA)
        # Small pictures have fewer bytes of pixels.
        for cut in _CUTS[: len(data.payload) + 1]:
            part = content[:-cut]
            if cut <= len(END_OF_IMAGE):
                decoded = decode_whole(part)
                assert decoded.pixels.tobytes() == whole.pixels.tobytes()
                assert not decoded.truncated
            else:
                _refused(part)
                assert decode_whole(part, ImageLimits(accept_truncated=True)).truncated
            # What is stored without metadata is as whole as what came.
            assert (with_end(strip_metadata(part)) is None) == (with_end(part) is None)


@pytest.mark.parametrize("options", [{}, {"restart_marker_rows": 1}])
def test_a_progressive_file_without_its_end_is_truncated_wherever_it_is_cut(options: dict[str, Any]) -> None:
    # Of an even picture, most bytes belong to the headers of scans.
    even = _noise(2, 2).resize((96, 64), Image.Resampling.NEAREST)
    for picture in (even, _noise(52, 38)):
        content = encoded(picture, "JPEG", quality=90, progressive=True, **options)
        ends = _scan_ends(content)
        assert len(ends) > 3
        cuts = (
            range(ends[0], len(content) - 2)
            if picture is even
            else [*ends, *(len(content) - n for n in _CUTS)]
        )
        for end in cuts:
            assert decode_whole(content[:end], ImageLimits(accept_truncated=True)).truncated
            if end in ends or picture is not even:
                _refused(content[:end])
                assert with_end(strip_metadata(content[:end])) is None


def test_a_file_of_several_scans_is_whole_with_all_of_them() -> None:
    content = _in_three_scans()
    whole = decode_whole(content)
    ends = _scan_ends(content)
    assert len(ends) == 3
    for end in ends[:-1]:
        # Between two scans, and within the header of the next.
        for part in (content[:end], content[: end + 1], content[: end + 6]):
            _refused(part)
            assert with_end(strip_metadata(part)) is None
    assert ends[-1] == len(content) - 2
    assert decode_whole(content[: ends[-1]]).pixels.tobytes() == whole.pixels.tobytes()
    _refused(content[: ends[-1] - 1])


def test_what_is_cut_behind_the_picture_costs_nothing() -> None:
    content = encoded(_noise(40, 40), "JPEG")
    note = b"\xff\xfe\x01\x00a note that is cut"
    for behind in (note, note[:3], bytes(20), b"\xff"):
        assert with_end(content[:-2] + behind) is not None
        assert decode_whole(content[:-2] + behind).pixels.tobytes() == decode_whole(content).pixels.tobytes()


def _twelve_bits(colours: int) -> tuple[Any, bytes]:
    y, x = np.mgrid[0:48, 0:64] / 64
    waves = [2000 + 1800 * np.sin(7 * x + turn) * np.cos(5 * y) for turn in range(colours)]
    pixels = np.stack(waves, axis=-1).astype(np.uint16)
    return pixels, bytes(jpeg8_encode(pixels.squeeze(), 98, bitspersample=12))


@pytest.mark.parametrize("colours", [1, 3])
def test_files_of_12_bits_are_windowed_like_a_png_of_their_values(colours: int) -> None:
    pixels, content = _twelve_bits(colours)
    assert read_header(content) == ImageHeader("JPEG", 64, 48, 1)
    seen = np.asarray(decode_image(content, min_side=8)).astype(int)
    expected = np.asarray(decode_image(png(pixels, 16))) if colours == 1 else np.rint(pixels / 4095 * 255)
    assert np.abs(seen - expected).mean() < 1.5
    stripped = strip_metadata(content[:2] + pack_segment(0xFE, b"a secret") + content[2:])
    assert b"secret" not in stripped
    assert (np.asarray(decode_image(stripped)) == seen).all()


def test_damaged_files_of_12_bits_are_refused() -> None:
    content = _twelve_bits(1)[1]
    scan, frame = content.index(b"\xff\xda"), content.index(b"\xff\xc1")
    for damaged in (
        content[:-2],
        content[: len(content) // 2],
        content[:scan] + END_OF_IMAGE,
        content[: frame + 7],
    ):
        with pytest.raises(ImageError, match=r"JPEG image is damaged: .+\.$"):
            decode_image(damaged, ImageLimits(accept_truncated=True))
    # Pillow, which reads no length here, sees a small frame of 12 bits ahead of the large one.
    small = pack_segment(0xCC, pack_segment(0xC1, b"\x0c\0\1\0\1\1\1\x11\0"))
    large = encoded(_noise(64, 48), "JPEG")
    with pytest.raises(ImageError, match="frames of several depths"):
        decode_image(large[:2] + small + large[2:])
    with pytest.raises(ImageError, match="64 x 48 pixels"):
        decode_image(content, ImageLimits(max_pixels=3_000))
    with pytest.raises(ImageError, match="The JPEG image has 10 bits a sample, which cannot be read"):
        decode_image(content[: frame + 4] + b"\x0a" + content[frame + 5 :])
