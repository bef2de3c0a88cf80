"""Samples of DICOM frames, native and in every compression: whole, damaged, and refused with a reason."""

import base64
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
from imagecodecs import jpeg8_encode
from numpy.typing import NDArray
from openjpeg.utils import encode_array
from PIL import Image
from pydicom.dataset import Dataset
from pydicom.uid import (
    HTJ2K,
    MPEG2MPML,
    UID,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    HTJ2KLossless,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGExtended12Bit,
    JPEGLossless,
    JPEGLosslessSV1,
    JPEGLSLossless,
    RLELossless,
)

from tests.dicom_forms import data_set, file_of, film, in_syntax, padded, with_frames
from tests.image_files import encoded
from tests.training.imaging.dicom.pictures import EIGHT, grey, made, ramp, several
from training.common.errors import ImageError, ImageTooLargeError
from training.imaging.images import decode_whole, read_header
from training.imaging.processes import file_decoder
from training.imaging.processes.file_decoder import FileDecoder

# x * 100 + y * y of 24 rows and 32 columns with 12 bits, coded by OpenJPH 0.26.
_HTJ2K: Final = (
    "/0//UQApQAAAAAAgAAAAGAAAAAAAAAAAAAAAIAAAABgAAAAAAAAAAAABDwEB/1AACAACAAAACv9SAAwAAgABAAUEBEAB/1wAEyCIkJCQkJCQ"
    "kJCQkJCQiIiI/2QAFwABT3BlbkpQSCBWZXIgMC4yNi4zLv+QAAoAAAAAAQ4AAf+TwAAmFfgFB3QAwAATQAATAEj+Awd0AFr+Agd0AMAAE8AA"
    "EwAii/wCgnQAra0AQjQAwAAVUAAFoo4dO/6ggjICdgD/f/9/DxUKCuoAAAD3OjG4AMAAFbAABdSAwMDAwMDA54p6cYJ3AP9//3//f/9//we8"
    "A+/AO/AOvAPvwDvw/mBCACCEIAMf16/WXoxqMbEBwAAtaAAF6kBGo9FoNBqNRqPR+Pn+Cnp6enpxAnsA/3//f/9//3//f/9//3//f/9//3//"
    "B7AAC7AAC7AAC7AAC7AAC7AAC7AAC7AA+wEIAIIQgAghCACCEIAMcAAAaAAAGgAABoAAAaKlSpUqVK20Av/Z"
)


@pytest.mark.parametrize("syntax", [HTJ2KLossless, HTJ2K])
def test_high_throughput_jpeg_2000_is_read(syntax: UID) -> None:
    y, x = np.mgrid[0:24, 0:32]
    samples = x * 100 + y * y
    image = made(np.zeros((24, 32), np.uint16), WindowCenter="2048", WindowWidth="4096")
    content = file_of(with_frames(image, syntax, [base64.b64decode(_HTJ2K)]))
    assert np.abs(grey(content) - samples * (255 / 4095)).max() <= 0.51


@pytest.mark.parametrize("syntax", [ExplicitVRLittleEndian, RLELossless])
def test_a_frame_can_be_chosen_and_the_first_is_given(syntax: UID) -> None:
    content = file_of(several(5, syntax))
    assert read_header(content).frames == 5
    assert grey(content)[8, 8] == 10
    assert [grey(content, frame=number)[8, 8] for number in range(1, 6)] == [10, 20, 30, 40, 50]
    for number in (0, 6, -1):
        with pytest.raises(ImageError, match=f"There is no frame {number}: the image has 5"):
            decode_whole(content, frame=number)
    if syntax == RLELossless:
        assert content.endswith(b"\xfe\xff\xdd\xe0\0\0\0\0")
        assert grey(content[:-8], frame=5)[8, 8] == 50
        fewer = several(3, syntax)
        fewer.NumberOfFrames = "2"
        with pytest.raises(ImageError, match="3 fragments, which cannot be told apart into 2 frames"):
            decode_whole(file_of(fewer))


def test_frames_of_one_bit_begin_within_bytes() -> None:
    bits = np.random.default_rng(3).integers(0, 2, (3, 5, 7), dtype=np.uint8)
    image = data_set(bits[0], photometric="MONOCHROME2", stored=1, NumberOfFrames="3")
    image.BitsAllocated = 1
    image.PixelData = np.packbits(bits.ravel(), bitorder="little").tobytes()
    content = file_of(image)
    for number in range(3):
        assert (grey(content, frame=number + 1) == 255 * bits[number]).all()


