"""Paths of DICOMweb that only read: queries (QIDO-RS) and retrievals (WADO-RS)."""

import re
from typing import Final, NamedTuple

_UID: Final = r"[0-9]+(?:\.[0-9]+)*"
_MAX_UID_LENGTH: Final = 64
_MAX_LENGTH: Final = 1000
_BULK: Final = r"/bulk(?:data)?(?:/[A-Za-z0-9_-]+){1,32}"
_RENDERED: Final = "rendered|thumbnail"
_QUERY: Final = re.compile(
    rf"studies|series|instances|studies/(?P<study>{_UID})/(?:series|instances)"
    rf"|studies/(?P<parent>{_UID})/series/(?P<series>{_UID})/instances"
)
_RETRIEVAL: Final = re.compile(
    rf"studies/(?P<study>{_UID})(?:/series/(?P<series>{_UID})(?:/instances/(?P<sop>{_UID})"
    rf"(?P<frames>/frames/[0-9]{{1,7}}(?:,[0-9]{{1,7}})*)?)?)?(?:/(?:metadata|{_RENDERED})|{_BULK})?"
)


class ArchivePath(NamedTuple):
    """A path below the root of DICOMweb.

    Attributes:
        path: The path.
        uid: The UID that is lowest in it: of an instance, a series or a study; None: it has none.
        is_query: Whether it lists what there is.
    """

    path: str
    uid: str | None
    is_query: bool


def parse_path(path: str) -> ArchivePath | None:
    """Return a path that only reads; None: it is none.

    Args:
        path: Path below the root, with percent-encodings decoded.
    """
    if len(path) > _MAX_LENGTH:
        return None
    query = _QUERY.fullmatch(path)
    found = query or _RETRIEVAL.fullmatch(path)
    if found is None:
        return None
    uids = [uid for name, uid in found.groupdict().items() if uid is not None and name != "frames"]
    if any(len(uid) > _MAX_UID_LENGTH for uid in uids):
        return None
    return ArchivePath(path, uids[-1] if uids else None, query is not None)
