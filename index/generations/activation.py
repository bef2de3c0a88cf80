"""Activation of generations, rollback, and how many old ones are kept for it."""

import logging
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from index.catalogue import PAUSE_SECONDS
from index.catalogue.collections import (
    EMBEDDINGS,
    Generation,
    find_generation,
    get_generation,
    lock_collection,
    next_sequence,
    now,
    require_collection,
)
from index.catalogue.lookup import count_images
from index.catalogue.tables import GenerationRow, ModelRow
from index.errors import (
    ActiveChangedError,
    GenerationError,
    IncompleteGenerationError,
    UnknownGenerationError,
    listed,
)
from index.files.bundles import changing_models, note_unused
from index.home import Home
from index.writes.deletion import collect_garbage
from index.writes.vectors import count_lacking, images_without_vectors
from training.common.errors import RecoquestError

_NAMED_MISSING: Final = 3
# Images, and texts of each, that are embedded within seconds.
_MAX_MISSING: Final = 1000
_TEXTS_AN_IMAGE: Final = 10
# A search that began before a swap may still be at work in the generation before.
_IN_USE_SECONDS: Final = 60
_ROWS_AT_ONCE: Final = 1000
_log = logging.getLogger(__name__)


def activate(
    session: Session, generation: Generation, *, texts: bool = False, instead_of: str | None = None
) -> None:
    """Make a generation the one that is searched, and retire the one before.

    Args:
        session: Session of a transaction of its own.
        generation: Generation to activate.
        texts: Whether its bundle has a text encoder, so that texts must have vectors too.
        instead_of: Digest of the only model that it may replace; None: any.

    Raises:
        ActiveChangedError: The active generation is of another model than `instead_of`; nothing changes.
        IncompleteGenerationError: Some images or texts of the collection have no vector in it; nothing
            changes.
    """
    # The collection's lock before the check: no writer may add an image after it.
    next_sequence(session, generation.collection_id)
    get_generation(session, generation.id)
    if instead_of is not None:
        _require_active_model(session, generation, instead_of)
    require_complete(session, generation, texts=texts)
    ours = GenerationRow.collection_id == generation.collection_id
    session.execute(
        update(GenerationRow).where(ours, GenerationRow.state == "active").values(state="retired")
    )
    activated = _later_than_all(session, generation.collection_id)
    values: dict[str, Any] = {"state": "active", "activated": activated}
    if instead_of is None:
        # A person has chosen it; the gate names the model that it compared.
        values["by_hand"] = True
    session.execute(update(GenerationRow).where(GenerationRow.id == generation.id).values(values))


def require_complete(session: Session, generation: Generation, *, texts: bool) -> None:
    """Refuse a generation that some images, or texts if `texts`, have no vector in.

    Raises:
        IncompleteGenerationError: The generation lacks vectors.
    """
    if images := count_lacking(session, generation):
        raise IncompleteGenerationError(_lacks_images(session, generation, images))
    if texts and (lacking := count_lacking(session, generation, "texts")):
        raise IncompleteGenerationError(
            f"Generation {generation.id} by {generation.model!r} lacks {lacking:,} texts of "
            f"{generation.collection!r}. {_catch_up(generation)}"
        )


