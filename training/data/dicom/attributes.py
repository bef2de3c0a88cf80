"""The metadata of a DICOM image: what of its attributes a catalogue may hold."""

import datetime
import re
from collections.abc import Iterator
from typing import Final

from pydicom import Dataset

from training.data.dicom.elements import age_of, day_of, items_of, patient_ids, text_of, uid_of, values_of
from training.data.dicom.pseudonyms import keyed_hash, shift_days
from training.data.dicom.silence import silence_pydicom
from training.data.dicom.vocabulary import (
    MODALITIES,
    body_part_in,
    body_part_of_code,
    manufacturer_in,
    view_in,
    view_of_code,
)
from training.data.record import MetadataValue

_UIDS: Final = {"study": "StudyInstanceUID", "series": "SeriesInstanceUID", "sop": "SOPInstanceUID"}
_DATES: Final = ("StudyDate", "SeriesDate", "AcquisitionDate", "AcquisitionDateTime", "ContentDate")
_MODIFIED: Final = "LongitudinalTemporalInformationModified"
_DIRECTION: Final = re.compile(r"[LRAPHF]{1,3}")
_SIDES: Final = {"L": "L", "R": "R", "LEFT": "L", "RIGHT": "R"}
_SIDE_CODES: Final = {"7771000": "L", "24028007": "R", "G-A101": "L", "G-A100": "R"}
_SEXES: Final = ("M", "F", "O")


def read_attributes(dataset: Dataset, *, key: bytes, keep_dates: bool) -> dict[str, MetadataValue]:
    """Return the metadata of an image; attributes without a usable value are left out.

    Args:
        dataset: Attributes of the image; its pixels need not be there.
        key: Secret for the hashes of patient and accession number, and for the shift of dates.
        keep_dates: Keep the date of the study as it is, instead of moving it back by the patient's shift.
    """
    silence_pydicom()
    day = study_day(dataset)
    values: dict[str, MetadataValue | None] = {
        name: uid_of(dataset, keyword) for name, keyword in _UIDS.items()
    }
    values["patient"] = _hashed(dataset, "PatientID", key, "patient")
    hashes = tuple(keyed_hash(key, "patient", own) for own in patient_ids(dataset))
    values["other_patients"] = tuple(own for own in hashes if own != values["patient"])
    values["accession"] = _hashed(dataset, "AccessionNumber", key, "accession")
    values["modality"] = _modality(dataset)
    values["view"] = _view(dataset)
    values["laterality"] = _laterality(dataset)
    values["orientation"] = _orientation(dataset)
    values["sex"] = _one_of(text_of(dataset, "PatientSex").upper()[:1], _SEXES)
    values["date"] = _shown_day(dataset, day, key, keep_dates=keep_dates)
    values["body_part"] = _body_part(dataset)
    values["manufacturer"] = manufacturer_in(text_of(dataset, "Manufacturer"))
    known: dict[str, MetadataValue] = {name: value for name, value in values.items() if value}
    if "date" in known:
        # Somebody else may have shifted it before.
        known["date_shifted"] = not keep_dates or text_of(dataset, _MODIFIED).upper() == "MODIFIED"
    # An age of 0 is known.
    if (age := age_of(dataset, day)) is not None:
        known["age"] = age
    return known


def study_day(dataset: Dataset) -> datetime.date | None:
    """Return the day of the study, else that of the series or the image; None where none is known."""
    days = (day_of(dataset, keyword) for keyword in _DATES)
    return next((day for day in days if day is not None), None)


def _shown_day(dataset: Dataset, day: datetime.date | None, key: bytes, *, keep_dates: bool) -> str | None:
    if day is None or keep_dates:
        return None if day is None else day.isoformat()
    # Without a patient, the images of a study move together.
    patient = text_of(dataset, "PatientID") or text_of(dataset, "StudyInstanceUID")
    try:
        return (day - datetime.timedelta(days=shift_days(key, patient))).isoformat()
    except OverflowError:
        return None


def _hashed(dataset: Dataset, keyword: str, key: bytes, kind: str) -> str | None:
    text = text_of(dataset, keyword)
    return keyed_hash(key, kind, text) if text else None


def _modality(dataset: Dataset) -> str | None:
    return _one_of(text_of(dataset, "Modality").upper(), MODALITIES)


def _view(dataset: Dataset) -> str | None:
    return view_in(text_of(dataset, "ViewPosition")) or view_of_code(_codes(dataset, "ViewCodeSequence"))


def _laterality(dataset: Dataset) -> str | None:
    groups = list(items_of(dataset, "SharedFunctionalGroupsSequence"))
    frames = [item for group in groups for item in items_of(group, "FrameAnatomySequence")]
    texts = [text_of(dataset, "ImageLaterality"), text_of(dataset, "Laterality")]
    texts += [text_of(frame, "FrameLaterality") for frame in frames]
    stated = next((_SIDES[text.upper()] for text in texts if text.upper() in _SIDES), None)
    if stated is not None:
        return stated
    regions = items_of(dataset, "AnatomicRegionSequence")
    codes = [code for item in regions for code in _codes(item, "AnatomicRegionModifierSequence")]
    return next((_SIDE_CODES[code] for code in codes if code in _SIDE_CODES), None)


def _orientation(dataset: Dataset) -> str | None:
    directions = [value.upper() for value in values_of(dataset, "PatientOrientation")]
    if len(directions) != 2 or not all(map(_DIRECTION.fullmatch, directions)):
        return None
    return "\\".join(directions)


def _body_part(dataset: Dataset) -> str | None:
    part = body_part_in(text_of(dataset, "BodyPartExamined"))
    return part or body_part_of_code(_codes(dataset, "AnatomicRegionSequence"))


def _codes(dataset: Dataset, keyword: str) -> Iterator[str]:
    for item in items_of(dataset, keyword):
        yield text_of(item, "CodeValue")


def _one_of(text: str, known: tuple[str, ...] | frozenset[str]) -> str | None:
    return text if text in known else None
