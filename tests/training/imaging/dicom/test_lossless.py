"""Frames of lossless JPEG and of 12 bits, whole and damaged."""

import numpy as np
import pytest
from imagecodecs import jpeg8_encode
from pydicom.uid import UID, JPEGExtended12Bit, JPEGLosslessSV1

from tests.dicom_forms import data_set, file_of, film, in_syntax, padded, with_frames
from training.common.errors import ImageError, ImageTooLargeError
from training.imaging.images import decode_whole
from training.imaging.processes import file_decoder
from training.imaging.processes.file_decoder import FileDecoder
from training.imaging.processes.pool import DecoderLimits


def frame() -> bytes:
    """One frame of 12 bits; its header, its table and its scan begin at known marks."""
    made = data_set(np.rint(film() * 4095).astype("u2"), photometric="MONOCHROME2", stored=12)
    content = in_syntax(made, JPEGLosslessSV1)
    start = content.index(b"\xff\xd8\xff")
    return content[start : content.rindex(b"\xff\xd9") + 2]


def in_file(stream: bytes) -> bytes:
    made = data_set(np.zeros(film().shape, "u2"), photometric="MONOCHROME2", stored=12)
    return file_of(with_frames(made, JPEGLosslessSV1, [stream]))


def test_segments_that_no_pixel_needs_change_nothing() -> None:
    stream = frame()
    comment = b"\xff\xfe\0\x08marker"
    tagged = stream[:2] + b"\xff\xe1\0\x08marker" + comment + b"\xff\xff" + stream[2:] + b"\0"
    assert decode_whole(in_file(tagged)).pixels.tobytes() == decode_whole(in_file(stream)).pixels.tobytes()


@pytest.mark.parametrize("syntax", [JPEGExtended12Bit, JPEGLosslessSV1])
@pytest.mark.parametrize("subject", ["grey", "colours"])
def test_frames_of_12_bits_keep_them(syntax: UID, subject: str) -> None:
    whole = np.rint(film() * 4095).astype("u2")
    photometric = "MONOCHROME2"
    if subject == "colours":
        whole, photometric = np.stack([whole, whole[::-1], whole // 2], axis=-1), "RGB"
    space = "RGB" if whole.ndim == 3 else None
    lossless = syntax == JPEGLosslessSV1
    stream = jpeg8_encode(whole, 98, bitspersample=12, lossless=lossless, outcolorspace=space)
    made = data_set(whole, photometric=photometric, stored=12)
    seen = np.asarray(decode_whole(file_of(made)).pixels, np.int64)
    coded = np.asarray(
        decode_whole(file_of(with_frames(made, syntax, [padded(bytes(stream))]))).pixels, np.int64
    )
    assert np.abs(coded - seen).max() <= (0 if lossless else 2)


def damaged() -> dict[str, bytes]:
    stream = frame()
    header, table, scan = (stream.index(mark) for mark in (b"\xff\xc3", b"\xff\xc4", b"\xff\xda"))

    def patched(place: int, patch: bytes) -> bytes:
        return stream[:place] + patch + stream[place + len(patch) :]

    return {
        "1 bit a sample": patched(header + 4, b"\1"),
        "an unknown segment": patched(table + 1, b"\xc8"),
        "no segment": patched(table, b"\0"),
        "no Huffman table": patched(table + 4, b"\x10"),
        "another Huffman table": patched(scan + 6, b"\x30"),
        "another colour": patched(scan + 5, b"\x09"),
        "no predictor": patched(scan + 7, b"\0"),
        "no end": stream[:-2],
        "no scan": stream[:scan] + b"\xff\xd9",
        "a restart within a row": stream[:scan] + b"\xff\xdd\0\4\0\5" + stream[scan:],
        "thousands of segments": stream[:scan] + b"\xff\xfe\0\2" * 4_000 + stream[scan:],
    }


@pytest.mark.parametrize("damage", damaged())
def test_a_damaged_frame_is_refused(damage: str) -> None:
    with pytest.raises(ImageError, match=r"^The DICOM image is damaged: its "):
        decode_whole(in_file(damaged()[damage]))


@pytest.mark.parametrize("part", range(1, 20))
def test_a_cut_frame_is_refused(part: int) -> None:
    stream = frame()
    with pytest.raises(ImageError):
        decode_whole(in_file(stream[: len(stream) * part // 20]))


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["enough", "little"])
def test_memory_decides_whether_a_large_frame_is_decoded(
    memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = 7000
    stream = frame()
    size = stream.index(b"\xff\xc3") + 5
    made = data_set(np.zeros(film().shape, "u2"), photometric="MONOCHROME2", stored=12)
    large = with_frames(made, JPEGLosslessSV1, [stream[:size] + side.to_bytes(2) * 2 + stream[size + 4 :]])
    large.Rows = large.Columns = side
    limits = DecoderLimits((560 if memory == "enough" else 60) << 20, cpu_s=30)
    monkeypatch.setattr(file_decoder, "_LIMITS", limits)
    with FileDecoder() as decoder:
        if memory == "enough":
            assert decoder.decode(file_of(large)).pixels.size == (side, side)
        else:
            with pytest.raises(ImageTooLargeError, match="takes more memory than the 63 MB that"):
                decoder.decode(file_of(large))
