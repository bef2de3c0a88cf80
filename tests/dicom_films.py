"""Drawn radiographs as DICOM files, with made-up names and ids that no answer may show."""

import io
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import (
    DigitalXRayImageStorageForPresentation,
    ExplicitVRLittleEndian,
    generate_uid,
)

# In every name, id and description of a film: what shows one of these has leaked it.
MARKER: Final = "ZZMARKER"
BITS: Final = 12


def uid(*parts: object) -> str:
    """Return the same UID for the same parts."""
    return str(generate_uid(entropy_srcs=[str(part) for part in ("recoquest tests", *parts)]))


def draw(seed: int, rows: int = 64, columns: int = 56) -> NDArray[np.uint16]:
    """Draw a chest of 12 bits; films of different seeds look different."""
    draw = np.random.default_rng(seed)
    y, x = np.mgrid[0:rows, 0:columns] / np.array([rows, columns]).reshape(2, 1, 1)
    body = np.exp(-(((x - 0.5) / 0.42) ** 4 + ((y - 0.5) / 0.48) ** 4))
    lungs = sum(np.exp(-(((x - at) / 0.15) ** 2 + ((y - 0.45) / 0.28) ** 2)) for at in (0.3, 0.7))
    spot_x, spot_y, size = draw.uniform(0.2, 0.8), draw.uniform(0.2, 0.7), draw.uniform(0.04, 0.15)
    spot = np.exp(-(((x - spot_x) / size) ** 2 + ((y - spot_y) / size) ** 2))
    values = 0.8 * body - 0.5 * lungs + 0.5 * spot + 0.02 * draw.standard_normal((rows, columns))
    film: NDArray[np.uint16] = (values.clip(0, 1) * (2**BITS - 1)).astype(np.uint16)
    return film


def make_film(
    number: int,
    *,
    study: int | None = None,
    patient: int | None = None,
    view: str = "PA",
    rows: int = 64,
    columns: int = 56,
    photometric: str = "MONOCHROME2",
    **attributes: Any,
) -> Dataset:
    """Make a film with a file's header, whose UIDs follow from the numbers.

    Args:
        number: Number of the film: its SOP Instance UID and its picture.
        study: Number of its study, as its UID, accession number and time; None: that of the film.
        patient: Number of its patient; None: that of the study.
        view: View position; films of a view are a series of the study.
        rows: Height in pixels.
        columns: Width in pixels.
        photometric: MONOCHROME1 or MONOCHROME2, with the same picture in both.
        attributes: Further DICOM attributes by keyword, which go before those here; None leaves one out.
    """
    study = number if study is None else study
    patient = study if patient is None else patient
    pixels = draw(number, rows, columns)
    if photometric == "MONOCHROME1":
        pixels = (2**BITS - 1 - pixels).astype(np.uint16)
    film = Dataset()
    film.SOPClassUID = DigitalXRayImageStorageForPresentation
    film.SOPInstanceUID = uid("film", number)
    film.StudyInstanceUID = uid("study", study)
    film.SeriesInstanceUID = uid("series", study, view)
    film.PatientID = f"{MARKER}P{patient}"
    film.PatientName = f"{MARKER}^NAME{patient}"
    film.PatientBirthDate = "19600102"
    film.PatientSex = "MF"[patient % 2]
    film.PatientAge = f"{30 + patient % 50:03}Y"
    film.AccessionNumber = f"{MARKER}A{study}"[:16]
    film.StudyID = f"{MARKER}S{study}"[:16]
    film.StudyDate = "20240115"
    film.StudyTime = f"{study // 3600 % 24:02}{study // 60 % 60:02}{study % 60:02}"
    film.ReferringPhysicianName = f"{MARKER}^REFERRER"
    film.InstitutionName = f"{MARKER} HOSPITAL"
    film.StudyDescription = f"{MARKER} CHEST 2 VIEWS"
    film.SeriesDescription = f"{MARKER} {view}"
    film.Modality = "DX"
    film.BodyPartExamined = "CHEST"
    film.ViewPosition = view
    film.Manufacturer = "Synthetic"
    film.SeriesNumber, film.InstanceNumber = 1, number % 10**9
    film.ImageType = ["ORIGINAL", "PRIMARY"]
    film.BurnedInAnnotation = "NO"
    film.SamplesPerPixel = 1
    film.PhotometricInterpretation = photometric
    film.Rows, film.Columns = pixels.shape
    film.BitsAllocated, film.BitsStored, film.HighBit, film.PixelRepresentation = 16, BITS, BITS - 1, 0
    film.ImagerPixelSpacing = [0.5, 0.5]
    film.WindowCenter, film.WindowWidth = str(2 ** (BITS - 1)), str(2**BITS)
    film.RescaleIntercept, film.RescaleSlope, film.RescaleType = "0", "1", "US"
    film.PresentationLUTShape = "INVERSE" if photometric == "MONOCHROME1" else "IDENTITY"
    film.PixelIntensityRelationship, film.PixelIntensityRelationshipSign = "LOG", 1
    film.PixelData = pixels.tobytes()
    film["PixelData"].VR = "OW"
    for keyword, value in attributes.items():
        if value is not None:
            setattr(film, keyword, value)
        elif keyword in film:
            delattr(film, keyword)
    return with_header(film)


def with_header(made: Dataset) -> Dataset:
    """Give a data set the header of a file, in explicit little-endian."""
    made.file_meta = FileMetaDataset()
    made.file_meta.MediaStorageSOPClassUID = made.SOPClassUID
    made.file_meta.MediaStorageSOPInstanceUID = made.SOPInstanceUID
    made.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    return made


def encoded(film: Dataset) -> bytes:
    """Return a film as the bytes of a DICOM file."""
    file = io.BytesIO()
    film.save_as(file, enforce_file_format=True)
    return file.getvalue()
