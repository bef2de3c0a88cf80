"""Known studies of an archive: outcomes by study, and the position in the feed of changes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, cast

from sqlalchemy import ColumnElement, delete, select
from sqlalchemy.orm import Session

from index.catalogue.tables import ArchiveRow, ArchiveStudyRow, AttributeRow, ImageRow

Outcome = Literal["taken", "refused", "left out", "quarantined"]
# Outcome of a structured report that was accepted, followed by its digest.
_REPORT: Final = "report "


@dataclass(frozen=True, slots=True)
class Followed:
    """A collection and an archive that it follows.

    Attributes:
        collection_id: Key of the collection.
        archive: Keyed hash of the archive's address.
    """

    collection_id: int
    archive: str


@dataclass(frozen=True, slots=True)
class Position:
    """A position in the feed of changes of an archive; see `ArchiveRow`."""

    change: int
    instances: int
    selection: str


@dataclass(frozen=True, slots=True)
class KnownStudy:
    """A study of the archive as it was last seen; see `ArchiveStudyRow`.

    Attributes:
        reports: Digests of reports that were taken, by the hash of their SOP Instance UID.
    """

    day: str
    selection: str
    checked: str | None
    instances: Mapping[str, Outcome]
    reports: Mapping[str, str] = field(default_factory=dict)


def read_position(session: Session, followed: Followed) -> Position | None:
    """Return the position in the feed up to which all was imported; None: it was never read to the end."""
    row = session.get(ArchiveRow, (followed.collection_id, followed.archive))
    return None if row is None else Position(row.position, row.instances, row.selection)


def write_position(session: Session, followed: Followed, position: Position) -> None:
    """Store the position in the feed up to which everything was imported."""
    session.merge(
        ArchiveRow(
            collection_id=followed.collection_id,
            archive=followed.archive,
            position=position.change,
            instances=position.instances,
            selection=position.selection,
        )
    )


def read_studies(session: Session, followed: Followed) -> dict[str, KnownStudy]:
    """Return all known studies, by the keyed hash of their UID."""
    query = select(ArchiveStudyRow).where(*_archive_conditions(followed))
    rows = session.execute(query).scalars()
    return {row.study: _known_study(row) for row in rows}


def note_study(
    session: Session,
    followed: Followed,
    study: str,
    seen: KnownStudy,
    *,
    gone: Collection[str] = (),
) -> None:
    """Record what was seen of a study, and keep what is known of its other instances.

    Args:
        session: Session of the transaction that writes the images.
        followed: The collection and the archive.
        study: Keyed hash of the study's UID.
        seen: The study; of its instances, those whose outcome is new.
        gone: Hashes of instances that the archive no longer has.
    """
    row = session.get(
        ArchiveStudyRow, (followed.collection_id, followed.archive, study), with_for_update=True
    )
    before: Mapping[str, str] = {} if row is None else row.instances
    reports = {name: f"{_REPORT}{digest}" for name, digest in seen.reports.items()}
    merged = {**before, **seen.instances, **reports}
    instances = {name: outcome for name, outcome in merged.items() if name not in gone}
    if row is None:
        row = ArchiveStudyRow(collection_id=followed.collection_id, archive=followed.archive, study=study)
        session.add(row)
    row.day, row.selection, row.checked, row.instances = seen.day, seen.selection, seen.checked, instances


def forget_study(session: Session, followed: Followed, study: str) -> None:
    """Forget a study that the archive no longer has."""
    session.execute(
        delete(ArchiveStudyRow).where(*_archive_conditions(followed), ArchiveStudyRow.study == study)
    )


def study_uids(session: Session, collection_id: int) -> list[str]:
    """Return the Study Instance UIDs of the images of a collection."""
    query = (
        select(AttributeRow.text_value)
        .where(AttributeRow.collection_id == collection_id, AttributeRow.name == "study")
        .distinct()
    )
    return [uid for uid in session.execute(query).scalars() if uid is not None]


def images_of_study(session: Session, collection_id: int, uid: str) -> dict[str, list[str]]:
    """Return the ids of a study's images in a collection, by SOP Instance UID."""
    query = (
        select(ImageRow.external_id, ImageRow.details)
        .join(AttributeRow, AttributeRow.image_id == ImageRow.id)
        .where(
            AttributeRow.collection_id == collection_id,
            AttributeRow.name == "study",
            AttributeRow.text_value == uid,
        )
    )
    ids: dict[str, list[str]] = {}
    for image_id, details in session.execute(query):
        ids.setdefault(str(details.get("sop", image_id)), []).append(image_id)
    return ids


def _known_study(row: ArchiveStudyRow) -> KnownStudy:
    reports = {
        name: outcome.removeprefix(_REPORT)
        for name, outcome in row.instances.items()
        if outcome.startswith(_REPORT)
    }
    outcomes = {name: "taken" if name in reports else outcome for name, outcome in row.instances.items()}
    return KnownStudy(row.day, row.selection, row.checked, cast(Mapping[str, Outcome], outcomes), reports)


def _archive_conditions(followed: Followed) -> tuple[ColumnElement[bool], ...]:
    return (
        ArchiveStudyRow.collection_id == followed.collection_id,
        ArchiveStudyRow.archive == followed.archive,
    )
