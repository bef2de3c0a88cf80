"""Windows, tables and depths that a file states and that would leave its picture nearly black or white."""

import io
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray
from openjpeg.utils import encode_array
from PIL import Image
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence
from pydicom.uid import UID, ExplicitVRBigEndian, JPEG2000Lossless, JPEGBaseline8Bit, JPEGLSLossless

from tests.dicom_forms import data_set, file_of, film, in_syntax, padded, with_frames
from tests.training.imaging.dicom.pictures import grey, made
from training.imaging.images import decode_whole

# A film of 8 bits that reaches neither end.
EIGHT: Final = np.rint(film() * 150 + 40).astype(np.uint8)
TWELVE: Final = np.rint(film(2) * 2400 + 800).astype(np.uint16)


def _frame(pixels: NDArray[Any], syntax: UID, bits: int) -> bytes:
    if syntax == JPEGBaseline8Bit:
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=98)
        return file.getvalue()
    if syntax == JPEG2000Lossless:
        return bytes(encode_array(pixels, bits_stored=bits, photometric_interpretation=2, use_mct=False))
    whole = in_syntax(data_set(pixels, photometric="MONOCHROME2", stored=bits), syntax)
    start = whole.index(b"\xff\xd8\xff")
    return whole[start : whole.rindex(b"\xff\xd9") + 2]


def _short(pixels: NDArray[Any], syntax: UID, bits: int, stored: int, **attributes: Any) -> bytes:
    """A file whose compressed frame has fewer bits than its header says."""
    wide = pixels.astype("i2" if attributes.pop("signed", False) else "u2")
    return file_of(
        with_frames(made(wide, stored, **attributes), syntax, [padded(_frame(pixels, syntax, bits))])
    )


@pytest.mark.parametrize("syntax", [JPEGBaseline8Bit, JPEG2000Lossless, JPEGLSLossless])
@pytest.mark.parametrize("stored", [10, 12, 16])
@pytest.mark.parametrize("signed", [False, True])
def test_frames_of_fewer_bits_than_the_header_says_keep_their_levels(
    syntax: UID, stored: int, signed: bool
) -> None:
    content = _short(EIGHT, syntax, 8, stored, signed=signed)
    if signed:
        # Without the bit of the sign no sample is negative, and signed ones are windowed.
        assert np.corrcoef(grey(content).ravel(), EIGHT.ravel())[0, 1] > 0.99
        return
    assert np.abs(grey(content) - EIGHT.astype(int)).mean() < 2
    inverse = _short(EIGHT, syntax, 8, stored, photometric="MONOCHROME1")
    assert np.abs(grey(inverse) - (255 - EIGHT.astype(int))).mean() < 2
    windowed = _short(
        EIGHT, syntax, 8, stored, WindowCenter=str(1 << stored - 1), WindowWidth=str(1 << stored)
    )
    assert len(np.unique(grey(windowed))) > 90


def test_samples_that_a_codestream_itself_calls_signed_are() -> None:
    signed = (EIGHT.astype(np.int16) - 128).astype(np.int8)
    content = _short(signed, JPEG2000Lossless, 8, 12, signed=True)
    assert np.corrcoef(grey(content).ravel(), EIGHT.ravel())[0, 1] > 0.99


@pytest.mark.parametrize("stored", [12, 16])
def test_a_frame_of_10_bits_is_not_read_through_a_window_for_more(stored: int) -> None:
    ten = (EIGHT.astype(np.uint16) * 4 + 1).astype(np.uint16)
    window = {"WindowCenter": str(1 << stored - 1), "WindowWidth": str(1 << stored)}
    seen = grey(_short(ten, JPEG2000Lossless, 10, stored, **window))
    assert len(np.unique(seen)) > 80 and seen.std() > 40
    own = grey(_short(ten, JPEG2000Lossless, 10, stored, WindowCenter="512", WindowWidth="1024"))
    assert np.abs(own - EIGHT.astype(int)).max() <= 1


def _table(entries: NDArray[Any], bits: int) -> Sequence:
    item = Dataset()
    item.add_new("LUTDescriptor", "US", [len(entries), 0, bits])
    item.add_new("LUTData", "OW", np.asarray(entries).astype("<u2").tobytes())
    return Sequence([item])


