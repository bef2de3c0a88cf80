"""Case lists of a collection: images that people keep under a name, with a note each."""

import hashlib
from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from index.catalogue.collections import lock_collection, now, require_collection
from index.catalogue.images import require_image
from index.catalogue.lookup import storable_text
from index.catalogue.tables import CaseEntryRow, CaseListRow, ImageRow
from index.errors import (
    CaseListExistsError,
    CasesFullError,
    ConditionError,
    QueryError,
    UnknownCaseListError,
    shortened,
)
from index.feedback import User
from index.writes.live import UNCONDITIONAL, Condition

MAX_LISTS: Final = 200
MAX_ENTRIES: Final = 1000
_DIGITS: Final = 32


class CaseList(NamedTuple):
    """A list of cases.

    Attributes:
        id: Identifier within the collection.
        name: Name, as people read it.
        entries: Number of its images.
        created: Time in ISO 8601.
    """

    id: str
    name: str
    entries: int
    created: str

    @property
    def revision(self) -> str:
        """Names the list with its name; images that come and go leave it as it is."""
        return _revision(self.name, self.created)


class CaseEntry(NamedTuple):
    """An image in a list.

    Attributes:
        position: Rises with the order in which images came into the list.
        key: Key of the image.
        image: Id of the image.
        note: Note on it; empty without one.
        saved: Time in ISO 8601 at which the note was last written.
        user: The user who wrote it; None if users aren't distinguished.
    """

    position: int
    key: int
    image: str
    note: str
    saved: str
    user: User | None

    @property
    def revision(self) -> str:
        """Names the note as it was last written."""
        return _revision(self.note, self.saved)


def case_lists(session: Session, collection: str) -> list[CaseList]:
    """Return the lists of a collection, by name."""
    return _read(session, require_collection(session, collection).id)


def put_list(
    session: Session, collection: str, list_id: str, name: str, condition: Condition = UNCONDITIONAL
) -> tuple[CaseList, bool]:
    """Begin a list, or give it another name.

    Returns:
        The list, and whether it was there before.

    Raises:
        UnknownCollectionError: No collection has this name.
        QueryError: The name cannot be stored.
        ConditionError: The condition does not hold.
        CaseListExistsError: Another list of the collection has this name.
        CasesFullError: The collection has as many lists as it may have.
    """
    _check(name, "name")
    key = require_collection(session, collection).id
    lock_collection(session, key)
    row = session.get(CaseListRow, (key, list_id))
    existed = row is not None
    state = "is none" if row is None else f"is named {row.name!r}"
    _meet(
        condition,
        None if row is None else _revision(row.name, row.created),
        f"The list {shortened(list_id)!r} {state} now",
    )
    if row is None:
        count = select(func.count()).select_from(CaseListRow).where(CaseListRow.collection_id == key)
        if session.execute(count).scalar_one() >= MAX_LISTS:
            raise CasesFullError(
                f"The collection has {MAX_LISTS} lists, as many as it may have: remove one first."
            )
        row = CaseListRow(collection_id=key, id=list_id, created=now())
    named = select(CaseListRow.id).where(
        CaseListRow.collection_id == key, CaseListRow.name == name, CaseListRow.id != list_id
    )
    if session.execute(named).first() is not None:
        raise CaseListExistsError(name)
    row.name = name
    session.add(row)
    session.flush()
    return _read(session, key, list_id)[0], existed


def delete_list(session: Session, collection: str, list_id: str) -> None:
    """Remove a list with its notes; its images stay."""
    row = _require_list(session, collection, list_id)
    session.delete(row)


