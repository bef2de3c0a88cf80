"""The instances of a study, by QIDO-RS or, where attributes of each are needed, by its metadata."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydicom import Dataset

from app.pacs.dicomweb.archive import Archive, ArchiveError
from app.pacs.dicomweb.listing import ListedStudy, items, text

_PAGE: Final = 1000
_MOST_PAGES: Final = 1000
_SOP, _SOP_CLASS, _MODALITY, _SERIES = "00080018", "00080016", "00080060", "0020000E"


@dataclass(frozen=True, slots=True)
class ListedInstance:
    """An instance as the archive lists it.

    Attributes:
        sop: SOP Instance UID.
        series: Series Instance UID.
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
    """Return all instances of a study; none where the archive has no such study.

    Raises:
        ArchiveError: The archive does not answer.
        OutsideHoursError: The archive may not be asked now.
    """
    if with_attributes:
        return _by_metadata(archive, study.uid)
    found: dict[str, ListedInstance] = {}
    for _ in range(_MOST_PAGES):
        place = {"limit": [str(_PAGE)], "offset": [str(len(found))], "includefield": [_SOP_CLASS, _MODALITY]}
        answer = archive.get_json(f"studies/{study.uid}/instances", place)
        listed = {item.sop: item for item in map(_instance, items(answer.value)) if item.sop}
        if not listed.keys() - found.keys():
            break
        found |= listed
        if study.count is not None and len(found) >= study.count:
            # One request more would cost the archive as much again.
            break
    if study.count is not None and len(found) < study.count:
        # A limit of the archive cut the list; metadata have no such limit.
        return _by_metadata(archive, study.uid)
    return list(found.values())


def _by_metadata(archive: Archive, uid: str) -> list[ListedInstance]:
    try:
        answer = archive.get_json(f"studies/{uid}/metadata")
    except ArchiveError as error:
        if error.status == 404:
            return []
        raise
    return [item for item in map(_with_attributes, items(answer.value)) if item.sop]


def _instance(item: Mapping[str, Any]) -> ListedInstance:
    return ListedInstance(
        text(item, _SOP), text(item, _SERIES), text(item, _SOP_CLASS), text(item, _MODALITY).upper(), None
    )


def _with_attributes(item: Mapping[str, Any]) -> ListedInstance:
    listed = _instance(item)
    try:
        # Bulk data is only referred to, and never fetched.
        attributes = Dataset.from_json(dict(item), bulk_data_uri_handler=lambda *_: None)
    except (TypeError, ValueError, KeyError, AttributeError):
        # The attributes are read from the file, then.
        return listed
    return ListedInstance(listed.sop, listed.series, listed.sop_class, listed.modality, attributes)
