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
    JPEGExtended12Bit,
    JPEGLosslessSV1,
    JPEGLSLossless,
    RLELossless,
)

from index.writes.intake import stored_form
from tests.dicom_colour_forms import COLOUR_FORMS, ColourForm
from tests.dicom_films import encoded, make_film
from tests.dicom_forms import data_set, file_of, film
from tests.dicom_grey_forms import GREY_FORMS, GreyForm
from tests.dicom_markers import commented_j2k, commented_jpeg
from tests.image_files import encoded as encoded_image
from training.clinical.dicom.attributes import read_attributes
from training.clinical.dicom.films import strip_dicom, write_film
from training.common.errors import ImageError
from training.common.record import MetadataValue
from training.imaging.dicom.codestreams import strip_comments
from training.imaging.dicom.elements import Tag
from training.imaging.dicom.picture import DicomImage, open_dicom
from training.imaging.images import decode_whole

CLASS: Final = "1.2.840.10008.5.1.4.1.1.1"
MARKER: Final = "ZZMARKER"
KEYWORDS: Final = (
    "SpecificCharacterSet SOPClassUID SOPInstanceUID StudyInstanceUID SeriesInstanceUID PatientName "
    "PatientID PatientBirthDate PatientSex PatientAge StudyDate AccessionNumber Modality Manufacturer "
    "BodyPartExamined ViewPosition ImageLaterality PatientOrientation PatientIdentityRemoved "
    "DeidentificationMethod Rows Columns SamplesPerPixel PhotometricInterpretation BitsAllocated "
    "BitsStored HighBit PixelRepresentation PixelPaddingValue PixelPaddingRangeLimit ModalityLUTSequence "
    "VOILUTSequence PixelData"
)
METADATA: Final[dict[str, MetadataValue]] = {
    **{"study": "1.2.1", "series": "1.2.2", "sop": "1.2.3", "patient": "7e4b255c2db22401"},
    **{"accession": "0123456789abcdef", "modality": "DX", "view": "AP SUPINE PORTABLE", "laterality": "L"},
    **{"orientation": "L\\F", "age": 65, "sex": "M", "date": "2023-07-13", "body_part": "CHEST"},
    "manufacturer": "Müller",
}


def _opened(content: bytes) -> DicomImage:
    return open_dicom(content, 1 << 30, 1 << 28)


def _written(content: bytes, frame: int = 0) -> bytes:
    return write_film(_opened(content), frame, METADATA, CLASS)


def _pixels(content: bytes, frame: int = 1) -> NDArray[np.uint8]:
    return np.asarray(decode_whole(content, frame=frame).pixels)


def _same_pixels(content: bytes, written: bytes) -> bool:
    return np.array_equal(_pixels(content), _pixels(written))


@pytest.mark.parametrize("form", [*GREY_FORMS, *COLOUR_FORMS], ids=lambda form: form.name)
def test_films_keep_their_pixels(form: GreyForm | ColourForm) -> None:
    content = form.make()
    assert _same_pixels(content, _written(content))


def test_a_film_has_its_metadata_and_no_other_attribute() -> None:
    content = GreyForm(modality="table", voi="table", padding="range").make()
    written = dcmread(io.BytesIO(_written(content)))
    assert {element.keyword for element in written} == set(KEYWORDS.split())
    assert [element.keyword for element in written.VOILUTSequence[0]] == ["LUTDescriptor", "LUTData"]
    assert (written.PatientID, written.PatientAge, written.StudyDate) == (
        "7e4b255c2db22401",
        "065Y",
        "20230713",
    )
    assert (written.PatientName, written.PatientBirthDate, written.Manufacturer) == ("", "", "Müller")
    assert written.PatientOrientation == ["L", "F"]
    assert written.preamble == bytes(128)
    assert written.file_meta.ImplementationVersionName == "RECOQUEST"
    assert written.file_meta.MediaStorageSOPInstanceUID == "1.2.3"
    assert written.file_meta.FileMetaInformationGroupLength > 0
    fitting = write_film(_opened(content), 0, {**METADATA, "view": "PA"}, CLASS)
    assert dcmread(io.BytesIO(fitting)).ViewPosition == "PA"


def _marked(form: GreyForm) -> bytes:
    """A film with a marker in every place for text, and in bits and bytes that no picture has."""
    marked = dcmread(io.BytesIO(form.make()))
    marked.PatientName = marked.StudyDescription = marked.ImageComments = MARKER
    marked.WindowCenterWidthExplanation = MARKER
    marked.add_new(0x00091001, "LO", MARKER)
    marked.add_new(0x60003000, "OB", MARKER.encode())
    item = Dataset()
    item.CodeMeaning = MARKER
    marked.AnatomicRegionSequence = [item]
    for sequence in ("VOILUTSequence", "ModalityLUTSequence"):
        for table in marked.get(sequence, ()):
            table.LUTExplanation = MARKER
    if not marked.file_meta.TransferSyntaxUID.is_compressed:
        marked.PixelData = marked.PixelData + MARKER.encode()
    marked.file_meta.SourceApplicationEntityTitle = MARKER
    marked.file_meta.ImplementationVersionName = MARKER
    marked.preamble = MARKER.encode() * 16
    return file_of(marked)


_PLAIN: Final = (ExplicitVRLittleEndian, ExplicitVRBigEndian, JPEGLSLossless)


