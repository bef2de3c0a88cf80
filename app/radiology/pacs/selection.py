"""The films that are wanted of an archive: by modality, part of the body, view and date."""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final

_DIGITS: Final = 16
# The first radiograph was taken in 1895; dates before and after are matched by open ranges.
FIRST_DAY: Final = date(1895, 1, 1)


def dicom_date(day: date) -> str:
    """Return a date as DICOM writes it."""
    return day.strftime("%Y%m%d")


@dataclass(frozen=True, slots=True)
class Selection:
    """Filters; empty ones pass everything.

    Attributes:
        modalities: Such as CR and DX, in upper case.
        body_parts: Such as CHEST, in upper case.
        views: Such as PA, in upper case.
        first: First date of the studies; None: no limit.
        last: Last date of the studies; None: no limit.
    """

    modalities: tuple[str, ...] = ()
    body_parts: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    first: date | None = None
    last: date | None = None

    @property
    def digest(self) -> str:
        """Names the filters of images, dates apart."""
        # Films that were left out when whole values were compared are looked at once more.
        return _digest([self.former_digest, "by words"]) if self.looks_inside else self.former_digest

    @property
    def former_digest(self) -> str:
        """Names the same filters in studies that were last seen when whole values were compared."""
        return _digest([sorted(self.modalities), sorted(self.body_parts), sorted(self.views)])

    @property
    def dated_digest(self) -> str:
        """Names the filters with the dates."""
        return _digest([self.digest, str(self.first), str(self.last)])

    @property
    def is_dated(self) -> bool:
        """True if the filters limit the dates."""
        return self.first is not None or self.last is not None

    @property
    def looks_inside(self) -> bool:
        """True if the filters need attributes that listings of an archive rarely have."""
        return bool(self.body_parts or self.views)

    def includes_day(self, day: str) -> bool:
        """Tell whether a study's date, as DICOM writes it, is among those wanted; "" is no date."""
        if self.first is not None and day < dicom_date(self.first):
            return False
        return self.last is None or "" < day <= dicom_date(self.last)

    def days(self, today: date) -> Iterator[str]:
        """Give every date that is wanted, as DICOM writes it, up to a year from today; only if `is_dated`."""
        day = max(self.first or FIRST_DAY, FIRST_DAY)
        last = min(self.last or date.max, today + timedelta(days=366))
        while day <= last:
            yield dicom_date(day)
            day += timedelta(days=1)

    def takes_modality(self, modality: str) -> bool:
        """Tell whether images of a modality are wanted."""
        return not self.modalities or modality.upper() in self.modalities

    def takes(self, metadata: Mapping[str, Any]) -> bool:
        """Tell whether an image is wanted: all words of a filter are words of its metadata, in any order."""
        asked = (
            (self.modalities, "modality"),
            (self.body_parts, "body_part"),
            (self.views, "view"),
        )
        return all(not wanted or _has_one(str(metadata.get(name, "")), wanted) for wanted, name in asked)


def _has_one(value: str, wanted: Collection[str]) -> bool:
    words = set(value.upper().split())
    return any(words.issuperset(one.split()) for one in wanted)


def _digest(form: list[Any]) -> str:
    return hashlib.sha256(json.dumps(form).encode()).hexdigest()[:_DIGITS]