@pytest.mark.parametrize("shape", [(1, 7, 9), (3, 63, 41)])
def test_bytes_in_big_endian_words_are_in_order_for_odd_sizes(shape: tuple[int, int, int]) -> None:
    pixels = np.random.default_rng(3).integers(0, 256, shape).astype(np.uint8)
    image = data_set(pixels[0], photometric="MONOCHROME2", stored=8, NumberOfFrames=str(shape[0]))
    image.PixelData = np.frombuffer(padded(pixels.tobytes()), "<u2").astype(">u2").tobytes()
    image["PixelData"].VR = "OW"
    image.file_meta.TransferSyntaxUID = ExplicitVRBigEndian
    for frame, expected in enumerate(pixels, 1):
        assert (grey(file_of(image), frame=frame) == expected).all()


def _in_fragments(table: list[int], *, tagged: bool = False) -> bytes:
    """Three JPEG frames of grey 40, 80 and 120, the second in two fragments."""
    frames = [padded(encoded(Image.new("L", (16, 16), level), "JPEG", quality=95)) for level in (40, 80, 120)]
    parts = [frames[0], frames[1][:200], frames[1][200:], frames[2]]
    image = data_set(np.zeros((16, 16), np.uint8), photometric="MONOCHROME2", stored=8, NumberOfFrames="3")
    offsets = np.array(table, "<u4").tobytes()
    items = [b"\xfe\xff\x00\xe0" + len(part).to_bytes(4, "little") + part for part in (offsets, *parts)]
    if tagged:
        starts = np.cumsum([0, *(len(item) for item in items[1:4])])[[0, 1, 3]]
        image.ExtendedOffsetTable = starts.astype("<u8").tobytes()
        image.ExtendedOffsetTableLengths = np.array([len(frame) for frame in frames], "<u8").tobytes()
    image.PixelData = b"".join(items)
    image["PixelData"].VR = "OB"
    image["PixelData"].is_undefined_length = True
    image.file_meta.TransferSyntaxUID = JPEGBaseline8Bit
    return file_of(image)


@pytest.mark.parametrize(
    "table", [[], [0, 1, 2], [0, 0, 0], [4_000_000_000] * 3, [0, 2**31, 8], [0], list(range(50)), None]
)
@pytest.mark.parametrize("tagged", [False, True])
def test_frames_are_found_with_and_without_a_true_table_of_offsets(
    table: list[int] | None, tagged: bool
) -> None:
    if table is None:
        content, starts = _in_fragments([]), list[int]()
        for _ in range(3):
            starts.append(content.index(b"\xff\xd8", starts[-1] + 1 if starts else 0))
        table = [start - starts[0] for start in starts]
    content = _in_fragments(table, tagged=tagged)
    for number, level in enumerate((40, 80, 120), 1):
        assert abs(int(grey(content, frame=number)[8, 8]) - level) <= 1


def test_a_jpeg_without_marks_has_the_colours_that_are_stated() -> None:
    pixels = np.zeros((16, 16, 3), np.uint8)
    pixels[:] = (200, 60, 120)
    jpeg = encoded(Image.fromarray(pixels, "YCbCr"), "JPEG", quality=98, subsampling=0)
    unmarked = jpeg[:2] + jpeg[4 + int.from_bytes(jpeg[4:6]) :]
    assert b"JFIF" in jpeg and b"JFIF" not in unmarked
    shown = tuple(np.asarray(Image.fromarray(pixels, "YCbCr").convert("RGB"))[0, 0].tolist())
    for photometric, content, expected in (
        ("RGB", unmarked, (200, 60, 120)),
        ("YBR_FULL_422", unmarked, shown),
        ("RGB", jpeg, shown),
    ):
        image = data_set(pixels, photometric=photometric, stored=8)
        seen = decode_whole(file_of(with_frames(image, JPEGBaseline8Bit, [content]))).pixels.getpixel((8, 8))
        assert np.abs(np.array(seen) - np.array(expected)).max() <= 3, photometric


