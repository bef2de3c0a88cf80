"""Writes of images with their texts, findings, attributes and embeddings, all in the caller's transaction."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import delete, insert, select, update
from sqlalchemy.orm import Session

from index.catalogue.collections import Generation, next_sequence, refuse_retired
from index.catalogue.full_text import IndexedWords, add_words, remove_words
from index.catalogue.lookup import NamedImage, images_named, revision_of
from index.catalogue.tables import (
    REPORT_POSITION,
    AttributeRow,
    EmbeddingRow,
    FeedbackRow,
    FieldRow,
    FindingRow,
    GenerationRow,
    ImageRow,
    RemovalRow,
    TextRow,
)
from index.errors import GenerationError, StaleWriteError
from index.files.orphans import mark_orphans
from index.filters.grammar import kind_of
from index.writes.vectors import add_text_vectors
from training.clinical.findings import find_findings, image_states
from training.common.manifest import Record
from training.common.record import MOST_VALUE_BYTES, PICTURE_FIELDS, RECORD_FIELDS

# Rows of `FindingRow` of an image, without the keys of image and collection.
Findings = Sequence[Mapping[str, Any]]
# Outcome of writing an image.
Outcome = Literal["created", "replaced", "unchanged"]


@dataclass(frozen=True, slots=True)
class PictureWrite:
    """A stored image file and its embedding as the catalogue keeps it.

    Attributes:
        sha256: Digest of the file.
        media_type: Media type of the file.
        width: Width of the upright image.
        height: Height of the upright image.
        vector: As `index.vectors.protocol` encodes it; empty until the picture is embedded.
        flags: Those of `PICTURE_FIELDS` that are true of the picture.
    """

    sha256: str
    media_type: str
    width: int
    height: int
    vector: bytes
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImageWrite:
    """A record to be written, with what follows from its texts.

    Made before the transaction that writes it, so that no other writer waits for that.

    Attributes:
        record: Record of the image.
        picture: None when the image has its file and embedding already.
        sha256: Digest of the file that the image must have if there is no picture; None for any.
        text_vectors: Vectors of the record's texts, maybe of others too; empty where the model has no text
            encoder.
        replaces: Digest of the image's present file if another one with the same picture, `sha256`,
            replaces it.
        content: Bytes of the new file as it is stored, where the write stores it as well.
        findings: Findings of the texts and the report.
        words: Words of the texts and the report.
        record_digest: Digest of the record.
    """

    record: Record
    picture: PictureWrite | None
    sha256: str | None = None
    text_vectors: Mapping[str, bytes] = field(default_factory=dict)
    replaces: str | None = None
    content: bytes = field(default=b"", repr=False)
    findings: Findings = field(init=False, repr=False)
    words: IndexedWords = field(init=False, repr=False)
    record_digest: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        texts, report = self.record.texts, self.record.report
        object.__setattr__(self, "findings", findings_of(dict(enumerate(texts)), report))
        object.__setattr__(self, "words", IndexedWords.from_texts(texts, report))
        object.__setattr__(self, "record_digest", self.record.digest())

    @property
    def revision(self) -> str:
        """Identifies the state of the image after this write, including its file."""
        sha256 = self.sha256 if self.picture is None else self.picture.sha256
        assert sha256 is not None
        return revision_of(self.record_digest, sha256)

    @property
    def new_file(self) -> str | None:
        """Digest of the file that is stored with this; None: the image keeps its file."""
        if self.picture is not None:
            return self.picture.sha256
        return self.sha256 if self.replaces is not None else None


def write_images(
    session: Session,
    generation: Generation,
    writes: Sequence[ImageWrite],
    stored: Mapping[str, NamedImage] | None = None,
) -> dict[str, Outcome]:
    """Put images into a collection, replacing those of the same id, and their embeddings into a generation.

    `stored` is the result of `images_named` for them, if the caller has read it under the collection's lock
    and has seen that the generation is active.

    Returns:
        What became of each image, by id.

    Raises:
        GenerationError: The generation was retired or removed, or an image that is searched in another one
            would change its picture.
        StaleWriteError: An image without a picture is gone or has another file than the write was made for.
    """
    collection_id = generation.collection_id
    sequence = next_sequence(session, collection_id)
    if stored is None:
        # Under the lock that this has taken: a swap, or a drop, comes before all of it or after it.
        refuse_retired(session, generation)
        stored = images_named(session, collection_id, [write.record.id for write in writes])
    outcomes: dict[str, Outcome] = {}
    new: list[ImageWrite] = []
    changed: dict[int, ImageWrite] = {}
    written: dict[int, ImageWrite] = {}
    for write in writes:
        row, image_id = stored.get(write.record.id), write.record.id
        present = write.replaces or write.sha256
        if write.picture is None and (row is None or (present is not None and row.sha256 != present)):
            raise StaleWriteError(
                f"The image {image_id!r} was changed by somebody else meanwhile, and nothing was written: do "
                "it again."
            )
        if row is None:
            outcomes[image_id] = "created"
            new.append(write)
            continue
        written[row.id] = write
        is_same = write.record_digest == row.record_digest and write.replaces is None
        outcomes[image_id] = "unchanged" if is_same and not _new_picture(write, row) else "replaced"
        if outcomes[image_id] == "replaced":
            changed[row.id] = write
    if changed:
        _update_images(session, generation, sequence, changed, stored)
    put = changed
    if new:
        rows = []
        for write in new:
            own = {"collection_id": collection_id, "external_id": write.record.id}
            rows.append(own | _image_values(write, sequence))
        adding = insert(ImageRow).returning(ImageRow.id, sort_by_parameter_order=True)
        put = dict(zip(session.execute(adding, rows).scalars(), new, strict=True)) | changed
    if put:
        _put_texts(session, collection_id, sequence, put, changed)
        findings: dict[int, Findings] = {}
        words: dict[int, IndexedWords] = {}
        for key, write in put.items():
            words[key] = write.words
            if write.findings or key in changed:
                findings[key] = write.findings
        if findings:
            put_findings(session, collection_id, findings)
        if changed:
            remove_words(session, list(changed))
        add_words(session, collection_id, words)
        _put_attributes(session, collection_id, put, changed)
    _put_embeddings(session, generation, sequence, written | put)
    return outcomes


def _new_picture(write: ImageWrite, row: NamedImage) -> bool:
    return write.picture is not None and row.sha256 not in (write.picture.sha256, write.replaces)


def _update_images(
    session: Session,
    generation: Generation,
    sequence: int,
    writes: Mapping[int, ImageWrite],
    stored: Mapping[str, NamedImage],
) -> None:
    """Write the rows of images that change; their former files may be used no more."""
    ids = [key for key, write in writes.items() if _new_picture(write, stored[write.record.id])]
    if ids:
        _forget_pictures(session, generation, ids)
    refiled = [write for write in writes.values() if write.new_file is not None]
    former = {stored[write.record.id].sha256 for write in refiled}
    mark_orphans(session, former - {write.new_file for write in refiled})
    for key, write in writes.items():
        session.execute(update(ImageRow).where(ImageRow.id == key).values(**_image_values(write, sequence)))


def _forget_pictures(session: Session, generation: Generation, ids: Sequence[int]) -> None:
    """Drop what belonged to pictures that change, unless another generation of one is being searched."""
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
    # Relevance judgements of an image are judgements of its former picture.
    session.execute(delete(FeedbackRow).where(FeedbackRow.image_id.in_(ids)))


def _image_values(write: ImageWrite, sequence: int) -> dict[str, Any]:
    record, picture = write.record, write.picture
    values: dict[str, Any] = {
        "split": record.split,
        "group_name": record.group,
        "report": record.report,
        "labels": list(record.labels),
        "details": dict(record.metadata),
        "record_digest": write.record_digest,
        "sequence": sequence,
    }
    if write.new_file is not None:
        values["sha256"] = write.new_file
    if picture is not None:
        values |= {"media_type": picture.media_type, "width": picture.width, "height": picture.height}
    return values


def _put_attributes(
    session: Session, collection_id: int, writes: Mapping[int, ImageWrite], old: Collection[int]
) -> None:
    """Write the attributes of images, instead of those that `old` ones have; flags belong to the picture."""
    if old:
        same = [key for key in old if writes[key].picture is None]
        kept = AttributeRow.image_id.in_(same) & AttributeRow.name.in_(PICTURE_FIELDS)
        session.execute(delete(AttributeRow).where(AttributeRow.image_id.in_(old), ~kept))
    rows: list[dict[str, Any]] = []
    fields: set[tuple[str, str]] = set()
    for key, write in writes.items():
        flags = dict.fromkeys(write.picture.flags if write.picture else (), True)
        for name, values in {**write.record.metadata, "labels": write.record.labels, **flags}.items():
            for position, value in enumerate(values if isinstance(values, tuple) else (values,)):
                text = value if isinstance(value, str) else None
                if text is not None and len(text.encode()) > MOST_VALUE_BYTES:
                    # No index of PostgreSQL takes it; it stays among the image's details.
                    continue
                kind = kind_of(value)
                rows.append(
                    {
                        "collection_id": collection_id,
                        "image_id": key,
                        "name": name,
                        "position": position,
                        "kind": kind,
                        "text_value": text,
                        "number_value": None if isinstance(value, str) else float(value),
                    }
                )
                if name not in RECORD_FIELDS:
                    fields.add((name, kind))
    if rows:
        session.execute(insert(AttributeRow), rows)
    if fields:
        existing = select(FieldRow.name, FieldRow.kind).where(FieldRow.collection_id == collection_id)
        fields.difference_update(map(tuple, session.execute(existing)))
    if fields:
        session.execute(
            insert(FieldRow),
            [{"collection_id": collection_id, "name": name, "kind": kind} for name, kind in sorted(fields)],
        )


def _put_embeddings(
    session: Session, generation: Generation, sequence: int, writes: Mapping[int, ImageWrite]
) -> None:
    """Replace the vectors of pictures, and add those that texts lack."""
    rows: dict[int, dict[str, Any]] = {}
    texts: dict[int, Mapping[str, bytes]] = {}
    for key, write in writes.items():
        if write.picture is not None:
            row = {"generation_id": generation.id, "image_id": key, "sequence": sequence}
            rows[key] = row | {"vector": write.picture.vector}
        if write.text_vectors and write.record.texts:
            texts[key] = write.text_vectors
    if rows:
        its = EmbeddingRow.image_id.in_(list(rows))
        session.execute(delete(EmbeddingRow).where(EmbeddingRow.generation_id == generation.id, its))
        session.execute(insert(EmbeddingRow), list(rows.values()))
    if texts:
        add_text_vectors(session, generation, sequence, texts)


def _put_texts(
    session: Session,
    collection_id: int,
    sequence: int,
    writes: Mapping[int, ImageWrite],
    old: Collection[int],
) -> None:
    """Give images, by their keys, their texts; one that `old` ones have there keeps its key and vectors."""
    missing: dict[tuple[int, int], str] = {}
    for key, write in writes.items():
        for position, text in enumerate(write.record.texts):
            missing[key, position] = text
    if old:
        query = select(TextRow.id, TextRow.image_id, TextRow.position, TextRow.text)
        obsolete = []
        for text_id, key, position, text in session.execute(query.where(TextRow.image_id.in_(old))):
            if missing.get((key, position)) == text:
                del missing[key, position]
            else:
                obsolete.append(text_id)
        remove_texts(session, collection_id, sequence, obsolete)
    if missing:
        rows = [
            {"image_id": key, "position": position, "text": text} for (key, position), text in missing.items()
        ]
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


def put_findings(session: Session, collection_id: int, written: Mapping[int, Findings]) -> None:
    """Replace the findings of images, by their keys."""
    session.execute(delete(FindingRow).where(FindingRow.image_id.in_(list(written))))
    rows = [
        {**row, "image_id": key, "collection_id": collection_id}
        for key, own in written.items()
        for row in own
    ]
    if rows:
        session.execute(insert(FindingRow), rows)


def findings_of(texts: Mapping[int, str], report: str | None) -> Findings:
    """Return what the texts of an image, by position, and its report say, as rows without their keys."""
    everything = [*texts.items()]
    if report is not None:
        everything.append((REPORT_POSITION, report))
    mentions = [(position, finding) for position, text in everything for finding in find_findings(text)]
    if not mentions:
        return []
    states = image_states(finding for _, finding in mentions)
    return [
        {
            "position": position,
            "start": finding.start,
            "finding": finding.name,
            "stop": finding.end,
            "state": finding.state,
            "image_finding": f"{finding.name}: {states[finding.name]}",
        }
        for position, finding in mentions
    ]
