"""A JPEG without the marker of its end is whole where only the marker is missing, and truncated else."""

from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.image_files import encoded
from training.common.errors import ImageError
from training.imaging.codecs.jpeg import END_OF_IMAGE, SOS, segments, with_end
from training.imaging.images import ImageLimits, decode_whole
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
    return [segment.end for segment in segments(content, ImageError) if segment.marker == SOS]


def _in_three_scans() -> bytes:
    """Return a sequential JPEG with a scan for each colour, put together from three of grey."""
    parts = [encoded(band, "JPEG", quality=90) for band in _noise(40, 40).split()]
    listed = [list(segments(part, ImageError)) for part in parts]
    content = b"\xff\xd8"
    for marker, payload, _, _ in listed[0]:
        if marker == 0xC0:
            payload = payload[:5] + b"\x03" + b"".join(bytes([number, 0x11, 0]) for number in (1, 2, 3))
        if marker not in (SOS, 0xD9):
            content += bytes([0xFF, marker]) + (len(payload) + 2).to_bytes(2) + payload
    for number, part in enumerate(listed, 1):
        scan = next(segment for segment in part if segment.marker == SOS)
        payload = b"\x01" + bytes([number]) + scan.payload[2:]
        content += bytes([0xFF, SOS]) + (len(payload) + 2).to_bytes(2) + payload + scan.data
    return content + END_OF_IMAGE


def _refused(content: bytes) -> None:
    with pytest.raises(ImageError, match=r"image file is truncated, its end is missing\.$"):
        decode_whole(content)


@pytest.mark.slow
@pytest.mark.parametrize("options", _SEQUENTIAL.values(), ids=_SEQUENTIAL)
@pytest.mark.parametrize("quality", [pytest.param(30, marks=pytest.mark.slow), 95])
def test_a_sequential_file_is_whole_without_its_last_two_bytes_alone(
    options: dict[str, Any], quality: int
) -> None:
    for picture in _pictures():
        content = encoded(picture, "JPEG", quality=quality, **options)
        whole = decode_whole(content)
        scan = next(segment for segment in segments(content, ImageError) if segment.marker == SOS)
        # Small pictures have fewer bytes of pixels.
        for cut in _CUTS[: len(scan.data) + 1]:
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


def test_a_progressive_file_without_its_end_is_truncated_wherever_it_is_cut() -> None:
    for picture in _pictures():
        content = encoded(picture, "JPEG", quality=90, progressive=True)
        ends = _scan_ends(content)
        assert len(ends) > 3
        parts = [*(content[:end] for end in ends), *(content[:-cut] for cut in _CUTS)]
        for part in (part for part in parts if len(part) >= ends[0]):
            _refused(part)
            assert with_end(strip_metadata(part)) is None


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


@pytest.mark.parametrize("options", [{}, {"restart_marker_rows": 1}])
def test_a_progressive_file_is_read_as_far_as_it_goes_wherever_it_is_cut(options: dict[str, Any]) -> None:
    # Of an even picture, most bytes belong to the headers of scans.
    content = encoded(
        _noise(2, 2).resize((96, 64), Image.Resampling.NEAREST), "JPEG", progressive=True, **options
    )
    first = _scan_ends(content)[0]
    for end in range(first, len(content) - 2):
        assert decode_whole(content[:end], ImageLimits(accept_truncated=True)).truncated
