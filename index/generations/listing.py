"""The generations of a collection, as a list shows them."""

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from index.catalogue.collections import count_embeddings, get_generation, require_collection
from index.catalogue.tables import GenerationRow
from index.generations.comparison import Comparison
from index.home import Home
from index.writes.missing_vectors import count_missing_images


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


def list_generations(home: Home, collection: str) -> list[GenerationInfo]:
    """Return the generations of a collection, the latest first.

    Raises:
        UnknownCollectionError: No collection has this name.
    """
    with home.catalogue.read() as session:
        row = require_collection(session, collection)
        query = (
            select(GenerationRow)
            .where(GenerationRow.collection_id == row.id)
            .order_by(GenerationRow.id.desc())
        )
        return [describe_generation(session, each.id) for each in session.execute(query).scalars().all()]


def describe_generation(session: Session, number: int) -> GenerationInfo:
    """Count what a generation has, and say what was measured of it.

    Raises:
        GenerationError: It is gone.
    """
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
        missing=count_missing_images(session, generation),
        created=row.created,
        activated=row.activated,
        comparison=comparison,
    )
