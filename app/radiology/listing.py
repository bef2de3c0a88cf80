"""The selected studies of an archive and their instances: by complete listings or by a feed of changes."""

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
# No known archive has a smaller limit of its answers; a test archive may have one.
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
        """Identifies the filters with the dates."""
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
        """Return whether a study's date, as DICOM writes it, is selected; "" is no date."""
        if self.first is not None and day < dicom_date(self.first):
            return False
        return self.last is None or "" < day <= dicom_date(self.last)

    def days(self, today: date) -> Iterator[str]:
        """Yield every selected date, as DICOM writes it, up to a year from today; only if `is_dated`."""
        day = max(self.first or FIRST_DAY, FIRST_DAY)
        last = min(self.last or date.max, today + timedelta(days=366))
        while day <= last:
            yield dicom_date(day)
            day += timedelta(days=1)

    def takes_modality(self, modality: str) -> bool:
        """Return whether images of a modality are selected."""
        return not self.modalities or modality.upper() in self.modalities

    def takes(self, metadata: Mapping[str, Any]) -> bool:
        """Return whether an image matches: all words of a filter are words of its metadata, in any order."""
        filters = (
            (self.modalities, "modality"),
            (self.body_parts, "body_part"),
            (self.views, "view"),
        )
        return all(not words or _has_one(str(metadata.get(name, "")), words) for words, name in filters)


def _has_one(value: str, phrases: Collection[str]) -> bool:
    value_words = set(value.upper().split())
    return any(value_words.issuperset(one.split()) for one in phrases)


def _digest(form: list[Any]) -> str:
    return hashlib.sha256(json.dumps(form).encode()).hexdigest()[:_DIGITS]


@dataclass(frozen=True, slots=True)
class ListedStudy:
    """A study as the archive lists it.

    Attributes:
        day: Date as DICOM writes it; "": none.
        count: Number of its instances; None if the archive doesn't report it.
        modalities: Modalities of its series; empty if the archive doesn't report them.
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
        parameters: dict[str, Sequence[str]] = {}
        if self.first is not None and self.first == self.last:
            parameters["StudyDate"] = [dicom_date(self.first)]
        elif self.first is not None or self.last is not None:
            ends = (self.first and dicom_date(self.first), self.last and dicom_date(self.last))
            parameters["StudyDate"] = ["-".join(end or "" for end in ends)]
        if self.seconds is not None:
            first, last = self.seconds
            parameters["StudyTime"] = [f"{_clock(first)}-{_clock(last)}.999999"]
        return parameters

    def halves(self, today: date) -> "tuple[_Window, _Window] | None":
        """Split the window in two by date, a single date by time; None: the window cannot be split."""
        if self.first is None or self.first != self.last:
            low, high = self.first or FIRST_DAY, self.last or today + timedelta(days=1)
            if low >= high:
                return None
            middle = low + (high - low) // 2
            # The ends stay open: there are studies with impossible dates.
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
            expected: Number of studies at which a listing is complete; None if unknown.

        Raises:
            ArchiveError: The archive does not answer, or reports that it does not list all studies of a
                second.
        """
        studies: dict[str, ListedStudy] = {}
        self.doubts.clear()

        def collect(window: _Window, modality: str | None) -> set[str]:
            """Add the studies of a window, in halves where the archive cuts them, and return their UIDs."""
            if expected is not None and len(studies) >= expected:
                return set()
            listed, is_whole = self._window(window, modality)
            studies.update(listed)
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
        return studies

    def _doubt(self, count: int, which: str) -> None:
        self.doubts.append(
            f"The archive lists {count:,} studies {which} and may have more, as it may cut its answers: "
            "raise their limit, or compare the number of its studies."
        )

    def one(self, uid: str) -> ListedStudy | None:
        """Return a study; None if the archive has none with this UID, or none that is selected."""
        study = self._find(uid)
        if study is None or not self._selection.includes_day(study.day):
            return None
        has_modality = not study.modalities or any(map(self._selection.takes_modality, study.modalities))
        return study if has_modality else None

    def has(self, uid: str) -> bool:
        """Return whether the archive has a study."""
        return self._find(uid) is not None

    def _find(self, uid: str) -> ListedStudy | None:
        answer = self._archive.get_json("studies", {"StudyInstanceUID": [uid], **_INCLUDED})
        return next((study for study in _studies(answer.value) if study.uid == uid), None)

    def _window(self, window: _Window, modality: str | None) -> tuple[dict[str, ListedStudy], bool | None]:
        """List a window; also return whether that is all of it, as far as can be known."""
        studies: dict[str, ListedStudy] = {}
        params = {**window.params(), **_INCLUDED}
        if modality is not None:
            params["ModalitiesInStudy"] = [modality]
        has_more = heeds_offsets = False
        for page in range(_MOST_PAGES):
            page_params = {"limit": [str(PAGE)], "offset": [str(len(studies))]}
            try:
                answer = self._archive.get_json("studies", {**params, **page_params})
            except ArchiveError as error:
                # Some archives refuse an offset.
                if page and error.status is not None and 400 <= error.status < 500:
                    break
                raise
            listed = {study.uid: study for study in _studies(answer.value)}
            if not listed.keys() - studies.keys():
                # An archive that ignores offsets answers with the first page again.
                heeds_offsets = not listed
                has_more = has_more if heeds_offsets else answer.partial
                break
            studies |= listed
            has_more = answer.partial
        else:
            return studies, False
        # Orthanc silently cuts off what exceeds its LimitFindResults, over all pages. So an answer is known
        # to be complete if there was a larger one, and the largest is compared with its halves.
        if has_more or (not heeds_offsets and len(studies) >= PAGE):
            return studies, False
        if len(studies) < max(_SMALLEST_CAP, self._largest):
            return studies, True
        self._largest = len(studies)
        return studies, None