@pytest.mark.parametrize(
    "form", [form for form in GREY_FORMS if form.syntax in _PLAIN], ids=lambda form: form.name
)
def test_no_text_is_left(form: GreyForm) -> None:
    content = _marked(form)
    assert MARKER.encode() in content
    written = _written(content)
    assert MARKER.encode() not in written
    assert _same_pixels(content, written)


def test_bits_beside_the_samples_are_cleared() -> None:
    made = dcmread(io.BytesIO(GreyForm(stored=12).make()))
    cells = np.frombuffer(made.PixelData, "<u2")
    made.PixelData = (cells | 0x8000).astype("<u2").tobytes()
    written = dcmread(io.BytesIO(_written(file_of(made))))
    assert np.array_equal(np.frombuffer(written.PixelData, "<u2"), cells)


@pytest.mark.parametrize(
    "syntax", [JPEGBaseline8Bit, JPEGExtended12Bit, JPEGLosslessSV1, JPEGLSLossless, JPEG2000Lossless]
)
def test_comments_in_compressed_frames_are_removed(syntax: UID) -> None:
    depth = 8 if syntax in (JPEGBaseline8Bit, JPEGExtended12Bit) else 12
    form = GreyForm(syntax=syntax, stored=depth, allocated=8 if depth == 8 else 16)
    made = dcmread(io.BytesIO(form.make()))
    clean = file_of(made)
    (frame,) = generate_frames(made.PixelData, number_of_frames=1)
    commented = (commented_j2k if syntax == JPEG2000Lossless else commented_jpeg)(frame)
    made.PixelData = encapsulate([commented + bytes(len(commented) % 2)])
    content = file_of(made)
    written = _written(content)
    assert content.count(MARKER.encode()) >= 3
    assert MARKER.encode() not in written
    assert _same_pixels(clean, written)


def test_frames_that_cannot_be_followed_are_refused_and_fill_bytes_go() -> None:
    frame = encoded_image(Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16)), "JPEG")
    for cut in range(2, len(frame) + 7, 7):
        try:
            strip_comments(frame[:cut])
        except ImageError:
            assert cut < len(frame)
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
    made = dcmread(
        io.BytesIO(file_of(data_set(film().astype(np.uint8), photometric="MONOCHROME2", stored=8)))
    )
    made.VOILUTSequence = [table]
    made["VOILUTSequence"].is_undefined_length = True
    table.is_undefined_length_sequence_item = True
    content = file_of(made)
    element = b"OB\0\0\6\0\0\0\4\0\0\0\x08\0"
    assert content.count(element) == 1
    content = content.replace(element, b"OB\0\0" + bytes((length, 0, 0, 0)) + element[8 : 8 + length])
    assert "VOILUTSequence" in dcmread(io.BytesIO(_written(content)))


def test_runs_that_end_too_soon_are_refused() -> None:
    cut = dcmread(io.BytesIO(GreyForm(syntax=RLELossless).make()))
    (frame,) = generate_frames(cut.PixelData, number_of_frames=1)
    cut.PixelData = encapsulate([frame[:-200]])
    with pytest.raises(ImageError, match="runs end too soon"):
        _written(file_of(cut))


def test_frames_of_several_become_files_of_their_own_and_the_first_is_stored() -> None:
    made = dcmread(io.BytesIO(GreyForm().make()))
    cells = np.frombuffer(made.PixelData, "<u2")
    made.PixelData = np.stack([cells, cells[::-1]]).tobytes()
    made.NumberOfFrames = 2
    content = file_of(made)
    for frame in range(2):
        assert np.array_equal(_pixels(_written(content, frame)), _pixels(content, frame + 1))
    stored = strip_dicom(content)
    assert decode_whole(stored).header.frames == 1
    assert _same_pixels(content, stored)


@pytest.mark.parametrize("keep_metadata", [False, True])
def test_no_name_is_stored_whatever_the_setting(keep_metadata: bool) -> None:
    made = make_film(1)
    made.add_new(0x0009_0010, "LO", MARKER)
    made.add_new(0x0009_1001, "UN", MARKER.encode())
    content = encoded(made)
    assert content.count(MARKER.encode()) > 5
    stored = stored_form(content, keep_metadata=keep_metadata)
    assert MARKER.encode() not in stored
    kept = dcmread(io.BytesIO(stored))
    for keyword in ("StudyInstanceUID", "PatientID", "StudyDate", "InstitutionName"):
        assert not kept.get(keyword)
    assert kept.SOPInstanceUID != made.SOPInstanceUID
    assert stored_form(encoded(make_film(1, patient=9)), keep_metadata=keep_metadata) == stored


@pytest.mark.parametrize("looked_at", [False, True])
def test_a_film_that_was_written_stays_itself_and_one_that_says_more_does_not(looked_at: bool) -> None:
    made = make_film(2)
    metadata = read_attributes(made, key=b"secret", keep_dates=False)
    written = write_film(_opened(encoded(made)), 0, metadata, str(made.SOPClassUID), looked_at=looked_at)
    assert strip_dicom(written) == written
    for keyword in ("PatientID", "PatientName", "StudyDescription", "AccessionNumber", "ImageComments"):
        forged = dcmread(io.BytesIO(written))
        setattr(forged, keyword, f"{MARKER}1")
        stripped = strip_dicom(encoded(forged))
        assert MARKER.encode() not in stripped
        assert _same_pixels(written, stripped)


def test_a_damaged_image_is_not_stored() -> None:
    content = encoded(make_film(4))
    for cut in range(200, len(content), 701):
        with pytest.raises(ImageError):
            strip_dicom(content[:cut])
