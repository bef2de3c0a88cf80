"""Texts, dates and ages in DICOM data sets, whatever their value representation says; no log quotes them."""

import datetime
import logging
import re
import struct
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pydicom import Dataset
from pydicom.charset import convert_encodings, decode_bytes
from pydicom.dataelem import DataElement, RawDataElement
from pydicom.errors import BytesLengthException, InvalidDicomError
from pydicom.tag import Tag

# Errors of pydicom at bytes that are no DICOM attributes.
UNREADABLE: Final = (
    *(OSError, EOFError, ValueError, TypeError, LookupError, AttributeError, RecursionError, struct.error),
    *(ArithmeticError, NotImplementedError, InvalidDicomError, BytesLengthException, zlib.error),
)
# Longer values of the attributes that are read here are no values of theirs.
_MOST_BYTES: Final = 1024
_DELIMITERS: Final = set(b"\r\n\t\f\\")
# Spaces, and the zero bytes of files that pad text with them.
_PADDING: Final = " \t\r\n\f\v\0"
_DAY: Final = re.compile(r"(\d{4})([-./]?)(\d{2})\2(\d{2})")
_AGE: Final = re.compile(r"(\d{1,3})\s*([YMWD]?)")
_DAYS: Final = {"Y": 365.25, "M": 30.4375, "W": 7.0, "D": 1.0}
OLDEST: Final = 90
_IMPOSSIBLE: Final = 130
_UID: Final = re.compile(r"[0-9]+(\.[0-9]+)*")
_LONGEST_UID: Final = 64

_MODULES: Final = r"pydicom(\.|$)"


def text_of(dataset: Dataset, keyword: str) -> str:
    """Return an attribute as text without its padding; "" where it has no value that is text."""
    element = _element(dataset, keyword)
    if element is None or element.VR == "SQ":
        return ""
    value = element.value
    if isinstance(value, bytes):
        return _decoded(value, _encodings(dataset)).strip(_PADDING)
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = "\\".join(map(str, value))
    return "" if value is None else str(value)[:_MOST_BYTES].strip(_PADDING)


def values_of(dataset: Dataset, keyword: str) -> list[str]:
    """Return the values of an attribute without their padding; the empty ones are left out."""
    stripped = (value.strip(_PADDING) for value in text_of(dataset, keyword).split("\\"))
    return [value for value in stripped if value]


def items_of(dataset: Dataset, keyword: str) -> Iterator[Dataset]:
    """Give the items of a sequence; none where it is missing, damaged, or not a sequence."""
    try:
        element = dataset.get(Tag(keyword))
    except UNREADABLE:
        return
    if element is not None and element.VR == "SQ":
        yield from element.value or ()


def patient_ids(dataset: Dataset) -> tuple[str, ...]:
    """Return all ids of the patient, Patient ID first."""
    others = (text_of(item, "PatientID") for item in items_of(dataset, "OtherPatientIDsSequence"))
    given = (text_of(dataset, "PatientID"), *values_of(dataset, "OtherPatientIDs"), *others)
    return tuple(dict.fromkeys(filter(None, given)))


def uid_of(dataset: Dataset, keyword: str) -> str:
    """Return a unique identifier; "" where there is none, or none of valid form."""
    uid = text_of(dataset, keyword)
    return uid if len(uid) <= _LONGEST_UID and _UID.fullmatch(uid) else ""


def day_of(dataset: Dataset, keyword: str) -> datetime.date | None:
    """Return a date or the day of a time; dates of 1993's form, 2024.01.31, count."""
    found = _DAY.match(text_of(dataset, keyword))
    if found is None:
        return None
    year, _, month, day = found.groups()
    try:
        return datetime.date(int(year), int(month), int(day))
    except ValueError:
        return None


def age_of(dataset: Dataset, day: datetime.date | None) -> int | None:
    """Return the age in whole years, 90 for 90 and above; None where it is not known.

    Args:
        dataset: Attributes of an image.
        day: Day of the study, for the age by the date of birth.
    """
    years = _stated_age(text_of(dataset, "PatientAge"))
    # Devices write 000Y for "not known".
    if not years and day is not None and (born := day_of(dataset, "PatientBirthDate")) is not None:
        years = day.year - born.year - ((day.month, day.day) < (born.month, born.day))
    if years is None or not 0 <= years <= _IMPOSSIBLE:
        return None
    return min(years, OLDEST)


def _stated_age(text: str) -> int | None:
    found = _AGE.fullmatch(text.upper())
    if found is None:
        return None
    count, unit = found.groups()
    return int(int(count) * _DAYS[unit or "Y"] / _DAYS["Y"] + 1e-9)


def _element(dataset: Dataset, keyword: str) -> DataElement | RawDataElement | None:
    """Return an element as it was read; None where it is missing, or its value cannot be read."""
    try:
        element = dataset.get_item(Tag(keyword))
    except UNREADABLE:
        return None
    return element if isinstance(element, (DataElement, RawDataElement)) else None


def _encodings(dataset: Dataset) -> list[str]:
    element = _element(dataset, "SpecificCharacterSet")
    value = None if element is None else element.value
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    texts = text.split("\\") if isinstance(text, str) else text
    names = list(map(str, texts)) if isinstance(texts, Iterable) else []
    return convert_encodings([name.strip(_PADDING) for name in names])


def _decoded(value: bytes, encodings: list[str]) -> str:
    if len(value) > _MOST_BYTES:
        return ""
    try:
        return decode_bytes(value, encodings, _DELIMITERS)
    except (LookupError, UnicodeError):
        return value.decode("latin-1")


def silence_pydicom() -> None:
    """Turn off pydicom's warnings and log lines in this process; errors are raised as before."""
    logging.getLogger("pydicom").setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", module=_MODULES)
