"""The studies of an archive that are wanted, and their instances: listed whole, or by a feed of changes."""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cache
from typing import Any, Final

from pydicom import Dataset

from app.radiology.archive import Archive, ArchiveError, items, number, text, values

_DIGITS: Final = 16
# The first radiograph was taken in 1895; dates before and after are matched by open ranges.
FIRST_DAY: Final = date(1895, 1, 1)
PAGE: Final = 500
# Smaller answers were not cut by any archive's limit that is known; a test archive may have a smaller one.
_SMALLEST_CAP: Final = 5
_SECONDS: Final = 24 * 60 * 60
_MOST_PAGES: Final = 100_000
_LIMIT: Final = 1000
_MOST_INSTANCE_PAGES: Final = 1000
_SOP, _SOP_CLASS, _MODALITY, _SERIES = "00080018", "00080016", "00080060", "0020000E"
_TAGS: Final = {"study": "0020000D", "date": "00080020", "count": "00201208", "modalities": "00080061"}
_INCLUDED: Final[Mapping[str, Sequence[str]]] = {"includefield": [_TAGS["count"], _TAGS["modalities"]]}
_PAGE: Final = 1000
_MOST_CHANGES: Final = 1_000_000
_CHANGED: Final = frozenset(
    ("NewInstance", "NewSeries", "NewStudy", "StableSeries", "StableStudy", "UpdatedAttachment")
)
_LEVELS: Final = {"Instance": "instances", "Series": "series", "Study": "studies"}


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
    """

    modalities: tuple[str, ...] = ()
    body_parts: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    first: date | None = None
    last: date | None = None

    @property
    def digest(self) -> str:
        """Names the filters of images, dates apart."""
        filters = _digest([sorted(self.modalities), sorted(self.body_parts), sorted(self.views)])
        return _digest([filters, "by words"]) if self.looks_inside else filters

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
        """Return whether a study's date, as DICOM writes it, is among those wanted; "" is no date."""
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
        """Return whether images of a modality are wanted."""
        return not self.modalities or modality.upper() in self.modalities

    def takes(self, metadata: Mapping[str, Any]) -> bool:
        """Return whether an image matches: all words of a filter are words of its metadata, in any order."""
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


@dataclass(frozen=True, slots=True)
class ListedStudy:
    """A study as the archive lists it.

    Attributes:
        day: Date as DICOM writes it; "": none.
        count: Number of its instances; None: the archive does not tell.
        modalities: Modalities of its series; empty: the archive does not tell.
    """

    uid: str
    day: str
    count: int | None
    modalities: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Window:
    """Dates, or seconds of one date; None: no limit."""

    first: date | None = None
    last: date | None = None
    seconds: tuple[int, int] | None = None

    def params(self) -> dict[str, Sequence[str]]:
        found: dict[str, Sequence[str]] = {}
        if self.first is not None and self.first == self.last:
            found["StudyDate"] = [dicom_date(self.first)]
        elif self.first is not None or self.last is not None:
            ends = (self.first and dicom_date(self.first), self.last and dicom_date(self.last))
            found["StudyDate"] = ["-".join(end or "" for end in ends)]
        if self.seconds is not None:
            first, last = self.seconds
            found["StudyTime"] = [f"{_clock(first)}-{_clock(last)}.999999"]
        return found

    def halves(self, today: date) -> "tuple[_Window, _Window] | None":
        """Split the window in two by date, a single date by time; None: the window cannot be split."""
        if self.first is None or self.first != self.last:
            low, high = self.first or FIRST_DAY, self.last or today + timedelta(days=1)
            if low >= high:
                return None
            middle = low + (high - low) // 2
            # The ends stay open: there are studies of dates that cannot be.
            return replace(self, last=middle), replace(self, first=middle + timedelta(days=1))
        begin, end = self.seconds or (0, _SECONDS - 1)
        if begin == end:
            return None
        noon = (begin + end) // 2
        return replace(self, seconds=(begin, noon)), replace(self, seconds=(noon + 1, end))


def _clock(second: int) -> str:
    return f"{second // 3600:02}{second // 60 % 60:02}{second % 60:02}"


