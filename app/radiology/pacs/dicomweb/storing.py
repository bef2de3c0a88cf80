"""DICOM files stored in an archive by STOW-RS (PS3.18, section 10.5)."""

import json
import uuid
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

from app.radiology.pacs.dicomweb.archive import Archive, ArchiveError
from app.radiology.pacs.dicomweb.listing import items, number, text, values

_FAILED: Final = "00081198"
_REASON: Final = "00081197"
_SOP: Final = "00081155"
_ANSWERS: Final = (HTTPStatus.OK, HTTPStatus.ACCEPTED, HTTPStatus.CONFLICT)
# The archive has an instance of this UID: it was stored by an earlier try.
_DUPLICATE: Final = 0x0111
# Failure reasons of PS3.18, table I.2-2, and of PS3.4, annex B.2.3, by the bits that tell them apart.
_REASONS: Final[Sequence[tuple[int, int, str]]] = (
    (0xFFFF, 0x0110, "it failed to process it"),
    (0xFFFF, 0x0122, "it does not take objects of this class"),
    (0xFFFF, 0x0124, "its user may not store"),
    (0xFF00, 0xA700, "it has no space left"),
    (0xFF00, 0xA900, "the object does not fit its class"),
    (0xF000, 0xC000, "it cannot understand the object"),
)


def store_instances(archive: Archive, study: str, files: Mapping[str, bytes]) -> dict[str, str]:
    """Store DICOM files in a study, in one request.

    Args:
        archive: The archive.
        study: Study Instance UID of all of them.
        files: Files by SOP Instance UID.

    Returns:
        Why instances were not stored, by SOP Instance UID; those that it does not name are stored.

    Raises:
        ArchiveError: The archive refuses the request, or does not answer.
        OutsideHoursError: The archive may not be asked now.
    """
    boundary = uuid.uuid4().hex.encode()
    head = b"--" + boundary + b"\r\nContent-Type: application/dicom\r\n\r\n"
    body = b"".join(head + file + b"\r\n" for file in files.values()) + b"--" + boundary + b"--\r\n"
    kind = f'multipart/related; type="application/dicom"; boundary={boundary.decode()}'
    status, content = archive.post(f"studies/{study}", body, kind, _ANSWERS)
    failed = _failed(content)
    if status != HTTPStatus.OK and not (failed and failed.keys() <= files.keys()):
        raise ArchiveError(
            f"The archive did not store everything (status {status}), and does not say in JSON what: look "
            "into the study.",
            status,
        )
    return {
        uid: _words(reason) for uid, reason in (failed or {}).items() if reason != _DUPLICATE and uid in files
    }


def _failed(content: bytes) -> dict[str, int | None] | None:
    """Return the failure reasons of an answer by UID; None: it is no DICOM JSON."""
    try:
        found = [item for answer in items(json.loads(content)) for item in items(values(answer, _FAILED))]
    except (ValueError, RecursionError, ArchiveError):
        return None
    return {text(item, _SOP): number(item, _REASON) for item in found}


def _words(reason: int | None) -> str:
    if reason is None:
        return "it gives no reason"
    for mask, code, words in _REASONS:
        if reason & mask == code:
            return words
    return f"its reason is {reason:04X}"