def require_nearly_complete(session: Session, generation: Generation, *, texts: bool) -> None:
    """Refuse a generation that lacks more than what may have been written since it was complete.

    Raises:
        IncompleteGenerationError: The generation lacks more images, or texts if `texts`.
    """
    few = min(_MAX_MISSING, count_images(session, generation.collection_id) // 2)
    lacking = count_lacking(session, generation)
    if texts:
        lacking = max(lacking, count_lacking(session, generation, "texts") // _TEXTS_AN_IMAGE)
    if lacking > few:
        require_complete(session, generation, texts=texts)


def mark_preloading(session: Session, generation: Generation) -> None:
    """Make all services preload the encoder and the view of a generation that will soon be active."""
    session.execute(update(GenerationRow).where(GenerationRow.id == generation.id).values(announced=now()))


def generation_before(session: Session, collection: str) -> Generation:
    """Return the generation that was active before the one that is.

    Raises:
        UnknownGenerationError: No other was active, or it has been dropped.
    """
    row = require_collection(session, collection)
    before = (GenerationRow.state != "active", GenerationRow.activated.is_not(None))
    query = select(GenerationRow.id).where(GenerationRow.collection_id == row.id, *before)
    latest = query.order_by(GenerationRow.activated.desc(), GenerationRow.id.desc()).limit(1)
    number = session.execute(latest).scalar_one_or_none()
    if number is None:
        raise UnknownGenerationError(
            f"Collection {collection!r} cannot be rolled back: no other generation of it was active and is "
            f"still kept. `recoquest generations {collection}` lists the existing ones."
        )
    return get_generation(session, number)[0]


def generation_of(session: Session, collection: str, number: int) -> Generation:
    """Return a generation of a collection by its number."""
    row = require_collection(session, collection)
    query = select(GenerationRow.id).where(GenerationRow.collection_id == row.id)
    numbers = session.execute(query.order_by(GenerationRow.id.desc())).scalars().all()
    if number not in numbers:
        numbered = listed([str(numbered) for numbered in numbers]) or "none"
        raise UnknownGenerationError(
            f"Collection {collection!r} has no generation {number}; it has {numbered}."
        )
    return get_generation(session, number)[0]


def _require_active_model(session: Session, generation: Generation, digest: str) -> None:
    active = find_generation(session, generation.collection_id, "active")
    if active is None or active.digest != digest:
        current = "nothing" if active is None else f"{active.model!r} (generation {active.id})"
        raise ActiveChangedError(
            f"{generation.collection!r} is now searched with {current}, which generation {generation.id} by "
            f"{generation.model!r} was not to replace: nothing was changed."
        )


def _later_than_all(session: Session, collection_id: int) -> str:
    """Return the time, or one right after the last activation if the clock has been put back since."""
    last = session.execute(
        select(func.max(GenerationRow.activated)).where(GenerationRow.collection_id == collection_id)
    ).scalar_one()
    stamp = now()
    if last is None or stamp > last:
        return stamp
    return (datetime.fromisoformat(last) + timedelta(microseconds=1)).isoformat(timespec="microseconds")


def _lacks_images(session: Session, generation: Generation, missing: int) -> str:
    total = count_images(session, generation.collection_id)
    named = images_without_vectors(session, generation, limit=_NAMED_MISSING)
    names = ", ".join(image.id for image in named) + (", ..." if missing > len(named) else "")
    active = find_generation(session, generation.collection_id, "active")
    stays = "" if active is None else f" Generation {active.id} by {active.model!r} stays active."
    return (
        f"Generation {generation.id} by {generation.model!r} lacks {missing:,} of the {total:,} images of "
        f"{generation.collection!r} ({names}).{stays} {_catch_up(generation)}"
    )


def _catch_up(generation: Generation) -> str:
    return f"To embed them: `recoquest reindex {generation.collection} --generation {generation.id}`."


def drop_old_generations(home: Home, collection: str, keep: int) -> list[int]:
    """Drop the generations of a collection that were active, but for the last `keep`; return their numbers.

    One that was searched a minute ago stays until the next time, and one that a person has ever activated
    until it is named; see `old_by_hand`.
    """
    old = _old(home, collection, keep)
    for generation in old:
        _drop(home, generation)
    return [generation.id for generation in old]


def old_by_hand(home: Home, collection: str, keep: int) -> list[int]:
    """Return the numbers of old generations that stay only because a person has activated them."""
    return [generation.id for generation in _old(home, collection, keep, by_hand=True)]


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
        GenerationError: The collection has no such generation, or the generation is active.
    """
    with home.catalogue.read() as session:
        generation = generation_of(session, collection, number)
        active = find_generation(session, generation.collection_id, "active")
    if active is not None and active.id == number:
        raise GenerationError(f"Generation {number} is the one that {collection!r} is searched in: it stays.")
    _drop(home, generation)


def _old(home: Home, collection: str, keep: int, *, by_hand: bool = False) -> list[Generation]:
    since = (datetime.now(UTC) - timedelta(seconds=_IN_USE_SECONDS)).isoformat(timespec="microseconds")
    columns = select(GenerationRow.id, GenerationRow.state, GenerationRow.activated, GenerationRow.by_hand)
    latest = columns.order_by(GenerationRow.activated.desc(), GenerationRow.id.desc())
    old: list[Generation] = []
    before, at, retired_at = 0, "", ""
    with home.catalogue.read() as session:
        ours = GenerationRow.collection_id == require_collection(session, collection).id
        for row in session.execute(latest.where(ours, GenerationRow.activated.is_not(None))).all():
            # A generation was retired when the next one became active.
            if row.activated != at:
                at, retired_at = row.activated, at or row.activated
            if row.state == "active":
                continue
            before += 1
            if before > keep and row.state == "retired" and row.by_hand == by_hand and retired_at < since:
                old.append(get_generation(session, row.id)[0])
    return old


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
    for table, key in EMBEDDINGS.values():
        some = select(key).where(table.generation_id == generation.id).limit(_ROWS_AT_ONCE)
        keys = session.execute(some).scalars().all()
        if keys:
            session.execute(delete(table).where(table.generation_id == generation.id, key.in_(keys)))
            return True
    return False