class StudyList:
    """Lists studies.

    Attributes:
        doubts: Sentences on studies that the last listing may lack.
    """

    def __init__(self, archive: Archive, selection: Selection) -> None:
        self.doubts: list[str] = []
        self._archive = archive
        self._selection = selection
        # Studies of the largest answer so far.
        self._largest = 0

    def all(self, today: date, expected: int | None = None) -> dict[str, ListedStudy]:
        """Return the studies by UID.

        Args:
            today: Today's date: where listings are cut, they are split between the first radiograph and it.
            expected: Number of studies after which a listing is whole; None: it is not known.

        Raises:
            ArchiveError: The archive does not answer, or says that it does not list all studies of a second.
        """
        found: dict[str, ListedStudy] = {}
        self.doubts.clear()

        def collect(window: _Window, modality: str | None) -> set[str]:
            """Add the studies of a window, in halves where the archive cuts them, and return their UIDs."""
            if expected is not None and len(found) >= expected:
                return set()
            listed, is_whole = self._window(window, modality)
            found.update(listed)
            halves = None if is_whole else window.halves(today)
            parts = [uid for half in halves or () for uid in collect(half, modality)]
            if not is_whole and halves is None:
                if is_whole is False:
                    raise ArchiveError(
                        f"The archive lists {len(listed):,} studies of the same time and has more: raise the "
                        "limit of its answers."
                    )
                self._doubt(len(listed), "of the same time")
            # Those without a time are in no part of their day.
            untimed = listed.keys() - parts if halves and halves[0].seconds and not window.seconds else ()
            if len(untimed) >= _SMALLEST_CAP:
                self._doubt(len(untimed), "of a day without a time")
            return listed.keys() | parts

        for modality in self._selection.modalities or (None,):
            collect(_Window(self._selection.first, self._selection.last), modality)
        return found

    def _doubt(self, count: int, which: str) -> None:
        self.doubts.append(
            f"The archive lists {count:,} studies {which} and may have more, as it may cut its answers: "
            "raise their limit, or compare the number of its studies."
        )

    def one(self, uid: str) -> ListedStudy | None:
        """Return a study; None: the archive has none of this UID, or none that is wanted."""
        study = self._find(uid)
        if study is None or not self._selection.includes_day(study.day):
            return None
        wanted = not study.modalities or any(map(self._selection.takes_modality, study.modalities))
        return study if wanted else None

    def has(self, uid: str) -> bool:
        """Return whether the archive has a study."""
        return self._find(uid) is not None

    def _find(self, uid: str) -> ListedStudy | None:
        answer = self._archive.get_json("studies", {"StudyInstanceUID": [uid], **_INCLUDED})
        return next((study for study in _studies(answer.value) if study.uid == uid), None)

    def _window(self, window: _Window, modality: str | None) -> tuple[dict[str, ListedStudy], bool | None]:
        """List a window; also tell whether that is all of it, as far as can be known."""
        found: dict[str, ListedStudy] = {}
        params = {**window.params(), **_INCLUDED}
        if modality is not None:
            params["ModalitiesInStudy"] = [modality]
        has_more = heeds_offsets = False
        for page in range(_MOST_PAGES):
            place = {"limit": [str(PAGE)], "offset": [str(len(found))]}
            try:
                answer = self._archive.get_json("studies", {**params, **place})
            except ArchiveError as error:
                # Some archives refuse an offset.
                if page and error.status is not None and 400 <= error.status < 500:
                    break
                raise
            listed = {study.uid: study for study in _studies(answer.value)}
            if not listed.keys() - found.keys():
                # An archive that ignores offsets answers with the first page again.
                heeds_offsets = not listed
                has_more = has_more if heeds_offsets else answer.partial
                break
            found |= listed
            has_more = answer.partial
        else:
            return found, False
        # Orthanc cuts without a word what exceeds its LimitFindResults, over all pages. So an answer is known
        # to be whole where a larger one was given, and the largest is compared with its halves.
        if has_more or (not heeds_offsets and len(found) >= PAGE):
            return found, False
        if len(found) < max(_SMALLEST_CAP, self._largest):
            return found, True
        self._largest = len(found)
        return found, None


def _studies(value: Any) -> Iterator[ListedStudy]:
    for item in items(value):
        uid = text(item, _TAGS["study"])
        if uid:
            modalities = tuple(str(found).strip().upper() for found in values(item, _TAGS["modalities"]))
            yield ListedStudy(uid, text(item, _TAGS["date"]), number(item, _TAGS["count"]), modalities)


@dataclass(frozen=True, slots=True)
class ListedInstance:
    """An instance as the archive lists it.

    Attributes:
        sop_class: SOP Class UID; "": the archive does not tell.
        modality: Modality; "": the archive does not tell.
        attributes: All attributes without pixels; None: they were not asked for.
    """

    sop: str
    series: str
    sop_class: str
    modality: str
    attributes: Dataset | None


def list_instances(archive: Archive, study: ListedStudy, *, with_attributes: bool) -> list[ListedInstance]:
    """Return all instances of a study; none where the archive has no such study."""
    found: dict[str, ListedInstance] = {}
    if not with_attributes:
        for _ in range(_MOST_INSTANCE_PAGES):
            place = {"limit": [str(_LIMIT)], "offset": [str(len(found))]}
            included = {"includefield": [_SOP_CLASS, _MODALITY]}
            answer = archive.get_json(f"studies/{study.uid}/instances", {**place, **included})
            listed = _instances(answer.value, with_attributes=False)
            if not listed.keys() - found.keys():
                break
            found |= listed
            if study.count is not None and len(found) >= study.count:
                # One request more would cost the archive as much again.
                break
        if study.count is None or len(found) >= study.count:
            return list(found.values())
    # A limit of the archive may have cut the list; metadata have no such limit.
    try:
        answer = archive.get_json(f"studies/{study.uid}/metadata")
    except ArchiveError as error:
        if error.status == 404:
            return []
        raise
    return list(_instances(answer.value, with_attributes=True).values())