def _frame(pixels: NDArray[Any], syntax: UID, bits: int) -> bytes:
    if syntax == JPEGBaseline8Bit:
        return encoded(Image.fromarray(pixels), "JPEG", quality=98)
    if syntax == JPEG2000Lossless:
        return bytes(encode_array(pixels, bits_stored=bits, photometric_interpretation=2, use_mct=False))
    whole = in_syntax(data_set(pixels, photometric="MONOCHROME2", stored=bits), syntax)
    return whole[whole.index(b"\xff\xd8\xff") : whole.rindex(b"\xff\xd9") + 2]


def _short(pixels: NDArray[Any], syntax: UID, bits: int, stored: int, **attributes: Any) -> bytes:
    """A file whose compressed frame has fewer bits than its header says."""
    wide = pixels.astype("i2" if attributes.pop("signed", False) else "u2")
    return file_of(
        with_frames(made(wide, stored, **attributes), syntax, [padded(_frame(pixels, syntax, bits))])
    )


@pytest.mark.parametrize("syntax", [JPEGBaseline8Bit, JPEG2000Lossless, JPEGLSLossless])
@pytest.mark.parametrize("stored", [10, 16])
def test_frames_of_fewer_bits_than_the_header_says_keep_their_levels(syntax: UID, stored: int) -> None:
    # Without the bit of the sign no sample is negative, and signed ones are windowed.
    signed = grey(_short(EIGHT, syntax, 8, stored, signed=True))
    assert np.corrcoef(signed.ravel(), EIGHT.ravel())[0, 1] > 0.99
    plain = grey(_short(EIGHT, syntax, 8, stored))
    assert np.abs(plain - EIGHT.astype(int)).mean() < 2
    inverse = grey(_short(EIGHT, syntax, 8, stored, photometric="MONOCHROME1"))
    assert np.abs(inverse - (255 - EIGHT.astype(int))).mean() < 2
    window = {"WindowCenter": str(1 << stored - 1), "WindowWidth": str(1 << stored)}
    assert len(np.unique(grey(_short(EIGHT, syntax, 8, stored, **window)))) > 90


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
    image = data_set(whole, photometric=photometric, stored=12)
    seen = np.asarray(decode_whole(file_of(image)).pixels, np.int64)
    coded = np.asarray(
        decode_whole(file_of(with_frames(image, syntax, [padded(bytes(stream))]))).pixels, np.int64
    )
    assert np.abs(coded - seen).max() <= (0 if lossless else 2)


def _lossless() -> bytes:
    """One frame of 12 bits; its header, its table and its scan begin at known marks."""
    return _frame(np.rint(film() * 4095).astype("u2"), JPEGLosslessSV1, 12)


def _in_file(stream: bytes, syntax: UID = JPEGLosslessSV1) -> bytes:
    image = data_set(np.zeros(film().shape, "u2"), photometric="MONOCHROME2", stored=12)
    return file_of(with_frames(image, syntax, [stream]))


def test_segments_that_no_pixel_needs_change_nothing() -> None:
    stream = _lossless()
    comment = b"\xff\xfe\0\x08marker"
    tagged = stream[:2] + b"\xff\xe1\0\x08marker" + comment + b"\xff\xff" + stream[2:] + b"\0"
    assert decode_whole(_in_file(tagged)).pixels.tobytes() == decode_whole(_in_file(stream)).pixels.tobytes()


def _damaged() -> dict[str, bytes]:
    stream = _lossless()
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


@pytest.mark.parametrize("damage", _damaged())
def test_a_damaged_frame_is_refused(damage: str) -> None:
    with pytest.raises(ImageError, match=r"^The DICOM image is damaged: its "):
        decode_whole(_in_file(_damaged()[damage]))


