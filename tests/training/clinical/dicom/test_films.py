"""Films as they are stored: the same pixels, and nothing that anybody wrote beside them."""

import io
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from pydicom import Dataset, dcmread
from pydicom.encaps import encapsulate, generate_frames
from pydicom.uid import (
    UID,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGLosslessSV1,
    JPEGLSLossless,
    RLELossless,
)

from tests.dicom_colour_forms import COLOUR_FORMS, ColourForm
from tests.dicom_forms import data_set, file_of, film
from tests.dicom_grey_forms import GREY_FORMS, GreyForm
from tests.dicom_markers import commented_j2k, commented_jpeg
from training.clinical.dicom.codestreams import strip_comments
from training.clinical.dicom.films import write_film
from training.common.errors import ImageError
from training.common.record import MetadataValue
from training.imaging.dicom.picture import open_dicom
from training.imaging.dicom.tags import Tag
from training.imaging.images import decode_whole

CLASS: Final = "1.2.840.10008.5.1.4.1.1.1"
MARKER: Final = b"ZZMARKER"
KEYWORDS: Final = frozenset(
    {
        *("SpecificCharacterSet", "SOPClassUID", "SOPInstanceUID", "StudyInstanceUID", "SeriesInstanceUID"),
        *("PatientName", "PatientID", "PatientBirthDate", "PatientSex", "PatientAge", "StudyDate"),
        *(
            "AccessionNumber",
            "Modality",
            "Manufacturer",
            "BodyPartExamined",
            "ViewPosition",
            "ImageLaterality",
        ),
        *("PatientOrientation", "PatientIdentityRemoved", "DeidentificationMethod", "SamplesPerPixel"),
        *("PhotometricInterpretation", "Rows", "Columns", "BitsAllocated", "BitsStored", "HighBit"),
        *("PixelRepresentation", "PixelPaddingValue", "PixelPaddingRangeLimit", "ModalityLUTSequence"),
        *("VOILUTSequence", "PixelData"),
    }
)
METADATA: Final[dict[str, MetadataValue]] = {
    "study": "1.2.1",
    "series": "1.2.2",
    "sop": "1.2.3",
    "patient": "7e4b255c2db22401",
    "accession": "0123456789abcdef",
    "modality": "DX",
    "view": "AP SUPINE PORTABLE",
    "laterality": "L",
    "orientation": "L\\F",
    "age": 65,
    "sex": "M",
    "date": "2023-07-13",
    "body_part": "CHEST",
    "manufacturer": "Müller",
}


def _written(content: bytes, frame: int = 0) -> bytes:
    return write_film(open_dicom(content, 1 << 30, 1 << 28), frame, METADATA, CLASS)


def _pixels(content: bytes, frame: int = 1) -> NDArray[np.uint8]:
    return np.asarray(decode_whole(content, frame=frame).pixels)


def _same_pixels(content: bytes, written: bytes) -> bool:
    return np.array_equal(_pixels(content), _pixels(written))


@pytest.mark.parametrize("form", [*GREY_FORMS, *COLOUR_FORMS], ids=lambda form: form.name)
def test_films_keep_their_pixels(form: GreyForm | ColourForm) -> None:
    content = form.make()
    try:
        decode_whole(content)
    except ImageError:
        pytest.skip("No decoder reads it.")
    assert _same_pixels(content, _written(content))


def test_a_film_has_its_metadata_and_no_other_attribute() -> None:
    film = dcmread(io.BytesIO(_written(GreyForm(modality="table", voi="table", padding="range").make())))
    assert {element.keyword for element in film} == KEYWORDS
    assert [element.keyword for element in film.VOILUTSequence[0]] == ["LUTDescriptor", "LUTData"]
    assert (film.PatientID, film.PatientAge, film.StudyDate) == ("7e4b255c2db22401", "065Y", "20230713")
    assert (film.PatientName, film.PatientBirthDate, film.Manufacturer) == ("", "", "Müller")
    assert (film.ViewPosition, film.PatientOrientation) == ("AP SUPINE", ["L", "F"])
    assert film.preamble == bytes(128)
    assert film.file_meta.ImplementationVersionName == "RECOQUEST"
    assert film.file_meta.MediaStorageSOPInstanceUID == "1.2.3"
    assert film.file_meta.FileMetaInformationGroupLength > 0


def _marked(form: GreyForm) -> bytes:
    """A film with a marker in every place for text, and in bits and bytes that no picture has."""
    film = dcmread(io.BytesIO(form.make()))
    text = MARKER.decode()
    film.PatientName = film.StudyDescription = film.ImageComments = film.WindowCenterWidthExplanation = text
    film.add_new(0x00091001, "LO", text)
    film.add_new(0x60003000, "OB", MARKER)
    item = Dataset()
    item.CodeMeaning = text
    film.AnatomicRegionSequence = [item]
    for sequence in ("VOILUTSequence", "ModalityLUTSequence"):
        for table in film.get(sequence, ()):
            table.LUTExplanation = text
    if not film.file_meta.TransferSyntaxUID.is_compressed:
        film.PixelData = film.PixelData + MARKER
    film.file_meta.SourceApplicationEntityTitle = text
    film.file_meta.ImplementationVersionName = text
    film.preamble = MARKER * 16
    return file_of(film)


