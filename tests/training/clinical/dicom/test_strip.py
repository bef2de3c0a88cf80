"""DICOM images as they are stored: the pixels, and nothing that names anybody."""

import io

import numpy as np
import pydicom
import pytest

from index.writes.intake import stored_form
from tests.dicom_films import MARKER, encoded, make_film
from training.clinical.dicom.attributes import read_attributes
from training.clinical.dicom.films import write_film
from training.clinical.dicom.strip import strip_dicom
from training.common.errors import ImageError
from training.imaging.dicom.picture import open_dicom
from training.imaging.images import decode_whole


@pytest.mark.parametrize("keep_metadata", [False, True])
def test_no_name_is_stored_whatever_the_setting(keep_metadata: bool) -> None:
    film = make_film(1)
    film.add_new(0x0009_0010, "LO", MARKER)
    film.add_new(0x0009_1001, "UN", MARKER.encode())
    content = encoded(film)
    assert content.count(MARKER.encode()) > 5
    stored = stored_form(content, keep_metadata=keep_metadata)
    assert MARKER.encode() not in stored
    kept = pydicom.dcmread(io.BytesIO(stored))
    for keyword in ("StudyInstanceUID", "PatientID", "StudyDate", "InstitutionName"):
        assert not kept.get(keyword)
    assert kept.SOPInstanceUID != film.SOPInstanceUID
    assert stored_form(encoded(make_film(1, patient=9)), keep_metadata=keep_metadata) == stored


def test_a_film_that_an_import_has_written_stays_itself_and_one_that_says_more_does_not() -> None:
    made = make_film(2)
    image = open_dicom(encoded(made), 1 << 20, 1 << 20)
    metadata = read_attributes(made, key=b"secret", keep_dates=False)
    film = write_film(image, 0, metadata, str(made.SOPClassUID))
    assert strip_dicom(film) == film
    for keyword in ("PatientID", "PatientName", "StudyDescription", "AccessionNumber", "ImageComments"):
        forged = pydicom.dcmread(io.BytesIO(film))
        setattr(forged, keyword, f"{MARKER}1")
        stripped = strip_dicom(encoded(forged))
        assert MARKER.encode() not in stripped
        assert decode_whole(stripped).pixels.tobytes() == decode_whole(film).pixels.tobytes()


def test_a_film_that_was_taken_from_quarantine_stays_itself() -> None:
    made = make_film(2)
    image = open_dicom(encoded(made), 1 << 20, 1 << 20)
    metadata = read_attributes(made, key=b"secret", keep_dates=False)
    film = write_film(image, 0, metadata, str(made.SOPClassUID), looked_at=True)
    assert strip_dicom(film) == film


def test_the_first_of_several_frames_is_stored() -> None:
    film = make_film(3, NumberOfFrames="2")
    first = np.frombuffer(film.PixelData, "<u2")
    film.PixelData = np.concatenate((first, first[::-1])).tobytes()
    content = encoded(film)
    stored = strip_dicom(content)
    assert decode_whole(stored).header.frames == 1
    assert decode_whole(stored).pixels.tobytes() == decode_whole(content, frame=1).pixels.tobytes()


def test_a_damaged_image_is_refused() -> None:
    content = encoded(make_film(4))
    for cut in range(200, len(content), 701):
        with pytest.raises(ImageError):
            strip_dicom(content[:cut])
