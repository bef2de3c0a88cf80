"""Writes of the findings that texts and reports of images state, in the caller's transaction."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import delete, insert
from sqlalchemy.orm import Session

from index.catalogue.tables import REPORT_POSITION, FindingRow
from training.reports import find_findings, image_states


class WrittenTexts(NamedTuple):
    """The texts of an image and its report, as they are written."""

    texts: Sequence[str]
    report: str | None


def add_findings(session: Session, collection_id: int, written: Mapping[int, WrittenTexts]) -> None:
    """Take in the findings of images, by their keys, that have none yet."""
    rows = [
        row
        for key, (texts, report) in written.items()
        for row in finding_rows(collection_id, key, dict(enumerate(texts)), report)
    ]
    if rows:
        session.execute(insert(FindingRow), rows)


def replace_findings(session: Session, collection_id: int, written: Mapping[int, WrittenTexts]) -> None:
    """Take in the findings of images, by their keys, in place of those that they have."""
    if written:
        session.execute(delete(FindingRow).where(FindingRow.image_id.in_(list(written))))
        add_findings(session, collection_id, written)


def finding_rows(
    collection_id: int, image_key: int, texts: Mapping[int, str], report: str | None
) -> list[dict[str, Any]]:
    """Return the rows of `FindingRow` of an image, given its texts by position and its report."""
    found = {position: find_findings(text) for position, text in texts.items()}
    if report is not None:
        found[REPORT_POSITION] = find_findings(report)
    states = image_states(finding for own in found.values() for finding in own)
    return [
        {
            "image_id": image_key,
            "position": position,
            "start": finding.start,
            "finding": finding.name,
            "stop": finding.end,
            "state": finding.state,
            "collection_id": collection_id,
            "image_finding": f"{finding.name}: {states[finding.name]}",
        }
        for position, own in found.items()
        for finding in own
    ]