def save_case(
    session: Session,
    collection: str,
    list_id: str,
    image: str,
    note: str | None,
    user: User | None = None,
    condition: Condition = UNCONDITIONAL,
) -> tuple[CaseEntry, bool]:
    """Put an image into a list at its end, or change its note where it is; None leaves a note as it is.

    Returns:
        The image in the list, and whether it was there before.

    Raises:
        UnknownCollectionError: No collection has this name.
        UnknownCaseListError: The collection has no such list.
        UnknownImageError: The collection has no such image.
        ConditionError: The condition does not hold.
        QueryError: The note cannot be stored.
        CasesFullError: The list has as many images as it may have.
    """
    _check(note or "", "note")
    # The lock excludes removal of the image and another image at the same position.
    lock_collection(session, require_collection(session, collection).id)
    own = _require_list(session, collection, list_id)
    key = require_image(session, collection, image).id
    row = session.get(CaseEntryRow, (own.collection_id, list_id, key))
    existed = row is not None
    state = "is not in the list" if row is None else "has another note"
    _meet(
        condition,
        None if row is None else _revision(row.note, row.saved),
        f"The image {shortened(image)!r} {state} now",
    )
    if row is None:
        ends = select(func.count(), func.max(CaseEntryRow.position)).where(*_in_list(own))
        count, last = session.execute(ends).one()
        if count >= MAX_ENTRIES:
            raise CasesFullError(
                f"The list has {MAX_ENTRIES:,} images, as many as it may have: begin another one."
            )
        position = 0 if last is None else last + 1
        row = CaseEntryRow(collection_id=own.collection_id, list_id=list_id, image_id=key, position=position)
    if note is not None or not existed:
        row.note, row.saved = note or "", now()
        row.user_id, row.user_name = (None, None) if user is None else user
    session.add(row)
    return _entry(row, image), existed


def remove_case(session: Session, collection: str, list_id: str, image: str) -> bool:
    """Take an image out of a list with its note, and return whether it was in it."""
    own = _require_list(session, collection, list_id)
    key = require_image(session, collection, image).id
    row = session.get(CaseEntryRow, (own.collection_id, list_id, key))
    if row is not None:
        session.delete(row)
    return row is not None


def read_list(
    session: Session, collection: str, list_id: str, *, after: int = -1, limit: int = MAX_ENTRIES
) -> tuple[CaseList, list[CaseEntry]]:
    """Return a list and its images behind a position, in the order in which they came into it."""
    own = _require_list(session, collection, list_id)
    query = (
        select(CaseEntryRow, ImageRow.external_id)
        .join(ImageRow, ImageRow.id == CaseEntryRow.image_id)
        .where(*_in_list(own), CaseEntryRow.position > after)
        .order_by(CaseEntryRow.position)
        .limit(limit)
    )
    entries = [_entry(entry, image) for entry, image in session.execute(query)]
    return _read(session, own.collection_id, list_id)[0], entries


def _require_list(session: Session, collection: str, list_id: str) -> CaseListRow:
    key = require_collection(session, collection).id
    row = session.get(CaseListRow, (key, list_id)) if storable_text(list_id) else None
    if row is None:
        raise UnknownCaseListError(list_id)
    return row


def _in_list(row: CaseListRow) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Return the conditions for the entries of a list."""
    return CaseEntryRow.collection_id == row.collection_id, CaseEntryRow.list_id == row.id


def _read(session: Session, collection_id: int, list_id: str | None = None) -> list[CaseList]:
    counted = (CaseEntryRow.collection_id == CaseListRow.collection_id) & (
        CaseEntryRow.list_id == CaseListRow.id
    )
    query = (
        select(CaseListRow.id, CaseListRow.name, func.count(CaseEntryRow.image_id), CaseListRow.created)
        .outerjoin(CaseEntryRow, counted)
        .where(CaseListRow.collection_id == collection_id)
        .group_by(CaseListRow.id, CaseListRow.name, CaseListRow.created)
        .order_by(CaseListRow.name)
    )
    if list_id is not None:
        query = query.where(CaseListRow.id == list_id)
    return [CaseList(*row) for row in session.execute(query)]


def _entry(row: CaseEntryRow, image: str) -> CaseEntry:
    user = None if row.user_id is None else User(row.user_id, row.user_name or "")
    return CaseEntry(row.position, row.image_id, image, row.note, row.saved, user)


def _meet(condition: Condition, revision: str | None, now_is: str) -> None:
    """Refuse a write unless the present revision meets its condition."""
    if not condition.holds(revision):
        raise ConditionError(
            f"{now_is}, and nothing was written: look at it again, and send its present ETag.", revision
        )


def _revision(text: str, time: str) -> str:
    return hashlib.sha256(f"{time}\n{text}".encode()).hexdigest()[:_DIGITS]


def _check(text: str, field: str) -> None:
    if not storable_text(text):
        raise QueryError("The text holds a character that cannot be stored.", field=field)
