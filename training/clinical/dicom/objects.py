"""DICOM objects as they come: their header, which of them are films, and which a person has to look at."""

import io
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from pydicom import Dataset, dcmread
from pydicom.uid import UID

from training.clinical.dicom.attributes import (
    MODALITIES,
    UNREADABLE,
    silence_pydicom,
    text_of,
    uid_of,
    values_of,
)
from training.common.errors import ImageError
from training.imaging.dicom.elements import open_file

DIRECTORY: Final = "1.2.840.10008.1.3.10"
# Manufacturer of the objects that recoquest writes to archives.
MANUFACTURER: Final = "recoquest"
_CLASSES: Final = "1.2.840.10008.5.1.4.1.1."
# Computed and digital radiography, mammography, intra-oral, angiography and fluoroscopy, enhanced and not.
_FILMS: Final = tuple(
    _CLASSES + one for one in ("1", "1.1", "1.2", "1.3", "12.1", "12.1.1", "12.2", "12.2.1")
)
_RAW: Final = tuple(_CLASSES + one for one in ("1.1.1", "1.2.1", "1.3.1"))
_SECONDARY: Final = tuple(_CLASSES + one for one in ("7", "7.1", "7.2", "7.3", "7.4"))
_FILM_MODALITIES: Final = frozenset({"CR", "DX", "MG", "IO", "PX", "RG", "RF", "XA"})
# Modalities of pictures that were made of others, or of paper.
_CAPTURES: Final = frozenset({"OT", "SC", "DOC", "PR", "KO", "SR"})
_KEYWORDS: Final = (
    "SpecificCharacterSet ImageType SOPClassUID SOPInstanceUID StudyDate SeriesDate AcquisitionDate "
    "AcquisitionDateTime ContentDate AccessionNumber Modality ConversionType Manufacturer "
    "AnatomicRegionSequence PatientID PatientBirthDate PatientSex PatientAge BodyPartExamined ViewPosition "
    "StudyInstanceUID SeriesInstanceUID PatientOrientation Laterality ImageLaterality BurnedInAnnotation "
    "ViewCodeSequence SharedFunctionalGroupsSequence Rows OtherPatientIDs OtherPatientIDsSequence "
    "LongitudinalTemporalInformationModified"
)
# What published data sets leave in the file meta information alone.
_IN_META: Final = ("SOPClassUID", "SOPInstanceUID")


@dataclass(frozen=True, slots=True)
class Kind:
    """Verdict on an object: its kind if it is left out, why it is quarantined, or neither for a film."""

    left_out: str = ""
    quarantined: str = ""


def read_object(content: bytes, max_bytes: int) -> Dataset:
    """Read the attributes of an object that metadata and its kind follow from, without its pixels.

    Raises:
        ImageTooLargeError: It has more elements than an image, or inflates to more bytes than the limit.
        ImageError: It is no DICOM file, or is damaged.
    """
    silence_pydicom()
    # Lengths, nesting and inflated size are judged before pydicom follows them.
    open_file(content, max_bytes)
    try:
        dataset = dcmread(
            io.BytesIO(content), force=True, stop_before_pixels=True, specific_tags=_KEYWORDS.split()
        )
        for keyword in _IN_META:
            if not uid_of(dataset, keyword) and (uid := uid_of(dataset.file_meta, f"MediaStorage{keyword}")):
                setattr(dataset, keyword, uid)
        return dataset
    except UNREADABLE:
        raise ImageError("The DICOM file is damaged: its attributes cannot be read.") from None


def kind_of(dataset: Dataset, modalities: Collection[str] = ()) -> Kind:
    """Tell whether an object is a film or of one of the modalities such as CT, left out, or quarantined."""
    sop_class, modality = uid_of(dataset, "SOPClassUID"), text_of(dataset, "Modality").upper()
    is_secondary = sop_class in _SECONDARY
    if is_result(dataset):
        return Kind("results of searches that recoquest wrote")
    if not sop_class and not modality and text_of(dataset, "Rows"):
        return Kind(quarantined="neither SOP class nor modality is stated")
    if sop_class in _RAW:
        return Kind("films for processing, whose films for presentation are taken")
    if not is_secondary and sop_class not in _FILMS and modality not in modalities:
        name = UID(sop_class).name
        # The name of a class is taken from the standard; that of a file never is.
        known = "an unknown SOP class" if name == sop_class else name
        way_out = f": --modality {modality} takes them" if modality in MODALITIES - _CAPTURES else ""
        return Kind(f"objects of {known}{way_out}")
    if is_secondary and modality in MODALITIES - _FILM_MODALITIES - _CAPTURES - set(modalities):
        return Kind(f"secondary captures of {modality}")
    types = [value.upper() for value in values_of(dataset, "ImageType")]
    doubts = {
        "BurnedInAnnotation is YES": text_of(dataset, "BurnedInAnnotation").upper().startswith("Y"),
        "ImageType says that it is a screen save": any("SCREEN" in value for value in types),
        "secondary capture": is_secondary,
        "ConversionType says that it was captured or digitized": bool(text_of(dataset, "ConversionType")),
        f"modality {modality}": modality in _CAPTURES,
        "ImageType is SECONDARY": "SECONDARY" in types[1:2],
    }
    return Kind(quarantined=next((doubt for doubt, true in doubts.items() if true), ""))


def is_result(dataset: Dataset) -> bool:
    """Tell whether recoquest wrote an object, as a result of a search."""
    return text_of(dataset, "Manufacturer").lower() == MANUFACTURER
