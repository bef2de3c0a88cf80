"""Writes of the texts of images and of their vectors, all in the caller's transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Select, delete, exists, func, insert, select
from sqlalchemy.orm import Session

from index.catalogue.collections import Generation
from index.catalogue.tables import ImageRow, RemovalRow, TextEmbeddingRow, TextRow


@dataclass(frozen=True, slots=True)
class TextWithoutVector:
    """A text that has no vector in a generation."""

    key: int
    text: str


def add_texts(session: Session, texts: Mapping[int, Sequence[str]]) -> None:
    """Give images that have none, by their keys, these texts."""
    _insert_texts(session, _placed(texts))


def replace_texts(
    session: Session, collection_id: int, sequence: int, texts: Mapping[int, Sequence[str]]
) -> None:
    """Give images, by their keys, these texts; one that is at its place already keeps its key and vectors."""
    if not texts:
        return
    query = select(TextRow.id, TextRow.image_id, TextRow.position, TextRow.text).where(
        TextRow.image_id.in_(list(texts))
    )
    wanted = _placed(texts)
    gone = []
    for text_id, key, place, text in session.execute(query):
        if wanted.get((key, place)) == text:
            del wanted[key, place]
        else:
            gone.append(text_id)
    remove_texts(session, collection_id, sequence, gone)
    _insert_texts(session, wanted)


def _placed(texts: Mapping[int, Sequence[str]]) -> dict[tuple[int, int], str]:
    return {(key, place): text for key, own in texts.items() for place, text in enumerate(own)}


def _insert_texts(session: Session, texts: Mapping[tuple[int, int], str]) -> None:
    rows = [{"image_id": key, "position": place, "text": text} for (key, place), text in texts.items()]
    if rows:
        session.execute(insert(TextRow), rows)


def remove_texts(session: Session, collection_id: int, sequence: int, keys: Sequence[int]) -> None:
    """Remove texts, by their keys, with their vectors in all generations."""
    if not keys:
        return
    session.execute(delete(TextRow).where(TextRow.id.in_(keys)))
    rows = [
        {"collection_id": collection_id, "target": "texts", "key": key, "sequence": sequence} for key in keys
    ]
    session.execute(insert(RemovalRow), rows)


def add_text_vectors(
    session: Session, generation: Generation, sequence: int, vectors: Mapping[int, Mapping[str, bytes]]
) -> None:
    """Give the texts of images, by the keys of these, the vectors that they lack in a generation.

    Args:
        session: Session of the caller's transaction.
        generation: Generation that gets the vectors.
        sequence: Sequence number of the transaction.
        vectors: For each image, vectors by text; a text that is not among them is passed over.
    """
    if not vectors:
        return
    query = _without_vector(generation).where(TextRow.image_id.in_(list(vectors)))
    _insert(
        session,
        generation,
        sequence,
        {key: vectors[image][text] for key, image, text in session.execute(query) if text in vectors[image]},
    )


def texts_without_vectors(
    session: Session, generation: Generation, *, after: int, limit: int
) -> list[TextWithoutVector]:
    """Return texts of a collection that lack a vector in a generation, in order of key, behind a key."""
    query = _of_collection(generation).where(TextRow.id > after).order_by(TextRow.id).limit(limit)
    return [TextWithoutVector(key, text) for key, _, text in session.execute(query)]


def count_texts_without_vectors(session: Session, generation: Generation) -> int:
    """Return how many texts of a collection lack a vector in a generation."""
    query = select(func.count()).select_from(_of_collection(generation).subquery())
    return session.execute(query).scalar_one()


def add_missing_vectors(
    session: Session, generation: Generation, sequence: int, vectors: Mapping[int, bytes]
) -> None:
    """Give texts, by their keys, vectors in a generation; those that are gone or have one are passed over."""
    query = _without_vector(generation).where(TextRow.id.in_(list(vectors)))
    lacking = {key: vectors[key] for key, _, _ in session.execute(query)}
    _insert(session, generation, sequence, lacking)


def _of_collection(generation: Generation) -> Select[int, int, str]:
    images = _without_vector(generation).join(ImageRow, ImageRow.id == TextRow.image_id)
    return images.where(ImageRow.collection_id == generation.collection_id)


def _without_vector(generation: Generation) -> Select[int, int, str]:
    has = exists().where(
        TextEmbeddingRow.generation_id == generation.id, TextEmbeddingRow.text_id == TextRow.id
    )
    return select(TextRow.id, TextRow.image_id, TextRow.text).where(~has)


def _insert(session: Session, generation: Generation, sequence: int, vectors: Mapping[int, bytes]) -> None:
    rows = [
        {"generation_id": generation.id, "text_id": key, "sequence": sequence, "vector": vector}
        for key, vector in vectors.items()
    ]
    if rows:
        session.execute(insert(TextEmbeddingRow), rows)
