"""Frames of lossless JPEG: what their decoder would end the process at is refused before it sees it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pydicom.uid import UID, JPEGLosslessSV1, JPEGLSLossless

from tests.dicom_forms import data_set, file_of, film, in_syntax, with_frames
from training.data.decoding.dicom.codestreams import read_codestream
from training.data.decoding.dicom.lossless import rewrite_lossless
from training.data.decoding.images import decode_whole
from training.errors import ImageError


def frame() -> bytes:
    """One frame of 12 bits; its header, its table and its scan begin at known marks."""
    made = data_set(np.rint(film() * 4095).astype("u2"), photometric="MONOCHROME2", stored=12)
    content = in_syntax(made, JPEGLosslessSV1)
    start = content.index(b"\xff\xd8\xff")
    return content[start : content.rindex(b"\xff\xd9") + 2]


def rewritten(stream: bytes) -> bytes:
    return rewrite_lossless(stream, read_codestream(stream))


def in_file(stream: bytes) -> bytes:
    made = data_set(np.zeros(film().shape, "u2"), photometric="MONOCHROME2", stored=12)
    return file_of(with_frames(made, JPEGLosslessSV1, [stream]))


def test_a_frame_stays_as_it_is_but_for_segments_that_no_pixel_needs() -> None:
    stream = frame()
    assert rewritten(stream) == stream
    comment = b"\xff\xfe\0\x08marker"
    tagged = stream[:2] + b"\xff\xe1\0\x08marker" + comment + b"\xff\xff" + stream[2:] + b"\0"
    assert rewritten(tagged) == stream
    assert decode_whole(in_file(tagged)).pixels.tobytes() == decode_whole(in_file(stream)).pixels.tobytes()


def damaged() -> dict[str, bytes]:
    stream = frame()
    header, table, scan = (stream.index(mark) for mark in (b"\xff\xc3", b"\xff\xc4", b"\xff\xda"))

    def patched(place: int, patch: bytes) -> bytes:
        return stream[:place] + patch + stream[place + len(patch) :]

    return {
        "has 1 bits a sample": patched(header + 4, b"\1"),
        "its colours are of several sizes": patched(header + 11, b"\x22"),
        "it has a segment FFC8": patched(table + 1, b"\xc8"),
        "a segment is cut, or its end is missing": patched(table, b"\0"),
        "a Huffman table is none": patched(table + 4, b"\x10"),
        "a scan has no Huffman table": patched(scan + 6, b"\x30"),
        "a scan has colours that the frame has not": patched(scan + 5, b"\x09"),
        "a scan has no predictor": patched(scan + 7, b"\0"),
        "its end is missing": stream[:-2],
        "not every colour has a scan": stream[:scan] + b"\xff\xd9",
        "it restarts within a row": stream[:scan] + b"\xff\xdd\0\4\0\5" + stream[scan:],
        "it has over 2,000 segments": stream[:scan] + b"\xff\xfe\0\2" * 2_000 + stream[scan:],
    }


@pytest.mark.parametrize("reason", damaged())
def test_a_damaged_part_is_named(reason: str) -> None:
    with pytest.raises(ImageError) as caught:
        decode_whole(in_file(damaged()[reason]))
    assert str(caught.value).startswith("The DICOM image is damaged: its frame is lossless JPEG, and ")
    assert reason in str(caught.value)


@pytest.mark.parametrize("part", range(1, 20))
def test_a_cut_frame_is_refused(part: int) -> None:
    stream = frame()
    with pytest.raises(ImageError):
        decode_whole(in_file(stream[: len(stream) * part // 20]))


@pytest.mark.parametrize("syntax", [JPEGLosslessSV1, JPEGLSLossless])
def test_a_frame_that_takes_more_memory_than_is_left_is_refused(tmp_path: Path, syntax: UID) -> None:
    side, head = 7000, b"\xff\xc3" if syntax == JPEGLosslessSV1 else b"\xff\xf7"
    made = data_set(np.rint(film() * 4095).astype("u2"), photometric="MONOCHROME2", stored=12)
    content = in_syntax(made, syntax)
    stream = content[content.index(b"\xff\xd8\xff") : content.rindex(b"\xff\xd9") + 2]
    size = stream.index(head) + 5
    stream = stream[:size] + side.to_bytes(2) * 2 + stream[size + 4 :]
    large = with_frames(made, syntax, [stream])
    large.Rows = large.Columns = side
    (tmp_path / "large.dcm").write_bytes(file_of(large))
    decoder = "tests.training.data.decoding.dicom.decode_each"
    done = subprocess.run(
        [sys.executable, "-m", decoder, str(tmp_path), "decode"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])["outcome"]
    assert "takes up to 686 MB of memory, more than this process may have" in said