def test_a_cut_frame_is_refused() -> None:
    lossy = bytes(jpeg8_encode(np.rint(film() * 4095).astype("u2"), 98, bitspersample=12))
    for stream, syntax in ((_lossless(), JPEGLosslessSV1), (lossy, JPEGExtended12Bit)):
        for part in range(1, 20):
            with pytest.raises(ImageError):
                decode_whole(_in_file(padded(stream[: len(stream) * part // 20]), syntax))


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["enough", "little"])
def test_memory_decides_whether_a_large_frame_is_decoded(
    memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = 7000
    stream = _lossless()
    size = stream.index(b"\xff\xc3") + 5
    image = data_set(np.zeros(film().shape, "u2"), photometric="MONOCHROME2", stored=12)
    large = with_frames(image, JPEGLosslessSV1, [stream[:size] + side.to_bytes(2) * 2 + stream[size + 4 :]])
    large.Rows = large.Columns = side
    monkeypatch.setattr(file_decoder, "_MEMORY_BYTES", (560 if memory == "enough" else 60) << 20)
    with FileDecoder() as decoder:
        if memory == "enough":
            assert decoder.decode(file_of(large)).pixels.size == (side, side)
        else:
            with pytest.raises(ImageTooLargeError, match="takes more memory than the 63 MB that"):
                decoder.decode(file_of(large))


def _without_pixels(**attributes: Any) -> Dataset:
    image = made()
    del image.PixelData
    for keyword, value in attributes.items():
        setattr(image, keyword, value)
    return image


def _of_syntax(uid: str, frame: bytes = bytes(64)) -> Dataset:
    return with_frames(made(), UID(uid), [frame])


def _ten_bits() -> bytes:
    jpeg = bytearray(encoded(Image.new("L", (64, 64)), "JPEG"))
    place = jpeg.index(b"\xff\xc0")
    jpeg[place + 1], jpeg[place + 4] = 0xC1, 10
    return bytes(jpeg)


_LARGE: Final = encoded(Image.new("L", (5000, 5000)), "JPEG")
_REFUSED: dict[str, Callable[[], Dataset]] = {
    "has no pixels: it is Basic Text SR Storage.": lambda: _without_pixels(
        SOPClassUID="1.2.840.10008.5.1.4.1.1.88.11"
    ),
    "has pixels of floating point": lambda: _without_pixels(FloatPixelData=ramp("f4").tobytes()),
    "The image is 64 x 0 pixels": lambda: made(Rows=0),
    "has a photometric interpretation that cannot be read": lambda: made(photometric="HSV"),
    "says that RGB has 1 samples a pixel, where it has 3": lambda: made(photometric="RGB"),
    "says that MONOCHROME2 has 3 samples": lambda: made(SamplesPerPixel=3),
    "has 17 bits up to number 16 in cells of 16": lambda: made(BitsStored=17, HighBit=16),
    "has 12 bits up to number 11 in cells of 12": lambda: made(BitsAllocated=12),
    "has 12 bits up to number 3 in cells of 16": lambda: made(HighBit=3),
    "9 x 64 x 64 pixels take 73,728 bytes; it has 8,192": lambda: made(NumberOfFrames="9"),
    "1 x 64 x 640 pixels take 81,920 bytes; it has 8,192": lambda: made(Rows=640),
    "has a palette in segments or none": lambda: made(photometric="PALETTE COLOR"),
    "has the transfer syntax MPEG2 Main Profile / Main Level, which cannot be read; save it uncompressed or "
    "in JPEG 2000.": lambda: _of_syntax(MPEG2MPML),
    "has the transfer syntax JPIP Referenced, which": lambda: _of_syntax("1.2.840.10008.1.2.4.94"),
    "has the transfer syntax 1.2.3.4, which": lambda: _of_syntax("1.2.3.4"),
    "is coded by lossy JPEG of 10 bits a sample, which cannot be read": lambda: _of_syntax(
        JPEGExtended12Bit, _ten_bits()
    ),
    "its frame has 5000 x 5000 pixels of 1 samples, where 64 x 64 of 1 are stated": lambda: _of_syntax(
        JPEGBaseline8Bit, _LARGE
    ),
    "its frame is JPEG, where JPEG lossless is stated": lambda: _of_syntax(JPEGLossless, _LARGE),
}


@pytest.mark.parametrize("reason", _REFUSED)
def test_what_cannot_be_read_is_refused_with_the_reason(reason: str) -> None:
    with pytest.raises(ImageError) as caught:
        decode_whole(file_of(_REFUSED[reason]()))
    assert reason in str(caught.value)


def test_sizes_are_judged_before_anything_is_decoded() -> None:
    for image, reason in (
        (made(Rows=65_535, Columns=65_535), "4,294.836225 megapixels; the limit is 50 megapixels"),
        (made(NumberOfFrames="2000000"), r"^The DICOM image has over 20,000 frames, the limit\.$"),
    ):
        for read in (read_header, decode_whole):
            with pytest.raises(ImageTooLargeError, match=reason):
                read(file_of(image))
