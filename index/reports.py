"""Reports in the catalogue: taken in, matched to the images of their studies, and removed with these."""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, cast

from sqlalchemy import ColumnElement, delete, func, insert, select, update
from sqlalchemy.orm import Session

from index.catalogue.collections import require_collection
from index.catalogue.images import read_image
from index.catalogue.lookup import AT_ONCE, parts, rows_among
from index.catalogue.tables import AttributeRow, ImageRow, ReportRow
from index.errors import UnknownImageError
from index.home import Home
from training.clinical.pseudonyms import PATIENT_FIELDS
from training.common.record import Record

if TYPE_CHECKING:
    from training.clinical.reports.study_report import Status, StudyReport
    from training.clinical.text.headings import Kind

# Fields of an image that name its study, the likeliest first.
STUDY_FIELDS: Final = ("study", "accession")


def add_reports(session: Session, collection_id: int, reports: "Sequence[StudyReport]") -> None:
    """Take in reports in their order; one that is there already is passed over."""
    digests = {report.digest: report for report in reports}
    query = select(ReportRow.digest).where(
        ReportRow.collection_id == collection_id, ReportRow.digest.in_(list(digests))
    )
    stored = set(session.execute(query).scalars())
    today = datetime.now(UTC).date().isoformat()
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
            "received": today,
        }
        for digest, report in digests.items()
        if digest not in stored
    ]
    if rows:
        session.execute(insert(ReportRow), rows)


def find_study(session: Session, collection_id: int, report: "StudyReport") -> tuple[str | None, bool]:
    """Return the key of the study that a report belongs to, and whether its images are of another patient.

    The key is None where no image has one of the report's keys, or all that do are of another patient, or of
    several while the report names none.
    """
    others = False
    for key in report.study_keys:
        patients = set(images_of(session, collection_id, key).values())
        if not patients:
            continue
        if report.patient is None and not report.may_be_of((), patients):
            return None, True
        if any(report.may_be_of(patient, patients) for patient in patients):
            return _main_key(session, collection_id, key), False
        others = True
    return None, others


def with_stored_texts(session: Session, collection: str, films: Sequence[Record]) -> list[Record]:
    """Return records of DICOM films with the texts and the report that the stored film has.

    A film brings none of its own: those that came by an import or as a report stay when it is sent again.
    Another study or patient under the same id gets nothing.
    """
    return [_with_stored_texts(session, collection, film) for film in films]


def _with_stored_texts(session: Session, collection: str, film: Record) -> Record:
    try:
        stored = read_image(session, collection, film.id)
    except UnknownImageError:
        return film
    same = all(stored.metadata.get(name) == film.metadata.get(name) for name in ("study", *PATIENT_FIELDS))
    if not same or film.texts or film.report is not None:
        return film
    return replace(film, texts=stored.texts, report=stored.report)


def set_study(session: Session, collection_id: int, digest: str, study: str | None) -> None:
    """Note the study that a report was matched to."""
    row = (ReportRow.collection_id == collection_id) & (ReportRow.digest == digest)
    session.execute(update(ReportRow).where(row).values(study=study))


def images_of(session: Session, collection_id: int, study: str) -> dict[str, tuple[str, ...]]:
    """Return the ids of the images of a study, each with the keyed hashes of its patient."""
    query = select(ImageRow.id, ImageRow.external_id).join(AttributeRow, AttributeRow.image_id == ImageRow.id)
    rows = session.execute(query.where(_has(collection_id, study)).order_by(ImageRow.id)).all()
    patients: defaultdict[int, tuple[str, ...]] = defaultdict(tuple)
    for name in PATIENT_FIELDS:
        named = select(AttributeRow.image_id, AttributeRow.text_value).where(AttributeRow.name == name)
        named = named.order_by(AttributeRow.position)
        for image, value in rows_among(session, named, AttributeRow.image_id, [row.id for row in rows]):
            patients[image] += (value,) if value else ()
    return {row.external_id: patients[row.id] for row in rows}


def received_for(session: Session, collection_id: int, study: str) -> "list[StudyReport]":
    """Return the reports of a study, in the order in which they came."""
    own = (ReportRow.collection_id == collection_id) & (ReportRow.study == study)
    return [
        _report(row) for row in session.execute(select(ReportRow).where(own).order_by(ReportRow.id)).scalars()
    ]


def reports_after(
    session: Session, collection_id: int, after: int, *, waiting: bool
) -> "list[tuple[int, StudyReport]]":
    """Return some reports behind a key, with their keys; those that wait, or all."""
    query = select(ReportRow).where(ReportRow.collection_id == collection_id, ReportRow.id > after)
    if waiting:
        query = query.where(ReportRow.study.is_(None))
    rows = session.execute(query.order_by(ReportRow.id).limit(AT_ONCE)).scalars()
    return [(row.id, _report(row)) for row in rows]


def count_waiting(session: Session, collection_id: int) -> int:
    """Return the number of reports whose studies have no image."""
    waiting = (ReportRow.collection_id == collection_id) & ReportRow.study.is_(None)
    return session.execute(select(func.count()).select_from(ReportRow).where(waiting)).scalar_one()


