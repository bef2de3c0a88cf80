"""The step that makes a generation the one that is searched, what comes before it, and the step back."""

from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from index.catalogue.collections import (
    Generation,
    find_generation,
    get_generation,
    next_sequence,
    now,
    require_collection,
)
from index.catalogue.lookup import count_images
from index.catalogue.tables import GenerationRow
from index.errors import ActiveChangedError, IncompleteGenerationError, UnknownGenerationError, listed
from index.writes.vectors import count_missing_images, count_texts_without_vectors, images_without_vectors

_NAMED_MISSING: Final = 3
# Images, and texts of each, that are embedded within seconds.
_MAX_MISSING: Final = 1000
_TEXTS_AN_IMAGE: Final = 10


def activate(
    session: Session, generation: Generation, *, texts: bool = False, instead_of: str | None = None
) -> None:
    """Make a generation the one that is searched, and retire the one before.

    Args:
        session: Session of a transaction of its own.
        generation: Generation to activate.
        texts: Whether its bundle has a text encoder, so that texts must have vectors too.
        instead_of: Digest of the only model that it may take the place of; None: of any.

    Raises:
        ActiveChangedError: The active generation is of another model than `instead_of`; nothing changes.
        IncompleteGenerationError: Some images or texts of the collection have no vector in it; nothing
            changes.
        GenerationError: The generation is gone.
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
    values: dict[str, Any] = {"state": "active"}
    values["activated"] = _later_than_all(session, generation.collection_id)
    if instead_of is None:
        # A person has chosen it; the gate names the model that it compared.
        values["by_hand"] = True
    session.execute(update(GenerationRow).where(GenerationRow.id == generation.id).values(values))


def require_complete(session: Session, generation: Generation, *, texts: bool) -> None:
    """Refuse a generation that some images, or texts if `texts`, have no vector in.

    Raises:
        IncompleteGenerationError: The generation lacks vectors.
    """
    if images := count_missing_images(session, generation):
        raise IncompleteGenerationError(_lacks_images(session, generation, images))
    if texts and (lacking := count_texts_without_vectors(session, generation)):
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
    lacking = count_missing_images(session, generation)
    if texts:
        lacking = max(lacking, count_texts_without_vectors(session, generation) // _TEXTS_AN_IMAGE)
    if lacking > few:
        require_complete(session, generation, texts=texts)


def mark_preloading(session: Session, generation: Generation) -> None:
    """Make all services preload the encoder and the view of a generation that will soon be active."""
    session.execute(update(GenerationRow).where(GenerationRow.id == generation.id).values(announced=now()))


def generation_before(session: Session, collection: str) -> Generation:
    """Return the generation that was active before the one that is.

    Raises:
        UnknownCollectionError: No collection has this name.
        UnknownGenerationError: No other was active, or it has been dropped.
    """
    row = require_collection(session, collection)
    query = (
        select(GenerationRow.id)
        .where(
            GenerationRow.collection_id == row.id,
            GenerationRow.state != "active",
            GenerationRow.activated.is_not(None),
        )
        .order_by(GenerationRow.activated.desc(), GenerationRow.id.desc())
        .limit(1)
    )
    number = session.execute(query).scalar_one_or_none()
    if number is None:
        raise UnknownGenerationError(
            f"Collection {collection!r} cannot be rolled back: no other generation of it was active and is "
            f"still kept. `recoquest generations {collection}` lists those that there are."
        )
    return get_generation(session, number)[0]


def generation_of(session: Session, collection: str, number: int) -> Generation:
    """Return a generation of a collection by its number.

    Raises:
        UnknownCollectionError: No collection has this name.
        UnknownGenerationError: The collection has no such generation.
    """
    row = require_collection(session, collection)
    numbers = (
        session.execute(
            select(GenerationRow.id).where(GenerationRow.collection_id == row.id).order_by(GenerationRow.id)
        )
        .scalars()
        .all()
    )
    if number not in numbers:
        known = listed([str(known) for known in reversed(numbers)]) or "none"
        raise UnknownGenerationError(f"Collection {collection!r} has no generation {number}; it has {known}.")
    return get_generation(session, number)[0]


def _require_active_model(session: Session, generation: Generation, digest: str) -> None:
    active = find_generation(session, generation.collection_id, "active")
    if active is None or active.digest != digest:
        found = "nothing" if active is None else f"{active.model!r} (generation {active.id})"
        raise ActiveChangedError(
            f"{generation.collection!r} is searched with {found} by now, which generation {generation.id} by "
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
