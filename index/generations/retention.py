"""Old generations: how many are kept to roll back to, and how the others go."""

import logging
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import delete, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from index.catalogue import PAUSE_SECONDS
from index.catalogue.collections import (
    Generation,
    find_generation,
    get_generation,
    lock_collection,
    next_sequence,
    require_collection,
)
from index.catalogue.tables import EmbeddingRow, GenerationRow, ModelRow, TextEmbeddingRow
from index.errors import GenerationError
from index.files.bundles import changing_models, note_unused
from index.generations.activation import generation_of
from index.home import Home
from index.writes.deletion import collect_garbage
from training.common.errors import RecoquestError

# A search that began before a swap may still be at work in the generation before.
_IN_USE_SECONDS: Final = 60
_ROWS_AT_ONCE: Final = 1000
_VECTORS: Final[
    tuple[tuple[type[EmbeddingRow] | type[TextEmbeddingRow], InstrumentedAttribute[int]], ...]
] = (
    (EmbeddingRow, EmbeddingRow.image_id),
    (TextEmbeddingRow, TextEmbeddingRow.text_id),
)

_log = logging.getLogger(__name__)


def drop_old_generations(home: Home, collection: str, keep: int) -> list[int]:
    """Drop the generations of a collection that were active, but for the last `keep` before the present one.

    One that was searched a minute ago stays until the next time, and one that a person has ever activated
    until it is named; see `old_by_hand`.

    Args:
        home: Home of the collection.
        collection: Name of the collection.
        keep: Number of generations to keep for a rollback.

    Returns:
        The numbers of those that were dropped.

    Raises:
        UnknownCollectionError: No collection has this name.
        StoreError: The disk does not take the note of a bundle that is to go.
    """
    with home.catalogue.read() as session:
        old = _old(session, require_collection(session, collection).id, keep)
    for generation in old:
        _drop(home, generation)
    return [generation.id for generation in old]


def old_by_hand(home: Home, collection: str, keep: int) -> list[int]:
    """Return the numbers of old generations that stay only because a person has activated them."""
    with home.catalogue.read() as session:
        old = _old(session, require_collection(session, collection).id, keep, by_hand=True)
    return [generation.id for generation in old]


def try_drop_old_generations(home: Home, collection: str, keep: int) -> list[int]:
    """Do what `drop_old_generations` does, after work that is done; an error is logged, and nothing named.

    What stays is dropped the next time.
    """
    try:
        return drop_old_generations(home, collection, keep)
    except RecoquestError as error:
        _log.warning("old generations of %r are not dropped yet: %s", collection, error)
        return []


def drop_generation(home: Home, collection: str, number: int) -> None:
    """Drop one generation of a collection, such as one that is never to be finished.

    Raises:
        UnknownCollectionError: No collection has this name.
        GenerationError: The collection has no such generation, or the generation is active.
        StoreError: The disk does not take the note of a bundle that is to go.
    """
    with home.catalogue.read() as session:
        generation = generation_of(session, collection, number)
        active = find_generation(session, generation.collection_id, "active")
    if active is not None and active.id == number:
        raise GenerationError(f"Generation {number} is the one that {collection!r} is searched in: it stays.")
    _drop(home, generation)


def _old(session: Session, collection_id: int, keep: int, *, by_hand: bool = False) -> list[Generation]:
    query = (
        select(GenerationRow.id, GenerationRow.state, GenerationRow.activated, GenerationRow.by_hand)
        .where(GenerationRow.collection_id == collection_id, GenerationRow.activated.is_not(None))
        .order_by(GenerationRow.activated.desc(), GenerationRow.id.desc())
    )
    rows = session.execute(query).all()
    since = (datetime.now(UTC) - timedelta(seconds=_IN_USE_SECONDS)).isoformat(timespec="microseconds")
    before = [row for row in rows if row.state != "active"]
    # A generation was retired when the next one became active.
    retired_at = {row.id: _next_activation(rows, row.activated) for row in before}
    return [
        get_generation(session, row.id)[0]
        for row in before[keep:]
        if row.state == "retired" and row.by_hand == by_hand and retired_at[row.id] < since
    ]


def _next_activation(rows: Any, activated: str) -> str:
    return min((row.activated for row in rows if row.activated > activated), default=activated)


def _drop(home: Home, generation: Generation) -> None:
    """Remove a generation's vectors batch by batch, then itself, its snapshots and its bundle if unused."""
    left = True
    while left:
        with home.catalogue.write() as session:
            left = _drop_batch(session, generation)
        time.sleep(PAUSE_SECONDS)
    with changing_models(home.bundles_folder), home.catalogue.write() as session:
        # The number locks embedders out: what they have written since goes too, and no more comes.
        next_sequence(session, generation.collection_id)
        while _drop_batch(session, generation):
            pass
        session.execute(delete(GenerationRow).where(GenerationRow.id == generation.id))
        uses = select(GenerationRow.id).join(ModelRow, ModelRow.id == GenerationRow.model_id)
        if session.execute(uses.where(ModelRow.digest == generation.digest).limit(1)).first() is None:
            note_unused(home.bundles_folder, generation.digest)
            session.execute(delete(ModelRow).where(ModelRow.digest == generation.digest))
    # Files that stay on the disk are removed by the next collection of garbage.
    with suppress(RecoquestError):
        collect_garbage(home)


def _drop_batch(session: Session, generation: Generation) -> bool:
    """Remove some vectors of images or texts; return whether there were any."""
    # A writer may be removing the same in another order.
    lock_collection(session, generation.collection_id)
    state = session.execute(
        select(GenerationRow.state).where(GenerationRow.id == generation.id).with_for_update()
    ).scalar_one_or_none()
    if state == "active":
        raise GenerationError(f"Generation {generation.id} was activated meanwhile: it stays.")
    for table, key in _VECTORS:
        some = select(key).where(table.generation_id == generation.id).limit(_ROWS_AT_ONCE)
        keys = session.execute(some).scalars().all()
        if keys:
            session.execute(delete(table).where(table.generation_id == generation.id, key.in_(keys)))
            return True
    return False