@pytest.mark.parametrize(
    "form",
    [
        form
        for form in GREY_FORMS
        if form.syntax in (ExplicitVRLittleEndian, ExplicitVRBigEndian, JPEGLSLossless)
    ],
    ids=lambda form: form.name,
)
def test_no_text_is_left(form: GreyForm) -> None:
    content = _marked(form)
    assert MARKER in content
    written = _written(content)
    assert MARKER not in written
    assert _same_pixels(content, written)


def test_bits_beside_the_samples_are_cleared() -> None:
    film = dcmread(io.BytesIO(GreyForm(stored=12).make()))
    cells = np.frombuffer(film.PixelData, "<u2")
    film.PixelData = (cells | 0x8000).astype("<u2").tobytes()
    written = dcmread(io.BytesIO(_written(file_of(film))))
    assert np.array_equal(np.frombuffer(written.PixelData, "<u2"), cells)


@pytest.mark.parametrize("syntax", [JPEGBaseline8Bit, JPEGLosslessSV1, JPEGLSLossless, JPEG2000Lossless])
def test_comments_in_compressed_frames_are_removed(syntax: UID) -> None:
    depth = 8 if syntax == JPEGBaseline8Bit else 12
    film = dcmread(
        io.BytesIO(GreyForm(syntax=syntax, stored=depth, allocated=8 if depth == 8 else 16).make())
    )
    clean = file_of(film)
    (frame,) = generate_frames(film.PixelData, number_of_frames=1)
    commented = (commented_j2k if syntax == JPEG2000Lossless else commented_jpeg)(frame)
    film.PixelData = encapsulate([commented + bytes(len(commented) % 2)])
    content = file_of(film)
    written = _written(content)
    assert content.count(MARKER) >= 3
    assert MARKER not in written
    assert _same_pixels(clean, written)


@pytest.mark.parametrize("cut", range(2, 400, 7))
def test_cut_frames_are_refused_or_passed_on(cut: int) -> None:
    file = io.BytesIO()
    Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16)).save(file, "JPEG")
    try:
        strip_comments(file.getvalue()[:cut])
    except ImageError:
        assert cut < len(file.getvalue())


def test_bytes_that_no_segment_has_are_refused_and_fill_bytes_go() -> None:
    file = io.BytesIO()
    Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16)).save(file, "JPEG")
    frame = file.getvalue()
    scan = frame.index(b"\xff\xda")
    # A marker without a meaning ends the data of a scan.
    for place, stray in ((scan, b"stray"), (scan, b"\xff\x01stray"), (len(frame) - 2, b"\xff\x01stray")):
        with pytest.raises(ImageError, match="bytes between its segments"):
            strip_comments(frame[:place] + stray + frame[place:])
    assert strip_comments(frame[:scan] + b"\xff\xff" + frame[scan:]) == frame


@pytest.mark.parametrize("length", [1, 5])
def test_a_table_whose_descriptor_is_cut_is_left_out(length: int) -> None:
    table = Dataset()
    table.add_new(Tag.LUT_DESCRIPTOR, "OB", b"\4\0\0\0\x08\0")
    table.add_new(Tag.LUT_DATA, "OW", bytes(8))
    content = file_of(data_set(film().astype(np.uint8), photometric="MONOCHROME2", stored=8))
    cut = dcmread(io.BytesIO(content))
    cut.VOILUTSequence = [table]
    cut["VOILUTSequence"].is_undefined_length = True
    table.is_undefined_length_sequence_item = True
    content = file_of(cut)
    element = b"OB\0\0\6\0\0\0\4\0\0\0\x08\0"
    assert content.count(element) == 1
    content = content.replace(element, b"OB\0\0" + bytes((length, 0, 0, 0)) + element[8 : 8 + length])
    assert "VOILUTSequence" in dcmread(io.BytesIO(_written(content)))


def test_runs_that_end_too_soon_are_refused() -> None:
    whole = GreyForm(syntax=RLELossless).make()
    cut = dcmread(io.BytesIO(whole))
    (frame,) = generate_frames(cut.PixelData, number_of_frames=1)
    cut.PixelData = encapsulate([frame[:-200]])
    with pytest.raises(ImageError, match="runs end too soon"):
        _written(file_of(cut))


def test_a_view_that_fits_is_kept() -> None:
    content = GreyForm().make()
    written = write_film(open_dicom(content, 1 << 30, 1 << 28), 0, {**METADATA, "view": "PA"}, CLASS)
    assert dcmread(io.BytesIO(written)).ViewPosition == "PA"


def test_frames_of_several_become_files_of_their_own() -> None:
    film = dcmread(io.BytesIO(GreyForm().make()))
    cells = np.frombuffer(film.PixelData, "<u2")
    film.PixelData = np.stack([cells, cells[::-1]]).tobytes()
    film.NumberOfFrames = 2
    content = file_of(film)
    for frame in range(2):
        single = _written(content, frame)
        assert np.array_equal(_pixels(single), _pixels(content, frame + 1))
