"""Grey levels of DICOM images by windows, tables and padding; and the marks that files are known by."""

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from pydicom.dataset import Dataset
from pydicom.filebase import DicomBytesIO
from pydicom.filewriter import write_dataset
from pydicom.sequence import Sequence
from pydicom.uid import ImplicitVRLittleEndian

from tests.dicom_forms import data_set, file_of, film, in_syntax
from tests.image_files import encoded
from tests.training.imaging.dicom.pictures import TWELVE, grey, made, ramp, several
from training.clinical.dicom.objects import read_object
from training.common.errors import ImageError
from training.imaging.depth import Levels
from training.imaging.dicom.elements import PIXEL_TAGS
from training.imaging.formats import SIGNATURE_BYTES, is_dicom
from training.imaging.images import decode_whole
from training.imaging.window import Window


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


def test_images_of_one_value_and_padding_that_no_sample_can_be() -> None:
    assert (grey(file_of(made(PixelPaddingValue=65_535))) == grey(file_of(made()))).all()
    assert not grey(file_of(made(np.full((8, 8), 7, np.uint16), PixelPaddingValue=7))).any()
    even = made(np.full((8, 8), 100, np.uint16), WindowCenter="100.5", WindowWidth="201")
    assert set(grey(file_of(even)).ravel()) == {128}


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


def test_frames_of_other_formats_can_be_chosen() -> None:
    frames = [Image.new("L", (4, 4), 50 * number) for number in (1, 2, 3)]
    content = encoded(frames[0], "TIFF", save_all=True, append_images=frames[1:])
    assert [grey(content, frame=number)[0, 0] for number in (1, 2, 3)] == [50, 100, 150]


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
    # More than half of its depth is as it is stated.
    assert grey(file_of(made(TWELVE, VOILUTSequence=_table(_curve(2500), 12)))).max() <= 156


@pytest.mark.parametrize("level", [0, 700, 65_535])
def test_a_table_or_window_that_shows_nothing_gives_way_to_the_next_window(level: int) -> None:
    table = _table(np.full(4096, level), 16)
    window: dict[str, Any] = {"WindowCenter": "2000", "WindowWidth": "2400"}
    both = decode_whole(file_of(made(TWELVE, VOILUTSequence=table, **window)))
    alone = grey(file_of(made(TWELVE, **window)))
    assert (np.asarray(both.pixels)[..., 0] == alone).all()
    assert both.levels is not None and not both.levels.unfit
    without = grey(file_of(made(TWELVE)))
    assert (grey(file_of(made(TWELVE, VOILUTSequence=table))) == without).all()
    first = made(TWELVE, WindowCenter=["9000", "2000"], WindowWidth=["200", "2400"])
    assert (grey(file_of(first)) == alone).all()


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
