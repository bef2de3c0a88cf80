"""Fields that no image has any more: filters and facets name them until they are removed."""

from contextlib import suppress
from typing import Any, Final

from sqlalchemy import delete, exists, select

from index.catalogue import Catalogue
from index.catalogue.collections import NOT_DELETED, next_sequence
from index.catalogue.tables import AttributeRow, CollectionRow, FieldRow
from index.errors import StaleWriteError

_UNUSED: Final[Any] = ~exists().where(
    AttributeRow.collection_id == FieldRow.collection_id,
    AttributeRow.name == FieldRow.name,
    AttributeRow.kind == FieldRow.kind,
)


def remove_unused_fields(catalogue: Catalogue) -> None:
    """Remove the fields of all collections that no image has a value of.

    Raises:
        CatalogueError: The catalogue cannot be used.
        DiskFullError: The disk has no space left for the catalogue.
    """
    query = select(FieldRow.collection_id).join(CollectionRow, CollectionRow.id == FieldRow.collection_id)
    with catalogue.read() as session:
        # Most often there are none, and nobody has to wait for a lock.
        collections = session.execute(query.where(NOT_DELETED, _UNUSED).distinct()).scalars().all()
    for collection_id in collections:
        # A collection that was removed meanwhile takes its fields with it.
        with suppress(StaleWriteError), catalogue.write() as session:
            # Writers of attributes take this number first.
            next_sequence(session, collection_id)
            session.execute(
                delete(FieldRow)
                .where(FieldRow.collection_id == collection_id, _UNUSED)
                .execution_options(synchronize_session=False)
            )
