"""Images as the catalogue holds them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from sqlalchemy import select
from sqlalchemy.orm import Session

from index.catalogue.collections import require_collection
from index.catalogue.lookup import revision_of, storable_text
from index.catalogue.tables import (
    REPORT_POSITION,
    CollectionRow,
    FindingRow,
    ImageRow,
    TextRow,
)
from index.errors import UnknownImageError
from training.clinical.findings import State, are_prior
from training.common.manifest import MetadataValue, Record, Split


class StoredFinding(NamedTuple):
    """A mention of a finding in a text of an image, by its position, or in the report: None."""

    finding: str
    state: State
    position: int | None
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class StoredImage:
    """Catalogue entry of one image."""

    id: str
    texts: tuple[str, ...]
    report: str | None
    findings: tuple[StoredFinding, ...]
    labels: tuple[str, ...]
    metadata: Mapping[str, MetadataValue]
    split: str
    group: str | None
    width: int
    height: int
    media_type: str
    sha256: str
    record_digest: str

    @property
    def record(self) -> Record:
        """Its record, without the name of a file."""
        return Record(
            id=self.id,
            image="",
            split=cast(Split, self.split),
            texts=self.texts,
            group=self.group,
            labels=self.labels,
            report=self.report,
            metadata=self.metadata,
        )

    @property
    def revision(self) -> str:
        """Identifies this state of the image; see `revision_of`."""
        return revision_of(self.record_digest, self.sha256)

    def priors(self) -> list[bool]:
        """Return for each finding whether its sentence compares with an earlier examination, or mentions one.

        The texts are parsed again, so the time depends on their length.
        """
        starts_at: dict[int | None, list[int]] = {}
        for finding in self.findings:
            starts_at.setdefault(finding.position, []).append(finding.start)
        prior = {
            (position, start): one
            for position, starts in starts_at.items()
            for start, one in zip(starts, are_prior(self._text(position), starts), strict=True)
        }
        return [prior[finding.position, finding.start] for finding in self.findings]

    def _text(self, position: int | None) -> str:
        return self.texts[position] if position is not None else self.report or ""


def require_image(session: Session, collection: str, image_id: str) -> ImageRow:
    """Return the row of an image."""
    query = (
        select(ImageRow)
        .join(CollectionRow, CollectionRow.id == ImageRow.collection_id)
        .where(CollectionRow.name == collection, ImageRow.external_id == image_id)
    )
    # Names that no database can hold are not looked up: PostgreSQL would refuse the whole statement.
    storable = storable_text(collection) and storable_text(image_id)
    row = session.execute(query).scalar_one_or_none() if storable else None
    if row is None:
        require_collection(session, collection)
        raise UnknownImageError(collection, image_id)
    return row


def read_image(session: Session, collection: str, image_id: str) -> StoredImage:
    """Return everything that is stored about an image."""
    row = require_image(session, collection, image_id)
    texts = select(TextRow.text).where(TextRow.image_id == row.id).order_by(TextRow.position)
    # Those of the report come first.
    order = FindingRow.position, FindingRow.start, FindingRow.finding
    findings = session.execute(select(FindingRow).where(FindingRow.image_id == row.id).order_by(*order))
    return StoredImage(
        id=row.external_id,
        texts=tuple(session.execute(texts).scalars()),
        report=row.report,
        findings=tuple(
            StoredFinding(
                finding.finding,
                cast(State, finding.state),
                None if finding.position == REPORT_POSITION else finding.position,
                finding.start,
                finding.stop,
            )
            for finding in findings.scalars()
        ),
        labels=tuple(row.labels),
        metadata=as_metadata(row.details),
        split=row.split,
        group=row.group_name,
        width=row.width,
        height=row.height,
        media_type=row.media_type,
        sha256=row.sha256,
        record_digest=row.record_digest,
    )


def as_metadata(details: dict[str, Any]) -> dict[str, MetadataValue]:
    """Turn JSON lists back into tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in details.items()}