def _curve(top: int) -> NDArray[Any]:
    values = 1 / (1 + np.exp(-(np.arange(4096) - 2000) / 500))
    entries: NDArray[Any] = np.rint(top * values / values[-1])
    return entries


@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
@pytest.mark.parametrize(("bits", "top"), [(16, 4095), (16, 1023), (16, 255), (12, 1000), (14, 4095)])
def test_the_largest_entry_of_a_table_is_white_where_more_bits_are_stated(
    bits: int, top: int, photometric: str
) -> None:
    right = made(TWELVE, VOILUTSequence=_table(_curve(4095), 12), photometric=photometric)
    deeper = made(TWELVE, VOILUTSequence=_table(_curve(top), bits), photometric=photometric)
    assert np.abs(grey(file_of(deeper)).astype(int) - grey(file_of(right))).max() <= 3


def test_a_table_of_more_than_half_of_its_depth_is_read_as_it_is_stated() -> None:
    seen = grey(file_of(made(TWELVE, VOILUTSequence=_table(_curve(2500), 12))))
    assert seen.max() <= 156


@pytest.mark.parametrize("level", [0, 700, 65_535])
def test_a_table_of_one_level_gives_way_to_the_window(level: int) -> None:
    table = _table(np.full(4096, level), 16)
    window: dict[str, Any] = {"WindowCenter": "2000", "WindowWidth": "2400"}
    both = decode_whole(file_of(made(TWELVE, VOILUTSequence=table, **window)))
    alone = file_of(made(TWELVE, **window))
    assert (np.asarray(both.pixels)[..., 0] == grey(alone)).all()
    assert both.levels is not None and not both.levels.unfit
    without = grey(file_of(made(TWELVE)))
    assert (grey(file_of(made(TWELVE, VOILUTSequence=table))) == without).all()


def test_a_window_that_shows_nothing_gives_way_to_the_next() -> None:
    first = made(TWELVE, WindowCenter=["9000", "2000"], WindowWidth=["200", "2400"])
    second = made(TWELVE, WindowCenter="2000", WindowWidth="2400")
    assert (grey(file_of(first)) == grey(file_of(second))).all()


def _bordered(edge: int, marker: int) -> NDArray[np.uint16]:
    large = np.kron(TWELVE, np.ones((4, 4))).astype(np.uint16)
    large[:20] = large[:, -16:] = edge
    large[30:44, 30:60] = marker
    return large


@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
@pytest.mark.parametrize(
    ("edge", "marker", "centre", "width"),
    [(4095, 3700, 3800, 400), (0, 3700, 150, 200), (4095, 4095, 3700, 700), (0, 0, 60_000, 100_000)],
)
def test_a_window_beside_the_tissue_is_not_taken_for_the_sake_of_a_border(
    edge: int, marker: int, centre: int, width: int, photometric: str
) -> None:
    pixels = _bordered(edge, marker)
    window: dict[str, Any] = {"WindowCenter": str(centre), "WindowWidth": str(width)}
    decoded = decode_whole(file_of(made(pixels, photometric=photometric, **window)))
    assert decoded.levels is not None and decoded.levels.unfit
    without = grey(file_of(made(pixels, photometric=photometric)))
    assert (np.asarray(decoded.pixels)[..., 0] == without).all()
    fit = decode_whole(file_of(made(pixels, WindowCenter="2000", WindowWidth="2400")))
    assert fit.levels is not None and not fit.levels.unfit


@pytest.mark.parametrize(("rows", "columns"), [(7, 9), (63, 41)])
@pytest.mark.parametrize("frames", [1, 3])
def test_bytes_in_big_endian_words_are_in_order_for_odd_sizes(rows: int, columns: int, frames: int) -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (frames, rows, columns)).astype(np.uint8)
    image = data_set(pixels[0], photometric="MONOCHROME2", stored=8, NumberOfFrames=str(frames))
    words = np.frombuffer(padded(pixels.tobytes()), "<u2")
    image.PixelData = words.astype(">u2").tobytes()
    image["PixelData"].VR = "OW"
    image.file_meta.TransferSyntaxUID = ExplicitVRBigEndian
    content = file_of(image)
    for frame in range(frames):
        assert (grey(content, frame=frame + 1) == pixels[frame]).all()
