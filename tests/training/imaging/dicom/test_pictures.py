"""Single rules for DICOM images: frames, windows, padding, marks of files, and what is refused by name."""

import base64
import struct
from collections.abc import Iterator

import numpy as np
import pytest
from PIL import Image
from pydicom.dataset import Dataset
from pydicom.filebase import DicomBytesIO
from pydicom.filewriter import write_dataset
from pydicom.uid import (
    HTJ2K,
    UID,
    ExplicitVRLittleEndian,
    HTJ2KLossless,
    ImplicitVRLittleEndian,
    JPEGBaseline8Bit,
    RLELossless,
)

from tests.dicom_forms import data_set, file_of, film, in_syntax, with_frames
from tests.image_files import encoded
from tests.training.imaging.dicom.pictures import grey, made, ramp, several
from training.clinical.dicom.objects import read_object
from training.common.errors import ImageError
from training.imaging.depth import Levels
from training.imaging.dicom.tags import PIXEL_TAGS
from training.imaging.formats import SIGNATURE_BYTES, is_dicom
from training.imaging.images import decode_whole, read_header
from training.imaging.window import Window

# x * 100 + y * y of 24 rows and 32 columns with 12 bits, coded by OpenJPH 0.26.
_HTJ2K = (
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


def test_16_bits_are_not_cut_before_the_window() -> None:
    # A window of 32 values high up in 16 bits: 8 bits would have none of its steps.
    pixels = (ramp() % 32 + 60_000).astype("u2")
    levels = grey(file_of(made(pixels, 16, WindowCenter="60016", WindowWidth="32")))
    assert len(np.unique(levels)) == 32


def test_a_window_that_is_asked_for_counts_values_behind_the_rescale() -> None:
    content = file_of(made(RescaleSlope="2", RescaleIntercept="-1000", WindowCenter="0", WindowWidth="100"))
    asked = grey(content, window=Window(3000.0, 2000.0))
    expected = np.rint(((ramp() * 2.0 - 1000 - 2000) / 2000).clip(0, 1) * 255)
    assert np.abs(asked - expected).max() <= 1
    assert decode_whole(content, window=Window(3000.0, 2000.0)).levels is None
    assert decode_whole(content).levels == Levels(-1000.0, 7190.0, -50.0, 49.0, Window(-0.5, 99.0))


@pytest.mark.parametrize(
    ("centre", "width"),
    [("100000", "10"), ("-50", "20"), ("100", "0"), ("100", "-5"), ("100", "nan"), ("a b", "c")],
)
def test_a_window_that_shows_nothing_is_ignored(centre: str, width: str) -> None:
    content = file_of(made(WindowCenter="11111111", WindowWidth="22222222"))
    without = file_of(made())
    stated = content.replace(b"11111111", centre.ljust(8).encode()).replace(
        b"22222222", width.ljust(8).encode()
    )
    assert (grey(stated) == grey(without)).all()
    assert np.unique(grey(without)).size == 256


def test_an_even_image_keeps_the_grey_of_its_window() -> None:
    content = file_of(made(np.full((8, 8), 100, np.uint16), WindowCenter="100.5", WindowWidth="201"))
    assert set(grey(content).ravel()) == {128}


def test_8_bits_without_a_window_are_the_grey_levels() -> None:
    pixels = (ramp("u1") // 2 + 20).astype("u1")
    content = file_of(made(pixels, 8))
    assert (grey(content) == pixels).all()
    assert decode_whole(content).levels is None
    assert (grey(file_of(made(pixels, 8, photometric="MONOCHROME1"))) == 255 - pixels).all()


@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
@pytest.mark.parametrize("window", [None, Window(600.0, 800.0)])
def test_padding_is_black_and_has_no_share_in_the_levels(photometric: str, window: Window | None) -> None:
    pixels = np.rint(film() * 1000 + 100).astype(np.uint16)
    pixels[:, :20] = 4095
    padded = file_of(made(pixels, photometric=photometric, PixelPaddingValue=4095))
    levels = decode_whole(padded).levels
    assert levels is not None
    assert levels.largest < 1200
    seen = grey(padded, window=window)
    assert not seen[:, :20].any()
    rest = np.corrcoef(seen[:, 20:].ravel(), film()[:, 20:].ravel())[0, 1]
    assert rest > 0.99 if photometric == "MONOCHROME2" else rest < -0.99


def test_padding_that_no_sample_can_be_is_ignored() -> None:
    without = file_of(made())
    assert (grey(file_of(made(PixelPaddingValue=65_535))) == grey(without)).all()


def test_an_image_of_padding_alone_is_black() -> None:
    assert not grey(file_of(made(np.full((8, 8), 7, np.uint16), PixelPaddingValue=7))).any()


def test_bits_above_those_stored_are_left_out() -> None:
    image = made(WindowCenter="2048", WindowWidth="4096")
    plain = grey(file_of(image))
    # Old devices kept overlays there.
    image.PixelData = (ramp() | 0xA000).astype("u2").tobytes()
    image.add_new(0x6000_0010, "US", 64)
    image.add_new(0x6000_0011, "US", 64)
    image.add_new(0x6000_3000, "OW", bytes([255] * 512))
    assert (grey(file_of(image)) == plain).all()


def test_the_pixels_of_an_icon_are_not_those_of_the_image() -> None:
    image = made(WindowCenter="2048", WindowWidth="4096")
    plain = grey(file_of(image))
    icon = data_set(np.zeros((4, 4), np.uint8), photometric="MONOCHROME2", stored=8)
    del icon.file_meta
    image.IconImageSequence = [icon]
    assert (grey(file_of(image)) == plain).all()
    image["IconImageSequence"].is_undefined_length = True
    assert (grey(file_of(image)) == plain).all()


@pytest.mark.parametrize("syntax", [ExplicitVRLittleEndian, RLELossless])
def test_a_frame_can_be_chosen_and_the_first_is_given(syntax: UID) -> None:
    content = file_of(several(5, syntax))
    assert read_header(content).frames == 5
    assert grey(content)[8, 8] == 10
    assert [grey(content, frame=number)[8, 8] for number in range(1, 6)] == [10, 20, 30, 40, 50]
    for number in (0, 6, -1):
        with pytest.raises(ImageError, match=f"There is no frame {number}: the image has 5"):
            decode_whole(content, frame=number)


def test_frames_of_other_formats_can_be_chosen() -> None:
    frames = [Image.new("L", (4, 4), 50 * number) for number in (1, 2, 3)]
    content = encoded(frames[0], "TIFF", save_all=True, append_images=frames[1:])
    assert [grey(content, frame=number)[0, 0] for number in (1, 2, 3)] == [50, 100, 150]


def test_frames_of_one_bit_begin_within_bytes() -> None:
    bits = np.random.default_rng(3).integers(0, 2, (3, 5, 7), dtype=np.uint8)
    image = data_set(bits[0], photometric="MONOCHROME2", stored=1, NumberOfFrames="3")
    image.BitsAllocated = 1
    image.PixelData = np.packbits(bits.ravel(), bitorder="little").tobytes()
    content = file_of(image)
    for number in range(3):
        assert (grey(content, frame=number + 1) == 255 * bits[number]).all()


def in_fragments(table: list[int], *, tagged: bool = False) -> bytes:
    """Three JPEG frames of grey 40, 80 and 120, the second in two fragments."""
    frames = [encoded(Image.new("L", (16, 16), level), "JPEG", quality=95) for level in (40, 80, 120)]
    frames = [frame + bytes(len(frame) % 2) for frame in frames]
    parts = [frames[0], frames[1][:200], frames[1][200:], frames[2]]
    image = data_set(np.zeros((16, 16), np.uint8), photometric="MONOCHROME2", stored=8, NumberOfFrames="3")
    item = b"\xfe\xff\x00\xe0"
    offsets = np.array(table, "<u4").tobytes()
    items = [item + len(part).to_bytes(4, "little") + part for part in (offsets, *parts)]
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
    "table", [[], [0, 1, 2], [0, 0, 0], [4_000_000_000] * 3, [0, 2**31, 8], [0], list(range(50))]
)
@pytest.mark.parametrize("tagged", [False, True])
def test_frames_are_found_without_a_true_table_of_offsets(table: list[int], tagged: bool) -> None:
    content = in_fragments(table, tagged=tagged)
    for number, level in enumerate((40, 80, 120), 1):
        assert abs(int(grey(content, frame=number)[8, 8]) - level) <= 1


def test_a_true_table_of_offsets_is_followed() -> None:
    content = in_fragments([])
    first = content.index(b"\xff\xd8") - 8
    second = content.index(b"\xff\xd8", first + 10) - 8
    third = content.index(b"\xff\xd8", second + 10) - 8
    for table in ([0, second - first, third - first],):
        assert abs(int(grey(in_fragments(table), frame=3)[8, 8]) - 120) <= 1


def test_frames_in_runs_that_cannot_be_told_apart_are_refused() -> None:
    image = several(3, RLELossless)
    image.NumberOfFrames = "2"
    with pytest.raises(ImageError, match="3 fragments, which cannot be told apart into 2 frames"):
        decode_whole(file_of(image))


def test_functional_groups_of_a_frame_go_before_those_of_all() -> None:
    def group(keyword: str, **attributes: str) -> Dataset:
        inner, outer = Dataset(), Dataset()
        for name, value in attributes.items():
            setattr(inner, name, value)
        setattr(outer, keyword, [inner])
        return outer

    image = several(2)
    image.SharedFunctionalGroupsSequence = [
        group("PixelValueTransformationSequence", RescaleSlope="10", RescaleIntercept="-100")
    ]
    image.PerFrameFunctionalGroupsSequence = [
        group("FrameVOILUTSequence", WindowCenter="0.5", WindowWidth="201"),
        group("FrameVOILUTSequence", WindowCenter="100.5", WindowWidth="401"),
    ]
    for undefined in (False, True):
        image["PerFrameFunctionalGroupsSequence"].is_undefined_length = undefined
        # 10 * 10 - 100 = 0 is in the middle; 20 * 10 - 100 = 100 is so, too.
        content = file_of(image)
        assert [grey(content, frame=number)[8, 8] for number in (1, 2)] == [128, 128]


def test_files_without_a_preamble_or_with_another_syntax_than_stated_are_read() -> None:
    image = made(WindowCenter="2048", WindowWidth="4096")
    content = file_of(image)
    plain = grey(content)
    assert (grey(content[132:]) == plain).all()
    assert (grey(b"II*\0" + content[4:]) == plain).all()
    wrong = content.replace(b"1.2.840.10008.1.2.1\0", b"1.2.840.10008.1.2\0\0\0", 1)
    assert (grey(wrong) == plain).all()
    bare = content[content.index(b"\x08\0\x16\0UI") :]
    assert (grey(bare) == plain).all()
    implicit = in_syntax(made(WindowCenter="2048", WindowWidth="4096"), ImplicitVRLittleEndian)
    mislabelled = implicit.replace(b"1.2.840.10008.1.2\0", b"1.2.840.10008.1.2\x2e\x31", 1)
    assert mislabelled.count(b"1.2.840.10008.1.2\x2e1") and (grey(implicit) == plain).all()


def _bare(image: Dataset, *, implicit: bool, little: bool = True, first: bytes = b"") -> bytes:
    file = DicomBytesIO()
    file.is_little_endian, file.is_implicit_VR = little, implicit
    write_dataset(file, image)
    return first + file.getvalue()


def _old_forms() -> Iterator[tuple[str, bytes]]:
    """Give data sets without preamble and file meta information, with the elements that files begin with."""
    for implicit in (False, True):
        form = "implicit" if implicit else "explicit"
        yield form, _bare(made(), implicit=implicit)
        image = made(SpecificCharacterSet=["ISO_IR 100", "ISO 2022 IR 87"])
        yield f"{form}, character set", _bare(image, implicit=implicit)
        yield f"{form}, image type", _bare(made(ImageType=["ORIGINAL", "PRIMARY"]), implicit=implicit)
        yield f"{form}, day of creation", _bare(made(InstanceCreationDate="20240102"), implicit=implicit)
        length = b"" if implicit else b"UL"
        size = b"\4\0\0\0" if implicit else b"\4\0"
        group = b"\x08\0\0\0" + length + size + b"\x64\0\0\0"
        yield f"{form}, length of the group", _bare(made(), implicit=implicit, first=group)
        old = group + b"\x08\0\1\0" + length + size + b"\0\1\0\0"
        yield f"{form}, length to the end", _bare(made(), implicit=implicit, first=old)
    big = made(PixelData=made().PixelData)
    big.PixelData = np.frombuffer(big.PixelData, "<u2").astype(">u2").tobytes()
    yield "big-endian", _bare(big, implicit=False, little=False)
    big.SpecificCharacterSet = "ISO_IR 100"
    yield "big-endian, character set", _bare(big, implicit=False, little=False)


@pytest.mark.parametrize("content", [pytest.param(content, id=name) for name, content in _old_forms()])
def test_data_sets_without_preamble_and_file_meta_information_are_dicom(content: bytes) -> None:
    assert is_dicom(content) and is_dicom(content[:SIGNATURE_BYTES])
    assert (grey(content) == grey(file_of(made()))).all()
    assert read_object(content, 1 << 20).Rows == 64


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x08\0\5\0",
        b"\x08\0\x16\0" + bytes(range(7, 255)),
        b"\x08\0\x16\0UI" + b"\xff\xff" + bytes(300),
        # Numbers of a file of another kind.
        struct.pack("<8I", 8, 4, 60_000, 3, 4, 5, 6, 7),
        struct.pack("<4I", 2, 4, 9, 9) + bytes(100),
        struct.pack("<4I", 5, 0, 6, 0) + bytes(100),
        b"\0\x08\0\x16\0\0\0\x1a1.2.840.10008.5.1.4.1.1.1\0" + bytes(100),
        b"\x08\0\x20\0DA\x08\x0020240101" + bytes(100),
    ],
)
def test_other_files_are_not_dicom(content: bytes) -> None:
    assert not is_dicom(content)
    with pytest.raises(ImageError, match="not DICOM"):
        read_object(content, 1 << 20)


def test_a_missing_end_of_fragments_is_no_loss() -> None:
    content = file_of(several(2, RLELossless))
    assert content.endswith(b"\xfe\xff\xdd\xe0\0\0\0\0")
    assert grey(content[:-8], frame=2)[8, 8] == 20


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


def test_a_file_of_the_attributes_that_count_has_the_same_pixels() -> None:
    image = made(
        WindowCenter="2000", WindowWidth="3000", PixelPaddingValue=5, RescaleSlope="2", RescaleIntercept="1"
    )
    kept = Dataset()
    kept.file_meta = image.file_meta
    for element in image:
        if int(element.tag) in PIXEL_TAGS:
            kept.add(element)
    assert "PatientName" not in kept
    assert (grey(file_of(kept)) == grey(file_of(image))).all()
