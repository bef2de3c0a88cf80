"""The feed of changes of an archive that is an Orthanc."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.radiology.pacs.dicomweb.archive import Archive, ArchiveError

_PAGE: Final = 1000
_MOST_PAGES: Final = 1_000_000
_CHANGED: Final = frozenset(
    ("NewInstance", "NewSeries", "NewStudy", "StableSeries", "StableStudy", "UpdatedAttachment")
)
_LEVELS: Final = {"Instance": "instances", "Series": "series", "Study": "studies"}


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes since some place of the feed.

    Attributes:
        last: Number of the last change.
        arrived: Number of instances that came in.
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
    def of(cls, archive: Archive) -> "OrthancFeed | None":
        """Return the feed of an archive; None: it is no Orthanc, or does not show its own interface.

        Raises:
            ArchiveError: The archive does not answer.
            OutsideHoursError: The archive may not be asked now.
        """
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
        touched: dict[tuple[str, str], None] = {}
        for _ in range(_MOST_PAGES):
            page = self._archive.get_json("../changes", {"since": [str(last)], "limit": [str(_PAGE)]}).value
            listed = page.get("Changes") if isinstance(page, dict) else None
            if not isinstance(listed, list):
                raise _other_form()
            for event in listed:
                kind, level = str(event.get("ChangeType")), _LEVELS.get(str(event.get("ResourceType")))
                if level is not None and kind in _CHANGED:
                    arrived += kind == "NewInstance"
                    touched[level, str(event.get("ID"))] = None
            last = max(last, _number(page, "Last"))
            if page.get("Done") is True or not listed:
                break
        return Changes(last, arrived, self._studies(touched))

    def study_uids(self) -> Iterator[str]:
        """Give the UIDs of all studies, which no limit of the archive cuts."""
        for place in range(0, _PAGE * _MOST_PAGES, _PAGE):
            window = {"since": [str(place)], "limit": [str(_PAGE)], "expand": [""]}
            listed = self._archive.get_json("../studies", window).value
            if not isinstance(listed, list):
                raise _other_form()
            if not listed:
                return
            yield from filter(None, (_uid(study, "StudyInstanceUID") for study in listed))

    def _studies(self, touched: Mapping[tuple[str, str], None]) -> dict[str, frozenset[str]]:
        """Return the studies of what changed, asking once for each instance, series and study."""
        arrived: dict[str, set[str]] = {name: set() for level, name in touched if level == "series"}
        for level, name in touched:
            if level == "instances":
                found = self._found(f"instances/{name}")
                arrived.setdefault(str(found.get("ParentSeries", "")), set()).add(
                    _uid(found, "SOPInstanceUID")
                )
        studies: dict[str, set[str]] = {name: set() for level, name in touched if level == "studies"}
        for name, sops in arrived.items():
            if name:
                parent = str(self._found(f"series/{name}").get("ParentStudy", ""))
                studies.setdefault(parent, set()).update(sops)
        uids = {_uid(self._found(f"studies/{name}"), "StudyInstanceUID"): name for name in studies if name}
        return {uid: frozenset(studies[name] - {""}) for uid, name in uids.items() if uid}

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
