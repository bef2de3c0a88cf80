"""Writes of images with their texts, attributes and embeddings, all in the caller's transaction."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, insert, select, update
from sqlalchemy.orm import Session

from index.catalogue.tables import AttributeRow, EmbeddingRow, FieldRow, GenerationRow, ImageRow, TextRow
from index.errors import GenerationError
from index.filters import BUILT_IN_FIELDS, kind_of
from index.generations import Generation, next_sequence
from training.data.manifest import Record


@dataclass(frozen=True, slots=True)
class PictureWrite:
    """A stored image file and its embedding as the catalogue keeps it."""

    sha256: str
    media_type: str
    width: int
    height: int
    vector: bytes


@dataclass(frozen=True, slots=True)
class ImageWrite:
    """A record to be written; without a picture only what is said of the image changes."""

    record: Record
    record_digest: str
    picture: PictureWrite | None


@dataclass(frozen=True, slots=True)
class WriteCounts:
    """Images that are new, that changed, and that only were embedded."""

    added: int
    updated: int
    same: int

    def __add__(self, other: "WriteCounts") -> "WriteCounts":
        """Return the counts of both together."""
        return WriteCounts(self.added + other.added, self.updated + other.updated, self.same + other.same)


def write_images(session: Session, generation: Generation, writes: Sequence[ImageWrite]) -> WriteCounts:
    """Put images into a collection, replacing those of the same id, and their embeddings into a generation.

    Raises:
        GenerationError: An image that is searched in another generation would change its picture.
    """
    sequence = next_sequence(session, generation.collection_id)
    stored = _stored(session, generation.collection_id, [write.record.id for write in writes])
    new = [write for write in writes if write.record.id not in stored]
    changed = [write for write in writes if write.record.id in stored and _differs(write, stored)]
    keys = {write.record.id: stored[write.record.id].id for write in writes if write.record.id in stored}
    _refuse_or_forget(session, generation, [write for write in changed if _new_picture(write, stored)], keys)
    keys |= _insert_images(session, generation.collection_id, new)
    for write in changed:
        session.execute(
            update(ImageRow).where(ImageRow.id == keys[write.record.id]).values(**_image_values(write))
        )
    _replace_details(session, generation.collection_id, new, changed, keys)
    _replace_embeddings(session, generation.id, sequence, writes, keys)
    return WriteCounts(len(new), len(changed), len(writes) - len(new) - len(changed))


def _stored(session: Session, collection_id: int, ids: Collection[str]) -> dict[str, Any]:
    query = select(ImageRow.id, ImageRow.external_id, ImageRow.sha256, ImageRow.record_digest).where(
        ImageRow.collection_id == collection_id, ImageRow.external_id.in_(ids)
    )
    return {row.external_id: row for row in session.execute(query)}


def _new_picture(write: ImageWrite, stored: dict[str, Any]) -> bool:
    return write.picture is not None and write.picture.sha256 != stored[write.record.id].sha256


def _differs(write: ImageWrite, stored: dict[str, Any]) -> bool:
    return _new_picture(write, stored) or write.record_digest != stored[write.record.id].record_digest


def _refuse_or_forget(
    session: Session, generation: Generation, writes: Sequence[ImageWrite], keys: dict[str, int]
) -> None:
    """Drop other generations' embeddings of pictures that change, unless one of them is being searched."""
    ids = [keys[write.record.id] for write in writes]
    others = (EmbeddingRow.image_id.in_(ids)) & (EmbeddingRow.generation_id != generation.id)
    searched = session.execute(
        select(ImageRow.external_id)
        .join(EmbeddingRow, EmbeddingRow.image_id == ImageRow.id)
        .join(GenerationRow, GenerationRow.id == EmbeddingRow.generation_id)
        .where(others, GenerationRow.state == "active")
        .limit(1)
    ).scalar()
    if searched is not None:
        raise GenerationError(
            f"The picture of {searched!r} has changed while {generation.collection!r} is still searched with "
            "another bundle: index the changed images with that bundle first, then with the new one."
        )
    session.execute(delete(EmbeddingRow).where(others))