def _studies(value: Any) -> Iterator[ListedStudy]:
    for item in items(value):
        uid = text(item, _TAGS["study"])
        if uid:
            modalities = tuple(
                str(modality).strip().upper() for modality in values(item, _TAGS["modalities"])
            )
            yield ListedStudy(uid, text(item, _TAGS["date"]), number(item, _TAGS["count"]), modalities)


@dataclass(frozen=True, slots=True)
class ListedInstance:
    """An instance as the archive lists it.

    Attributes:
        sop_class: SOP Class UID; "" if the archive doesn't report it.
        modality: Modality; "" if the archive doesn't report it.
        attributes: All attributes without pixels; None: they were not requested.
    """

    sop: str
    series: str
    sop_class: str
    modality: str
    attributes: Dataset | None


def list_instances(archive: Archive, study: ListedStudy, *, with_attributes: bool) -> list[ListedInstance]:
    """Return all instances of a study; none if the archive has no such study."""
    instances: dict[str, ListedInstance] = {}
    if not with_attributes:
        for _ in range(_MOST_INSTANCE_PAGES):
            page_params = {"limit": [str(_LIMIT)], "offset": [str(len(instances))]}
            included = {"includefield": [_SOP_CLASS, _MODALITY]}
            answer = archive.get_json(f"studies/{study.uid}/instances", {**page_params, **included})
            listed = _instances(answer.value, with_attributes=False)
            if not listed.keys() - instances.keys():
                break
            instances |= listed
            if study.count is not None and len(instances) >= study.count:
                # One request more would cost the archive as much again.
                break
        if study.count is None or len(instances) >= study.count:
            return list(instances.values())
    # A limit of the archive may have cut the list; metadata have no such limit.
    try:
        answer = archive.get_json(f"studies/{study.uid}/metadata")
    except ArchiveError as error:
        if error.status == 404:
            return []
        raise
    return list(_instances(answer.value, with_attributes=True).values())


def _instances(value: Any, *, with_attributes: bool) -> dict[str, ListedInstance]:
    instances = {}
    for item in items(value):
        attributes = None
        # Attributes that cannot be read here are read from the file, then.
        with suppress(TypeError, ValueError, KeyError, AttributeError):
            if with_attributes:
                # Bulk data is only referred to, and never fetched.
                attributes = Dataset.from_json(dict(item), bulk_data_uri_handler=lambda *_: None)
        sop, series = text(item, _SOP), text(item, _SERIES)
        modality = text(item, _MODALITY).upper()
        instances[sop] = ListedInstance(sop, series, text(item, _SOP_CLASS), modality, attributes)
    instances.pop("", None)
    return instances


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes since a position in the feed.

    Attributes:
        studies: UIDs of the studies that changed and are still there, each with the UIDs of its instances
            that came in.
    """

    last: int
    arrived: int
    studies: Mapping[str, frozenset[str]]


class OrthancFeed:
    """Reads the changes of an Orthanc, whose own interface is next to its DICOMweb.

    The feed has no deletions, which show in the number of instances.
    """

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    @classmethod
    def connect(cls, archive: Archive) -> "OrthancFeed | None":
        """Return the feed of an archive; None if it isn't an Orthanc, or hides its own interface."""
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
        """Return the changes after a change."""
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
        """Yield the UIDs of all studies, which no limit of the archive cuts off."""
        for offset in range(0, _PAGE * _MOST_CHANGES, _PAGE):
            window = {"since": [str(offset)], "limit": [str(_PAGE)], "expand": [""]}
            listed = self._archive.get_json("../studies", window).value
            if not isinstance(listed, list):
                raise _other_form()
            if not listed:
                return
            yield from filter(None, (_uid(study, "StudyInstanceUID") for study in listed))

    def _studies(self, touched: Collection[str]) -> dict[str, frozenset[str]]:
        """Return the studies of changed resources, with one request for each instance, series and study."""
        find = cache(self._resource)
        studies: dict[str, set[str]] = {}
        for path in touched:
            # Instances do not come again, and are too many to keep.
            resource = self._resource(path) if path.startswith("instances/") else find(path)
            sop = _uid(resource, "SOPInstanceUID")
            for parent, level in (("ParentSeries", "series"), ("ParentStudy", "studies")):
                if parent in resource:
                    resource = find(f"{level}/{resource[parent]}")
            studies.setdefault(_uid(resource, "StudyInstanceUID"), set()).add(sop)
        return {uid: frozenset(sops - {""}) for uid, sops in studies.items() if uid}

    def _resource(self, path: str) -> dict[str, Any]:
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
    number = value.get(name) if isinstance(value, dict) else None
    if not isinstance(number, int):
        raise _other_form()
    return number


def _other_form() -> ArchiveError:
    return ArchiveError("The archive's feed of changes has another form than Orthanc's.", 200)
