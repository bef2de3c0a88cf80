"""Collections and generations in the catalogue: finding them and beginning them."""

import re
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from sqlalchemy import bindparam, delete, func, select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import InstrumentedAttribute, Session

from index.catalogue.lookup import storable_text
from index.catalogue.tables import (
    AliasRow,
    CollectionRow,
    EmbeddingRow,
    FormerNameRow,
    GenerationRow,
    ModelRow,
    TextEmbeddingRow,
)
from index.errors import (
    CollectionExistsError,
    CollectionNameError,
    GenerationError,
    NoActiveGenerationError,
    StaleWriteError,
    UnknownCollectionError,
    shortened,
)

GenerationState = Literal["building", "active", "retired"]
# Kinds of vectors that a generation has.
Target = Literal["images", "texts"]
TARGETS: Final[tuple[Target, ...]] = ("images", "texts")
# The vectors of each kind, and the key of what they are of.
EMBEDDINGS: Final[
    dict[Target, tuple[type[EmbeddingRow] | type[TextEmbeddingRow], InstrumentedAttribute[int]]]
] = {
    "images": (EmbeddingRow, EmbeddingRow.image_id),
    "texts": (TextEmbeddingRow, TextEmbeddingRow.text_id),
}
# A collection whose name begins with this, which no user can choose, is being removed.
_HIDDEN: Final = "~"
NOT_DELETED: Final = ~CollectionRow.__table__.c.name.startswith(_HIDDEN)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
# A preloaded generation is active within this time, or its swap has failed.
_PRELOAD_SECONDS: Final = 300
_OPENED: Final[tuple[GenerationState, ...]] = ("active", "building", "retired")


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation with what never changes of it."""

    id: int
    uid: str
    collection_id: int
    collection: str
    model: str
    digest: str
    dim: int
    blades: int
    unsigned: bool


def require_collection(session: Session, name: str) -> CollectionRow:
    """Return a collection, or raise `UnknownCollectionError`."""
    row = None
    if storable_text(name):
        named = select(CollectionRow).where(CollectionRow.name == name, NOT_DELETED)
        row = session.execute(named).scalar_one_or_none()
    if row is None:
        names = select(CollectionRow.name).where(NOT_DELETED).order_by(CollectionRow.name)
        names_there = session.execute(names).scalars().all()
        raise UnknownCollectionError(name, list(names_there))
    return row


def add_collection(session: Session, name: str) -> CollectionRow:
    """Make a collection.

    Raises:
        CollectionNameError: The name is not valid.
        CollectionExistsError: A collection or an alias has this name already.
    """
    check_name(name)
    lock_names(session)
    if session.get(AliasRow, name) is not None:
        raise CollectionExistsError(name, alias=True)
    row = CollectionRow(name=name, sequence=0)
    try:
        with session.begin_nested():
            session.add(row)
    except IntegrityError:
        raise CollectionExistsError(name) from None
    return row


def _get_or_add_collection(session: Session, name: str) -> CollectionRow:
    check_name(name)
    named = select(CollectionRow).where(CollectionRow.name == name)
    row = session.execute(named).scalar_one_or_none()
    if row is not None:
        return row
    try:
        return add_collection(session, name)
    except CollectionExistsError:
        # Another process has just made it.
        return session.execute(named).scalar_one()


def check_name(name: str) -> None:
    """Make sure that a collection or an alias can have a name.

    Raises:
        CollectionNameError: None can.
    """
    if not _NAME.fullmatch(name):
        raise CollectionNameError(
            f"{shortened(name)!r} cannot name a collection: use up to 100 letters, digits, dots, hyphens and "
            "underscores, and begin with a letter or digit."
        )


def lock_names(session: Session) -> None:
    """Let one transaction at a time give names to collections and aliases; SQLite does so for all writes."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text(f"LOCK TABLE {AliasRow.__tablename__} IN SHARE ROW EXCLUSIVE MODE"))