def _instances(value: Any, *, with_attributes: bool) -> dict[str, ListedInstance]:
    found = {}
    for item in items(value):
        attributes = None
        # Attributes that cannot be read here are read from the file, then.
        with suppress(TypeError, ValueError, KeyError, AttributeError):
            if with_attributes:
                # Bulk data is only referred to, and never fetched.
                attributes = Dataset.from_json(dict(item), bulk_data_uri_handler=lambda *_: None)
        sop, series = text(item, _SOP), text(item, _SERIES)
        modality = text(item, _MODALITY).upper()
        found[sop] = ListedInstance(sop, series, text(item, _SOP_CLASS), modality, attributes)
    found.pop("", None)
    return found


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes since some place of the feed.

    Attributes:
        studies: UIDs of the studies that changed and are still there, each with the UIDs of its instances
            that came in.
    """

    last: int
    arrived: int
    studies: Mapping[str, frozenset[str]]


class OrthancFeed:
    """Reads the changes of an Orthanc, whose own interface is beside its DICOMweb.

    The feed has no deletions, which show in the number of instances.
    """

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    @classmethod
    def connect(cls, archive: Archive) -> "OrthancFeed | None":
        """Return the feed of an archive; None: it is no Orthanc, or does not show its own interface."""
        try:
            system = archive.get_json("../system").value
            feed = cls(archive)
            if not isinstance(system, dict) or "ApiVersion" not in system:
                return None
            feed.last()
            feed.count("CountInstances")
        except ArchiveError as error:
            if error.status is None:
                raise
            return None
        return feed

    def last(self) -> int:
        """Return the number of the last change."""
        return _number(self._archive.get_json("../changes", {"last": [""]}).value, "Last")

    def count(self, kind: str) -> int:
        """Return the number of instances or studies of the archive: CountInstances, CountStudies."""
        return _number(self._archive.get_json("../statistics").value, kind)

    def since(self, change: int) -> Changes:
        """Return what has changed after a change."""
        arrived, last = 0, change
        touched: dict[str, None] = {}
        for _ in range(_MOST_CHANGES):
            page = self._archive.get_json("../changes", {"since": [str(last)], "limit": [str(_PAGE)]}).value
            listed = page.get("Changes") if isinstance(page, dict) else None
            if not isinstance(listed, list):
                raise _other_form()
            for event in listed:
                kind, level = str(event.get("ChangeType")), _LEVELS.get(str(event.get("ResourceType")))
                if level is not None and kind in _CHANGED:
                    arrived += kind == "NewInstance"
                    touched[f"{level}/{event.get('ID')}"] = None
            last = max(last, _number(page, "Last"))
            if page.get("Done") is True or not listed:
                break
        return Changes(last, arrived, self._studies(touched))

    def study_uids(self) -> Iterator[str]:
        """Give the UIDs of all studies, which no limit of the archive cuts."""
        for place in range(0, _PAGE * _MOST_CHANGES, _PAGE):
            window = {"since": [str(place)], "limit": [str(_PAGE)], "expand": [""]}
            listed = self._archive.get_json("../studies", window).value
            if not isinstance(listed, list):
                raise _other_form()
            if not listed:
                return
            yield from filter(None, (_uid(study, "StudyInstanceUID") for study in listed))

    def _studies(self, touched: Collection[str]) -> dict[str, frozenset[str]]:
        """Return the studies of what changed, asking once for each instance, series and study."""
        find = cache(self._found)
        studies: dict[str, set[str]] = {}
        for path in touched:
            # Instances do not come again, and are too many to keep.
            found = self._found(path) if path.startswith("instances/") else find(path)
            sop = _uid(found, "SOPInstanceUID")
            for parent, level in (("ParentSeries", "series"), ("ParentStudy", "studies")):
                if parent in found:
                    found = find(f"{level}/{found[parent]}")
            studies.setdefault(_uid(found, "StudyInstanceUID"), set()).add(sop)
        return {uid: frozenset(sops - {""}) for uid, sops in studies.items() if uid}

    def _found(self, path: str) -> dict[str, Any]:
        """Return a resource; empty: it was deleted meanwhile."""
        try:
            value = self._archive.get_json(f"../{path}").value
        except ArchiveError as error:
            if error.status == 404:
                return {}
            raise
        return value if isinstance(value, dict) else {}


def _uid(resource: Any, name: str) -> str:
    tags = resource.get("MainDicomTags") if isinstance(resource, dict) else None
    return str(tags.get(name, "")) if isinstance(tags, dict) else ""


def _number(value: Any, name: str) -> int:
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, int):
        raise _other_form()
    return found


def _other_form() -> ArchiveError:
    return ArchiveError("The archive's feed of changes has another form than Orthanc's.", 200)
