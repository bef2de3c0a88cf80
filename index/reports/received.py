"""Reports in the catalogue: taken in, matched to the images of their studies, and removed with these."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final, TypeVar, cast

from sqlalchemy import ColumnElement, delete, func, insert, select, update
from sqlalchemy.orm import Session

from index.catalogue.archives.tables import ReportRow
from index.catalogue.tables import AttributeRow, ImageRow
from training.data.reports.headings import Kind
from training.data.reports.sections import Section
from training.data.reports.study_report import Status, StudyReport

# Fields of an image that name its study, the likeliest first.
STUDY_FIELDS: Final = ("study", "accession")
_PATIENT: Final = "patient"
_AT_ONCE: Final = 500
_Item = TypeVar("_Item")


def add_reports(session: Session, collection_id: int, reports: Sequence[StudyReport]) -> None:
    """Take in reports in their order; one that is there already is passed over."""
    digests = {report.digest: report for report in reports}
    query = select(ReportRow.digest).where(
        ReportRow.collection_id == collection_id, ReportRow.digest.in_(list(digests))
    )
    known = set(session.execute(query).scalars())
    rows = [
        {
            "collection_id": collection_id,
            "digest": digest,
            "keys": list(report.keys),
            "patient": report.patient,
            "identity": report.identity,
            "status": report.status,
            "issued": report.issued,
            "sections": [list(section) for section in report.sections],
        }
        for digest, report in digests.items()
        if digest not in known
    ]
    if rows:
        session.execute(insert(ReportRow), rows)


def find_study(session: Session, collection_id: int, report: StudyReport) -> tuple[str | None, bool]:
    """Return the key of the study that a report belongs to, and whether its images are of another patient.

    The key is None where no image has one of the report's keys, or all that do are of another patient.
    """
    others = False
    for key in report.keys:
        patients = _patients(session, collection_id, key)
        if not patients:
            continue
        if report.patient is None or not patients.isdisjoint({report.patient, None}):
            return _main_key(session, collection_id, key), False
        others = True
    return None, others


def set_study(session: Session, collection_id: int, digest: str, study: str | None) -> None:
    """Note the study that a report was matched to."""
    row = (ReportRow.collection_id == collection_id) & (ReportRow.digest == digest)
    session.execute(update(ReportRow).where(row).values(study=study))


def images_of(session: Session, collection_id: int, study: str) -> list[str]:
    """Return the ids of the images of a study."""
    query = select(ImageRow.external_id).join(AttributeRow, AttributeRow.image_id == ImageRow.id)
    return list(session.execute(query.where(_has(collection_id, study)).order_by(ImageRow.id)).scalars())


def received_for(session: Session, collection_id: int, study: str) -> list[StudyReport]:
    """Return the reports of a study, in the order in which they came."""
    own = (ReportRow.collection_id == collection_id) & (ReportRow.study == study)
    return [
        _report(row) for row in session.execute(select(ReportRow).where(own).order_by(ReportRow.id)).scalars()
    ]


def reports_after(
    session: Session, collection_id: int, after: int, *, waiting: bool
) -> list[tuple[int, StudyReport]]:
    """Return some reports behind a key, with their keys; those that wait, or all."""
    query = select(ReportRow).where(ReportRow.collection_id == collection_id, ReportRow.id > after)
    if waiting:
        query = query.where(ReportRow.study.is_(None))
    rows = session.execute(query.order_by(ReportRow.id).limit(_AT_ONCE)).scalars()
    return [(row.id, _report(row)) for row in rows]


def count_waiting(session: Session, collection_id: int) -> int:
    """Return the number of reports whose studies have no image."""
    waiting = (ReportRow.collection_id == collection_id) & ReportRow.study.is_(None)
    return session.execute(select(func.count()).select_from(ReportRow).where(waiting)).scalar_one()


def drop_waiting(session: Session, collection_id: int) -> int:
    """Remove the reports whose studies have no image, and return their number."""
    waiting = (ReportRow.collection_id == collection_id) & ReportRow.study.is_(None)
    count = count_waiting(session, collection_id)
    session.execute(delete(ReportRow).where(waiting))
    return count


def studies_of(session: Session, collection_id: int, keys: Collection[int]) -> list[str]:
    """Return the keys of the studies that images, by their keys, belong to and that have reports."""
    query = select(AttributeRow.name, AttributeRow.text_value).where(
        AttributeRow.collection_id == collection_id,
        AttributeRow.image_id.in_(list(keys)),
        AttributeRow.name.in_(STUDY_FIELDS),
    )
    named = {f"{name}:{value}" for name, value in session.execute(query)}
    found: list[str] = []
    for part in _parts(sorted(named)):
        having = (ReportRow.collection_id == collection_id) & ReportRow.study.in_(part)
        found += cast(
            list[str], session.execute(select(ReportRow.study).where(having).distinct()).scalars().all()
        )
    return found


def remove_reports(session: Session, collection_id: int, studies: Sequence[str]) -> None:
    """Remove the reports of those studies that have no image any more."""
    for study in studies:
        left = select(AttributeRow.image_id).where(_has(collection_id, study)).limit(1)
        if session.execute(left).first() is None:
            own = (ReportRow.collection_id == collection_id) & (ReportRow.study == study)
            session.execute(delete(ReportRow).where(own))


def _report(row: ReportRow) -> StudyReport:
    sections = tuple(Section(cast(Kind, kind), heading, text) for kind, heading, text in row.sections)
    status = cast(Status, row.status)
    return StudyReport(tuple(row.keys), row.patient, row.identity, status, row.issued, sections)


def _has(collection_id: int, key: str) -> ColumnElement[bool]:
    name, _, value = key.partition(":")
    return (
        (AttributeRow.collection_id == collection_id)
        & (AttributeRow.name == name)
        & (AttributeRow.text_value == value)
    )


def _patients(session: Session, collection_id: int, key: str) -> set[str | None]:
    """Return the patients of the images with a key; None for one that names none."""
    keys = session.execute(select(AttributeRow.image_id).where(_has(collection_id, key))).scalars().all()
    patients: set[str | None] = set()
    for part in _parts(keys):
        query = select(AttributeRow.image_id, AttributeRow.text_value).where(
            AttributeRow.image_id.in_(list(part)), AttributeRow.name == _PATIENT
        )
        found = {row.image_id: row.text_value for row in session.execute(query)}
        patients.update(found.get(image) for image in part)
    return patients


def _main_key(session: Session, collection_id: int, key: str) -> str:
    """Return the key that all reports of a study share: that of its UID, if its images have one."""
    if key.startswith(f"{STUDY_FIELDS[0]}:"):
        return key
    of_key = select(AttributeRow.image_id).where(_has(collection_id, key)).limit(1).scalar_subquery()
    query = select(AttributeRow.text_value).where(
        AttributeRow.image_id == of_key, AttributeRow.name == STUDY_FIELDS[0]
    )
    uid = session.execute(query.limit(1)).scalar()
    return key if uid is None else f"{STUDY_FIELDS[0]}:{uid}"


def _parts(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    for start in range(0, len(items), _AT_ONCE):
        yield items[start : start + _AT_ONCE]