def names_of(session: Session, collection: str) -> list[str]:
    """Return the name of a collection and those that it had before, under which the audit trail has it."""
    row = require_collection(session, collection)
    query = select(FormerNameRow.name).where(
        FormerNameRow.collection_id == row.id, FormerNameRow.name != collection
    )
    return [collection, *session.execute(query.order_by(FormerNameRow.name)).scalars()]


def called_now(session: Session, former: str) -> str | None:
    """Return the present name of a collection that had this name before; None: none had, or is there."""
    query = (
        select(CollectionRow.name)
        .join(FormerNameRow, FormerNameRow.collection_id == CollectionRow.id)
        .where(FormerNameRow.name == former, CollectionRow.name != former, NOT_DELETED)
    )
    return session.execute(query.order_by(CollectionRow.id.desc()).limit(1)).scalar()


def hide_collection(session: Session, name: str) -> None:
    """Hide a collection: its name becomes free, and further writes to it are refused.

    Aliases of it go.
    """
    lock_names(session)
    row = require_collection(session, name)
    # A write in progress finishes first.
    next_sequence(session, row.id)
    session.execute(delete(AliasRow).where(AliasRow.collection_id == row.id))
    row.name = f"{_HIDDEN}{row.id}"
    generations = update(GenerationRow).where(GenerationRow.collection_id == row.id)
    session.execute(generations.values(state="retired", announced=None))


def lock_collection(session: Session, collection_id: int) -> None:
    """Let no other writer to a collection begin before the transaction ends; a removed one is ignored.

    On SQLite the transaction itself is the lock.
    """
    session.execute(select(CollectionRow.id).where(CollectionRow.id == collection_id).with_for_update())


def next_sequence(session: Session, collection_id: int) -> int:
    """Take the collection's next sequence number; until the transaction ends no other writer can.

    Raises:
        StaleWriteError: The collection was removed.
    """
    sequence = session.execute(
        update(CollectionRow)
        .where(CollectionRow.id == collection_id, NOT_DELETED)
        .values(sequence=CollectionRow.sequence + 1)
        .returning(CollectionRow.sequence)
        .execution_options(synchronize_session=False)
    ).scalar_one_or_none()
    if sequence is None:
        raise StaleWriteError("The collection was removed meanwhile, and nothing was written.")
    return sequence


def now() -> str:
    """Return the time as the catalogue keeps it: UTC, so that later times are greater texts."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def get_generation(session: Session, generation_id: int) -> tuple[Generation, int]:
    """Return a generation and the sequence number of its collection, or raise `GenerationError`."""
    row = session.execute(_ONE_GENERATION, {"generation_id": generation_id}).one_or_none()
    if row is None:
        raise GenerationError(f"There is no generation {generation_id}.")
    *values, sequence = row
    return Generation(*values), sequence


def refuse_retired(session: Session, generation: Generation) -> None:
    """Refuse further writes to a generation that was replaced or dropped since the writer began.

    Raises:
        GenerationError: The generation was removed or retired, so that its new vectors would not be found.
    """
    state = session.execute(select(GenerationRow.state).where(GenerationRow.id == generation.id)).scalar()
    if state is None:
        raise GenerationError(
            f"Generation {generation.id} of {generation.collection!r} was dropped since this run began: run "
            "it again."
        )
    if state == "retired":
        raise GenerationError(
            f"{generation.collection!r} has been searched with another bundle since this run began: run it "
            "again with that bundle."
        )


def find_generation(
    session: Session, collection_id: int, state: GenerationState, digest: str | None = None
) -> Generation | None:
    """Return the latest generation of a collection in this state, of a certain bundle or of any."""
    query = _GENERATIONS.where(
        _GENERATION_COLUMNS.collection_id == collection_id, _GENERATION_COLUMNS.state == state
    )
    if digest is not None:
        query = query.where(_MODEL_COLUMNS.digest == digest)
    row = session.execute(query.order_by(_GENERATION_COLUMNS.id.desc()).limit(1)).one_or_none()
    return None if row is None else Generation(*row)


def find_active(session: Session, collection: str) -> tuple[Generation, int] | None:
    """Return the active generation of a collection and the collection's sequence number, if there is one."""
    if not storable_text(collection):
        return None
    row = session.execute(_ACTIVE_GENERATION, {"collection": collection}).one_or_none()
    if row is None:
        return None
    *values, sequence = row
    return Generation(*values), sequence