def _insert_images(session: Session, collection_id: int, writes: Sequence[ImageWrite]) -> dict[str, int]:
    if not writes:
        return {}
    rows = [
        {"collection_id": collection_id, "external_id": write.record.id, **_image_values(write)}
        for write in writes
    ]
    statement = insert(ImageRow).returning(ImageRow.id, sort_by_parameter_order=True)
    keys = session.execute(statement, rows).scalars().all()
    return {write.record.id: key for write, key in zip(writes, keys, strict=True)}


def _image_values(write: ImageWrite) -> dict[str, Any]:
    record, picture = write.record, write.picture
    values: dict[str, Any] = {
        "split": record.split,
        "group_name": record.group,
        "report": record.report,
        "labels": list(record.labels),
        "details": dict(record.metadata),
        "record_digest": write.record_digest,
    }
    if picture is not None:
        values |= {
            "sha256": picture.sha256,
            "media_type": picture.media_type,
            "width": picture.width,
            "height": picture.height,
        }
    return values


def _replace_details(
    session: Session,
    collection_id: int,
    new: Sequence[ImageWrite],
    changed: Sequence[ImageWrite],
    keys: dict[str, int],
) -> None:
    """Write texts and attributes of new images, and those of changed ones again."""
    old = [keys[write.record.id] for write in changed]
    if old:
        session.execute(delete(TextRow).where(TextRow.image_id.in_(old)))
        session.execute(delete(AttributeRow).where(AttributeRow.image_id.in_(old)))
    texts = [
        {"image_id": keys[write.record.id], "position": position, "text": text}
        for write in (*new, *changed)
        for position, text in enumerate(write.record.texts)
    ]
    attributes = [
        {"collection_id": collection_id, "image_id": keys[write.record.id], **values}
        for write in (*new, *changed)
        for values in _attributes(write.record)
    ]
    if texts:
        session.execute(insert(TextRow), texts)
    if attributes:
        session.execute(insert(AttributeRow), attributes)
        _add_fields(session, collection_id, {(row["name"], row["kind"]) for row in attributes})


def _attributes(record: Record) -> Iterator[dict[str, Any]]:
    for name, values in {**record.metadata, "labels": record.labels}.items():
        for position, value in enumerate(values if isinstance(values, tuple) else (values,)):
            yield {
                "name": name,
                "position": position,
                "kind": kind_of(value),
                "text_value": value if isinstance(value, str) else None,
                "number_value": None if isinstance(value, str) else float(value),
            }


def _add_fields(session: Session, collection_id: int, fields: set[tuple[str, str]]) -> None:
    query = select(FieldRow.name, FieldRow.kind).where(FieldRow.collection_id == collection_id)
    known = {(name, kind) for name, kind in session.execute(query)}
    rows = [
        {"collection_id": collection_id, "name": name, "kind": kind}
        for name, kind in sorted(fields - known)
        if name not in BUILT_IN_FIELDS
    ]
    if rows:
        session.execute(insert(FieldRow), rows)


def _replace_embeddings(
    session: Session,
    generation_id: int,
    sequence: int,
    writes: Sequence[ImageWrite],
    keys: dict[str, int],
) -> None:
    rows = [
        {
            "generation_id": generation_id,
            "image_id": keys[write.record.id],
            "sequence": sequence,
            "vector": write.picture.vector,
        }
        for write in writes
        if write.picture is not None
    ]
    if rows:
        ids = [row["image_id"] for row in rows]
        old = (EmbeddingRow.generation_id == generation_id) & EmbeddingRow.image_id.in_(ids)
        session.execute(delete(EmbeddingRow).where(old))
        session.execute(insert(EmbeddingRow), rows)
