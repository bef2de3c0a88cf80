"""Models and generations as lists show them, and new collections without images."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from index.catalogue.collections import (
    NOT_DELETED,
    add_collection,
    add_generation,
    count_embeddings,
    get_generation,
    require_collection,
)
from index.catalogue.tables import CollectionRow, GenerationRow, ModelRow
from index.errors import NoActiveGenerationError, UnknownModelError, UnregisteredModelError, shortened
from index.files.bundles import installed_bundle, register_bundle
from index.generations.activation import activate
from index.generations.comparison import Comparison
from index.home import Home
from index.writes.vectors import count_lacking
from training.common.errors import BundleError
from training.models.bundle import BundleInfo, read_bundle

_SHOWN: Final = 5
# Length of a digest in lists.
_SHORT_DIGEST: Final = 12


@dataclass(frozen=True, slots=True)
class GenerationInfo:
    """A generation with its state; times are in ISO 8601, None where nobody wrote them down.

    Attributes:
        images: Images that have a vector in it.
        texts: Texts that have one.
        missing: Images of the collection that have none in it.
        comparison: Metrics of this generation and of the one that was active.
    """

    collection: str
    number: int
    state: str
    model: str
    digest: str
    images: int
    texts: int
    missing: int
    created: str | None
    activated: str | None
    comparison: Comparison | None


def register_model(home: Home, folder: Path) -> BundleInfo:
    """Copy a bundle to the others and write it down, so that collections can be embedded with it.

    One that is registered already stays as it is.

    Raises:
        BundleError: The folder doesn't contain a complete bundle, or it cannot be copied.
    """
    with (
        installed_bundle(read_bundle(folder), home.bundles_folder) as info,
        home.catalogue.write() as session,
    ):
        register_bundle(session, info)
    return info


def require_model(session: Session, digest: str) -> ModelRow:
    """Return a registered model by its full digest."""
    row = session.execute(select(ModelRow).where(ModelRow.digest == digest)).scalar_one_or_none()
    if row is None:
        raise UnregisteredModelError(digest)
    return row


def find_model(session: Session, model: str) -> ModelRow:
    """Return a registered model by its digest, its name, or the beginning of its digest that lists show."""
    rows = session.execute(select(ModelRow).order_by(ModelRow.id.desc())).scalars().all()
    matches = [row for row in rows if row.digest == model] or [row for row in rows if row.name == model]
    if not matches and len(model) >= _SHORT_DIGEST:
        matches = [row for row in rows if row.digest.startswith(model)]
    if not matches:
        names = ", ".join(repr(row.name) for row in rows[:_SHOWN]) or "none yet"
        raise UnknownModelError(
            f"There is no registered model {shortened(model)!r}; there are: {names}. "
            "`recoquest models register` adds one."
        )
    if len(matches) > 1:
        digests = ", ".join(row.digest for row in matches[:_SHOWN])
        raise UnknownModelError(f"Several models have the name {model!r}: give a digest, {digests}.")
    return matches[0]


def generations_by(session: Session, digest: str) -> list[GenerationInfo]:
    """Return the generations that a model has made, the latest first."""
    query = (
        select(GenerationRow.id)
        .join(CollectionRow, CollectionRow.id == GenerationRow.collection_id)
        .join(ModelRow, ModelRow.id == GenerationRow.model_id)
        .where(ModelRow.digest == digest, NOT_DELETED)
        .order_by(GenerationRow.id.desc())
    )
    return [describe_generation(session, number) for number in session.execute(query).scalars().all()]


def list_generations(home: Home, collection: str) -> list[GenerationInfo]:
    """Return the generations of a collection, the latest first."""
    with home.catalogue.read() as session:
        row = require_collection(session, collection)
        query = (
            select(GenerationRow)
            .where(GenerationRow.collection_id == row.id)
            .order_by(GenerationRow.id.desc())
        )
        return [describe_generation(session, each.id) for each in session.execute(query).scalars().all()]


def describe_generation(session: Session, number: int) -> GenerationInfo:
    """Count what a generation has, and say what was measured of it."""
    generation, _ = get_generation(session, number)
    row = session.get_one(GenerationRow, number)
    comparison = None if row.comparison is None else Comparison.model_validate(row.comparison)
    return GenerationInfo(
        collection=generation.collection,
        number=row.id,
        state=row.state,
        model=generation.model,
        digest=generation.digest,
        images=count_embeddings(session, generation),
        texts=count_embeddings(session, generation, "texts"),
        missing=count_lacking(session, generation),
        created=row.created,
        activated=row.activated,
        comparison=comparison,
    )


def create_collection(home: Home, name: str, *, model: str | None = None, same_as: str | None = None) -> None:
    """Begin a collection without images that can be searched and written to at once."""
    with home.catalogue.write() as session:
        row = _model_of(session, same_as) if same_as is not None else find_model(session, model or "")
        if not (home.bundles_folder / row.digest).is_dir():
            raise BundleError(
                f"The files of model {row.name!r} are missing: index a collection with it again."
            )
        collection = add_collection(session, name)
        activate(session, add_generation(session, collection.id, row.id))


def _model_of(session: Session, collection: str) -> ModelRow:
    collection_id = require_collection(session, collection).id
    query = (
        select(ModelRow)
        .join(GenerationRow, GenerationRow.model_id == ModelRow.id)
        .where(GenerationRow.collection_id == collection_id, GenerationRow.state == "active")
    )
    row = session.execute(query).scalar_one_or_none()
    if row is None:
        raise NoActiveGenerationError(collection)
    return row
