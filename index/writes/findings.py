"""Writes of the findings that texts and reports of images state, in the caller's transaction."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import delete, insert
from sqlalchemy.orm import Session

from index.catalogue.tables import REPORT_POSITION, FindingRow
from training.clinical.findings import find_findings, image_states

# Rows of `FindingRow` of an image, without the keys of image and collection.
Findings = Sequence[Mapping[str, Any]]


def add_findings(session: Session, collection_id: int, written: Mapping[int, Findings]) -> None:
    """Take in the findings of images, by their keys, that have none yet."""
    rows = [
        {**row, "image_id": key, "collection_id": collection_id}
        for key, own in written.items()
        for row in own
    ]
    if rows:
        session.execute(insert(FindingRow), rows)


def replace_findings(session: Session, collection_id: int, written: Mapping[int, Findings]) -> None:
    """Take in the findings of images, by their keys, in place of those that they have."""
    if written:
        session.execute(delete(FindingRow).where(FindingRow.image_id.in_(list(written))))
        add_findings(session, collection_id, written)


def findings_of(texts: Mapping[int, str], report: str | None) -> Findings:
    """Return what the texts of an image, by position, and its report say, as rows without their keys."""
    found = {position: find_findings(text) for position, text in texts.items()}
    if report is not None:
        found[REPORT_POSITION] = find_findings(report)
    states = image_states(finding for own in found.values() for finding in own)
    return [
        {
            "position": position,
            "start": finding.start,
            "finding": finding.name,
            "stop": finding.end,
            "state": finding.state,
            "image_finding": f"{finding.name}: {states[finding.name]}",
        }
        for position, own in found.items()
        for finding in own
    ]