def remove_reports_of(
    session: Session, collection_id: int, patients: Collection[str], keys: Collection[str]
) -> int:
    """Remove the reports of patients, and those that wait for studies, and return their number.

    Args:
        session: The transaction.
        collection_id: Key of the collection.
        patients: Keyed hashes of patients.
        keys: Keys of studies, such as "study:1.2.3"; reports that images have go with these.
    """
    own = ReportRow.collection_id == collection_id
    count = _removed(session, own & ReportRow.patient.in_(list(patients))) if patients else 0
    # If a patient has several ids, the others are among the keys.
    matching = {*keys, *(f"patient:{patient}" for patient in patients)}
    if matching:
        query = select(ReportRow.id, ReportRow.keys).where(own, ReportRow.study.is_(None))
        rows = session.execute(query.execution_options(yield_per=AT_ONCE))
        ids = [row.id for row in rows if not matching.isdisjoint(row.keys)]
        for part in parts(ids):
            count += _removed(session, ReportRow.id.in_(part))
    return count


def images_of_people(
    session: Session, collection_id: int, patients: Collection[str], keys: Collection[str]
) -> list[str]:
    """Return the ids of the images of patients, by `patient` or group, and of studies, by their keys."""
    ours = (ImageRow.collection_id == collection_id) & ImageRow.group_name.in_(list(patients))
    ids = list(session.execute(select(ImageRow.external_id).where(ours)).scalars())
    for key in (*(f"{name}:{patient}" for name in PATIENT_FIELDS for patient in patients), *keys):
        ids += images_of(session, collection_id, key)
    return list(dict.fromkeys(ids))


def remove_report(session: Session, collection_id: int, digest: str) -> "tuple[str, StudyReport] | None":
    """Remove a report; return it with the key of the study that it was matched to, None if it was to none."""
    own = (ReportRow.collection_id == collection_id) & (ReportRow.digest == digest)
    row = session.execute(select(ReportRow).where(own, ReportRow.study.is_not(None))).scalar()
    removed = None if row is None or row.study is None else (row.study, _report(row))
    session.execute(delete(ReportRow).where(own))
    return removed


def studies_of(session: Session, collection_id: int, keys: Collection[int]) -> list[str]:
    """Return the keys of the studies that images, by their keys, belong to and that have reports."""
    query = select(ReportRow.study).where(ReportRow.collection_id == collection_id).distinct()
    rows = rows_among(session, query, ReportRow.study, study_keys(session, collection_id, keys))
    return [row.study for row in rows if row.study is not None]


def study_keys(session: Session, collection_id: int, keys: Collection[int]) -> set[str]:
    """Return the keys of the studies that images, by their keys, belong to, such as "study:1.2.3"."""
    query = select(AttributeRow.name, AttributeRow.text_value).where(
        AttributeRow.collection_id == collection_id,
        AttributeRow.image_id.in_(list(keys)),
        AttributeRow.name.in_(STUDY_FIELDS),
    )
    return {f"{name}:{value}" for name, value in session.execute(query)}


def without_images(session: Session, collection_id: int, studies: Collection[str]) -> set[str]:
    """Return those of the keys of studies that no image has."""
    left = {study: select(AttributeRow.image_id).where(_has(collection_id, study)) for study in studies}
    return {study for study, images in left.items() if session.execute(images.limit(1)).first() is None}


def remove_reports(session: Session, collection_id: int, studies: Sequence[str]) -> None:
    """Remove the reports of those studies that have no image any more."""
    for study in without_images(session, collection_id, studies):
        own = (ReportRow.collection_id == collection_id) & (ReportRow.study == study)
        session.execute(delete(ReportRow).where(own))


def _removed(session: Session, condition: ColumnElement[bool]) -> int:
    return len(session.execute(delete(ReportRow).where(condition).returning(ReportRow.id)).all())


def _report(row: ReportRow) -> "StudyReport":
    # Images are deleted where no report was ever taken.
    from training.clinical.reports.study_report import StudyReport
    from training.clinical.text.sections import Section

    sections = tuple(Section(cast("Kind", kind), heading, text) for kind, heading, text in row.sections)
    status = cast("Status", row.status)
    return StudyReport(tuple(row.keys), row.patient, row.identity, status, row.issued, sections)


def _has(collection_id: int, key: str) -> ColumnElement[bool]:
    name, _, value = key.partition(":")
    return (
        (AttributeRow.collection_id == collection_id)
        & (AttributeRow.name == name)
        & (AttributeRow.text_value == value)
    )


def _main_key(session: Session, collection_id: int, key: str) -> str:
    """Return the key that all reports of a study share: that of its UID, if its images have one."""
    if key.startswith(f"{STUDY_FIELDS[0]}:"):
        return key
    image_with_key = select(AttributeRow.image_id).where(_has(collection_id, key)).limit(1).scalar_subquery()
    query = select(AttributeRow.text_value).where(
        AttributeRow.image_id == image_with_key, AttributeRow.name == STUDY_FIELDS[0]
    )
    uid = session.execute(query.limit(1)).scalar()
    return key if uid is None else f"{STUDY_FIELDS[0]}:{uid}"


def forget_waiting(home: Home, collection: str, days: int, record: Callable[[Session, int], object]) -> int:
    """Remove the reports of studies that have had no image for some days, and return their number.

    Args:
        home: Home of the collection.
        collection: Name of the collection.
        days: Days since a report came; 0: all that wait are removed.
        record: Told, in the same transaction, how many there are, if any.
    """
    with home.catalogue.write() as session:
        own = ReportRow.collection_id == require_collection(session, collection).id
        waiting = own & ReportRow.study.is_(None)
        if days:
            waiting &= ReportRow.received <= (datetime.now(UTC).date() - timedelta(days=days)).isoformat()
        count = _removed(session, waiting)
        if count:
            record(session, count)
    return count