def require_active(session: Session, collection: str) -> tuple[Generation, int]:
    """Return the active generation of a collection and the collection's sequence number."""
    active = find_active(session, collection)
    if active is None:
        require_collection(session, collection)
        raise NoActiveGenerationError(collection)
    return active


def count_embeddings(session: Session, generation: Generation, target: Target = "images") -> int:
    """Return the number of embeddings of a generation, of images or of texts."""
    table, _ = EMBEDDINGS[target]
    query = select(func.count()).where(table.generation_id == generation.id)
    return session.execute(query).scalar_one()


def add_generation(session: Session, collection_id: int, model_id: int) -> Generation:
    """Begin a generation of a collection by a registered bundle."""
    row = GenerationRow(
        collection_id=collection_id,
        model_id=model_id,
        uid=uuid.uuid4().hex,
        state="building",
        created=now(),
    )
    session.add(row)
    session.flush()
    return get_generation(session, row.id)[0]


def find_any(session: Session, collection_id: int, digest: str) -> Generation | None:
    """Return a bundle's generation of a collection: the active one, otherwise one being built, or retired."""
    generations = (find_generation(session, collection_id, state, digest) for state in _OPENED)
    return next((generation for generation in generations if generation is not None), None)


def open_generation(session: Session, collection: str, model: ModelRow) -> Generation:
    """Return the generation of a collection by a bundle that images are to be put into, begun if needed.

    The active one comes first, then the one being built, then a retired one, whose embeddings are still
    valid.
    """
    row = _get_or_add_collection(session, collection)
    # Another process may be adding one at the same time.
    lock_collection(session, row.id)
    generation = find_any(session, row.id, model.digest)
    if generation is None:
        return add_generation(session, row.id, model.id)
    retired = (GenerationRow.id == generation.id, GenerationRow.state == "retired")
    session.execute(update(GenerationRow).where(*retired).values(state="building"))
    return generation


# On tables and not on mapped classes, which cost more: every search runs some of these.
_COLLECTION_COLUMNS: Final = CollectionRow.__table__.c
_GENERATION_COLUMNS: Final = GenerationRow.__table__.c
_MODEL_COLUMNS: Final = ModelRow.__table__.c
_GENERATIONS: Final = (
    select(
        _GENERATION_COLUMNS.id,
        _GENERATION_COLUMNS.uid,
        _GENERATION_COLUMNS.collection_id,
        _COLLECTION_COLUMNS.name,
        _MODEL_COLUMNS.name,
        _MODEL_COLUMNS.digest,
        _MODEL_COLUMNS.dim,
        _MODEL_COLUMNS.blades,
        _MODEL_COLUMNS.unsigned,
    )
    .join_from(
        GenerationRow.__table__,
        CollectionRow.__table__,
        _COLLECTION_COLUMNS.id == _GENERATION_COLUMNS.collection_id,
    )
    .join(ModelRow.__table__, _MODEL_COLUMNS.id == _GENERATION_COLUMNS.model_id)
    .where(NOT_DELETED)
)
_ONE_GENERATION: Final = _GENERATIONS.add_columns(_COLLECTION_COLUMNS.sequence).where(
    _GENERATION_COLUMNS.id == bindparam("generation_id")
)
_ACTIVE_GENERATION: Final = _GENERATIONS.add_columns(_COLLECTION_COLUMNS.sequence).where(
    _COLLECTION_COLUMNS.name == bindparam("collection"), _GENERATION_COLUMNS.state == "active"
)


def preloading(session: Session) -> list[Generation]:
    """Return the generations of all collections that services should preload: lately announced, inactive."""
    since = (datetime.now(UTC) - timedelta(seconds=_PRELOAD_SECONDS)).isoformat(timespec="microseconds")
    query = select(GenerationRow.id).where(GenerationRow.state != "active", GenerationRow.announced > since)
    return [get_generation(session, number)[0] for number in session.execute(query).scalars().all()]
