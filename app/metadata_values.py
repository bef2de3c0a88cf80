"""Values of the metadata of films, by their kinds."""

from collections.abc import Mapping
from datetime import date
from typing import Final

from training.common.record import MetadataValue

_YEARS_OF_A_BAND: Final = 10
# DICOM's de-identification profile joins all ages from here on.
_OLDEST: Final = 90
_DAY_LENGTH: Final = len("2024-01-15")


def text_of(metadata: Mapping[str, MetadataValue], name: str) -> str | None:
    """Return a field as text; None if it is missing, or not a text."""
    value = metadata.get(name)
    return value if isinstance(value, str) else None


def whole_number_of(metadata: Mapping[str, MetadataValue], name: str) -> int | None:
    """Return a field as an integer; None if it isn't one."""
    value = metadata.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def day_of(metadata: Mapping[str, MetadataValue]) -> date | None:
    """Return the date of a study; None where there is none."""
    text = text_of(metadata, "date")
    try:
        return None if text is None else date.fromisoformat(text[:_DAY_LENGTH])
    except ValueError:
        return None


def age_band(metadata: Mapping[str, MetadataValue]) -> str | None:
    """Return the decade of an age."""
    age = whole_number_of(metadata, "age")
    if age is None or age < 0:
        return None
    if age >= _OLDEST:
        return f"{_OLDEST}+"
    first = age - age % _YEARS_OF_A_BAND
    return f"{first}-{first + _YEARS_OF_A_BAND - 1}"
