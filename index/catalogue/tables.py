"""The catalogue's tables: collections, images, jobs, studies, reports, case lists, audit trail, backups."""

import secrets
from typing import Any, Final

from sqlalchemy import (
    JSON,
    BigInteger,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    String,
    Text,
    UniqueConstraint,
    false,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

# SQLite only counts up by itself in a column that is exactly INTEGER.
Key = BigInteger().with_variant(Integer, "sqlite")
# Text compares by code point everywhere; PostgreSQL's default would follow the server's locale.
ComparedText = Text().with_variant(Text(collation="C"), "postgresql")
_KEY_BITS: Final = 62
# Position of an image's report; those of its texts count from 0.
REPORT_POSITION: Final = -1


def _draw_key() -> int:
    return secrets.randbits(_KEY_BITS)


class Table(DeclarativeBase):
    """Base of all tables."""


class CollectionRow(Table):
    """A named set of images.

    `sequence` grows by one with every transaction that writes to the collection, so it says whether anything
    changed, and its row is the lock that puts writers in order. `view` is the kind of view that an operator
    has chosen; None leaves it to the size of the collection. The key is drawn at random: what processes
    remember of a collection that was removed can never be taken for what a later one holds. One that is being
    removed has a name that no other can have; see `index.catalogue.collections`. Removals up to the sequence
    number `trimmed` are forgotten.
    """

    __tablename__ = "collections"

    id: Mapped[int] = mapped_column(Key, primary_key=True, default=_draw_key)
    name: Mapped[str] = mapped_column(String(100), unique=True)
    sequence: Mapped[int] = mapped_column(BigInteger, default=0)
    trimmed: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    view: Mapped[str | None] = mapped_column(String(20))


class AliasRow(Table):
    """Another name by which requests reach a collection; no collection has it."""

    __tablename__ = "aliases"

    name: Mapped[str] = mapped_column(String(100), primary_key=True)
    collection_id: Mapped[int] = mapped_column(ForeignKey("collections.id"))


class ImageRow(Table):
    """An image with its metadata; its file is in the store under `sha256`.

    `sequence` is that of the transaction that wrote it last, or 0 if that was before schema 0008.
    """

    __tablename__ = "images"
    __table_args__ = (
        UniqueConstraint("collection_id", "external_id", name="uq_images_external_id"),
        Index("ix_images_group", "collection_id", "group_name"),
        Index("ix_images_split", "collection_id", "split"),
        Index("ix_images_sha256", "sha256"),
        Index("ix_images_sequence", "collection_id", "sequence"),
        # Keys are never reused, so a view that still has a removed image finds no other image under its
        # key.
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(Key, primary_key=True)
    collection_id: Mapped[int] = mapped_column(ForeignKey("collections.id"))
    external_id: Mapped[str] = mapped_column(ComparedText)
    sha256: Mapped[str] = mapped_column(String(64))
    media_type: Mapped[str] = mapped_column(String(100))
    width: Mapped[int]
    height: Mapped[int]
    split: Mapped[str] = mapped_column(ComparedText)
    group_name: Mapped[str | None] = mapped_column(ComparedText)
    report: Mapped[str | None] = mapped_column(Text)
    labels: Mapped[list[str]] = mapped_column(JSON)
    details: Mapped[dict[str, Any]] = mapped_column(JSON)
    record_digest: Mapped[str] = mapped_column(String(64))
    sequence: Mapped[int] = mapped_column(BigInteger, server_default="0")


class TextRow(Table):
    """A text that belongs to an image, in the manifest's order; another text has another key.

    The words of all texts of an image and of its report are also in the table `image_words`, which
    `index.catalogue.full_text` knows: a full-text index of SQLite (FTS5) or PostgreSQL.
    """

    __tablename__ = "texts"
    __table_args__ = (
        UniqueConstraint("image_id", "position", name="uq_texts_position"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(Key, primary_key=True)
    image_id: Mapped[int] = mapped_column(ForeignKey("images.id", ondelete="CASCADE"))
    position: Mapped[int]
    text: Mapped[str] = mapped_column(Text)


class FindingRow(Table):
    """A mention of a finding in a text of an image, by its position, or in its report: `REPORT_POSITION`.

    `state` is the mention's and `start` and `stop` are its offsets; see `training.clinical.findings`.
    `image_finding` is the finding and its state over all mentions of the image, as filters compare it:
    "edema: absent".
    """

    __tablename__ = "findings"
    __table_args__ = (
        Index("ix_findings_image_finding", "collection_id", "image_finding", "image_id"),
        {"sqlite_with_rowid": False},
    )

    image_id: Mapped[int] = mapped_column(ForeignKey("images.id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    start: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    finding: Mapped[str] = mapped_column(ComparedText, primary_key=True)
    stop: Mapped[int]
    state: Mapped[str] = mapped_column(String(10))
    collection_id: Mapped[int] = mapped_column(ForeignKey("collections.id"))
    image_finding: Mapped[str] = mapped_column(ComparedText)


class AttributeRow(Table):
    """One value of one field of an image, as filters search it; a list has a row for each value."""

    __tablename__ = "attributes"
    __table_args__ = (
        Index("ix_attributes_text", "collection_id", "name", "text_value", "image_id"),
        Index("ix_attributes_number", "collection_id", "name", "kind", "number_value", "image_id"),
        {"sqlite_with_rowid": False},
    )

    image_id: Mapped[int] = mapped_column(ForeignKey("images.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(ComparedText, primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    collection_id: Mapped[int] = mapped_column(ForeignKey("collections.id"))
    kind: Mapped[str] = mapped_column(String(10))
    text_value: Mapped[str | None] = mapped_column(ComparedText)
    number_value: Mapped[float | None]


class FieldRow(Table):
    """A field that some image of the collection has, by the kind of its values.

    One that the last image has lost stays until `index.writes.deletion` removes it.
    """

    __tablename__ = "fields"

    collection_id: Mapped[int] = mapped_column(ForeignKey("collections.id"), primary_key=True)
    name: Mapped[str] = mapped_column(ComparedText, primary_key=True)
    kind: Mapped[str] = mapped_column(String(10), primary_key=True)


class VocabularyRow(Table):
    """A long word that some images of a collection have, and how many; compounds are looked up here."""

    __tablename__ = "vocabulary"
    __table_args__ = ({"sqlite_with_rowid": False},)

    collection_id: Mapped[int] = mapped_column(
        ForeignKey("collections.id", ondelete="CASCADE"), primary_key=True
    )
    word: Mapped[str] = mapped_column(ComparedText, primary_key=True)
    images: Mapped[int]


class ModelRow(Table):
    """A registered bundle and what its vectors of `dim` numbers are.

    One is a blade of `blades` vectors, if that is not 1; if `unsigned`, its sign means nothing.
    """

    __tablename__ = "models"

    id: Mapped[int] = mapped_column(Key, primary_key=True)
    digest: Mapped[str] = mapped_column(String(100), unique=True)
    name: Mapped[str] = mapped_column(Text)
    dim: Mapped[int]
    blades: Mapped[int] = mapped_column(default=1, server_default="1")
    unsigned: Mapped[bool] = mapped_column(default=False, server_default=false())
    recipe: Mapped[str] = mapped_column(Text)
    created: Mapped[str] = mapped_column(Text)
    metrics: Mapped[dict[str, float]] = mapped_column(JSON)


class GenerationRow(Table):
    """One embedding of one collection by one bundle.

    `uid` distinguishes generations of different catalogues, which count from one each, and a generation from
    itself before a restore. Times are in ISO 8601: `announced` is when services were last notified to load
    it, `activated` when it last became active. `by_hand` tells whether a person has ever activated it.
    `comparison` is what was measured of it against the one before, and `confidence` from which score on its
    hits count; see `index.scoring`.
    """

    __tablename__ = "generations"
    __table_args__ = (
        Index("ix_generations_state", "collection_id", "state"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(Key, primary_key=True)
    collection_id: Mapped[int] = mapped_column(ForeignKey("collections.id"))
    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"))
    uid: Mapped[str] = mapped_column(String(32))
    state: Mapped[str] = mapped_column(String(10))
    created: Mapped[str | None] = mapped_column(Text)
    announced: Mapped[str | None] = mapped_column(Text)
    activated: Mapped[str | None] = mapped_column(Text)
    by_hand: Mapped[bool] = mapped_column(default=False, server_default=false())
    comparison: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    confidence: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))


class EmbeddingRow(Table):
    """The vector of an image in a generation, float16; `sequence` is that of the transaction."""

    __tablename__ = "embeddings"
    __table_args__ = (
        Index("ix_embeddings_sequence", "generation_id", "sequence"),
        Index("ix_embeddings_image", "image_id"),
    )

    generation_id: Mapped[int] = mapped_column(ForeignKey("generations.id"), primary_key=True)
    image_id: Mapped[int] = mapped_column(ForeignKey("images.id", ondelete="CASCADE"), primary_key=True)
    sequence: Mapped[int] = mapped_column(BigInteger)
    vector: Mapped[bytes] = mapped_column(LargeBinary)


class TextEmbeddingRow(Table):
    """The vector of an image's text in a generation, as `EmbeddingRow` has that of the image."""

    __tablename__ = "text_embeddings"
    __table_args__ = (
        Index("ix_text_embeddings_sequence", "generation_id", "sequence"),
        Index("ix_text_embeddings_text", "text_id"),
    )

    generation_id: Mapped[int] = mapped_column(ForeignKey("generations.id"), primary_key=True)
    text_id: Mapped[int] = mapped_column(ForeignKey("texts.id", ondelete="CASCADE"), primary_key=True)
    sequence: Mapped[int] = mapped_column(BigInteger)
    vector: Mapped[bytes] = mapped_column(LargeBinary)


class RemovalRow(Table):
    """An image or a text (`target` is "images" or "texts") that was removed: views drop its key.

    Keys are never reused, so what is removed stays removed.
    """

    __tablename__ = "removals"
    __table_args__ = (
        Index("ix_removals_sequence", "collection_id", "target", "sequence"),
        {"sqlite_with_rowid": False},
    )

    collection_id: Mapped[int] = mapped_column(ForeignKey("collections.id"), primary_key=True)
    target: Mapped[str] = mapped_column(String(10), primary_key=True)
    key: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    sequence: Mapped[int] = mapped_column(BigInteger)


class OrphanRow(Table):
    """A file that the store may hold while no image of any collection uses it.

    Its digest is noted before the file of a new image is written, and in the transaction that takes an
    image's file away, so that a process that is killed in between leaves nothing unnoted.

    `begun` is 0 where an image was taken away. Who is about to write the file has a note with a time of its
    own, in nanoseconds since 1970, which others leave alone until it is an hour old.
    """

    __tablename__ = "loose_files"
    __table_args__ = ({"sqlite_with_rowid": False},)

    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    begun: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)


class HomeRow(Table):
    """The one row that names the home folder of the catalogue; see `index.files.home_identity`."""

    __tablename__ = "home"

    id: Mapped[int] = mapped_column(primary_key=True)
    uid: Mapped[str] = mapped_column(String(32))


class ApiKeyRow(Table):
    """A key of the service's interface, without its secret; see `index.keys.api_keys`.

    `digest` is the SHA-256 of the secret, `grants` are roles by collection. Times are in ISO 8601; `used` is
    the day of the last use. Revoked keys stay, since the audit trail names them.
    """

    __tablename__ = "api_keys"
    __table_args__ = (Index("ix_api_keys_name", "name"), {"sqlite_with_rowid": False})

    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    digest: Mapped[bytes] = mapped_column(LargeBinary)
    grants: Mapped[dict[str, list[str]]] = mapped_column(JSON)
    created: Mapped[str] = mapped_column(Text)
    expires: Mapped[str | None] = mapped_column(Text)
    revoked: Mapped[str | None] = mapped_column(Text)
    used: Mapped[str | None] = mapped_column(Text)


class JobRow(Table):
    """Work for the workers, and its state.

    `arguments` are those of the command called `kind`, whose relative paths begin in `folder`. `worker`
    has the job and increments `beats` while it works on it: if they stop, another worker may take the job,
    which `lapses` counts. `attempts` counts the beginnings. Times are in ISO 8601.
    """

    __tablename__ = "jobs"
    __table_args__ = (Index("ix_jobs_state", "state"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(Key, primary_key=True)
    kind: Mapped[str] = mapped_column(String(20))
    arguments: Mapped[list[str]] = mapped_column(JSON)
    folder: Mapped[str | None] = mapped_column(Text)
    state: Mapped[str] = mapped_column(String(10))
    created: Mapped[str] = mapped_column(Text)
    started: Mapped[str | None] = mapped_column(Text)
    ended: Mapped[str | None] = mapped_column(Text)
    worker: Mapped[str | None] = mapped_column(Text)
    beats: Mapped[int] = mapped_column(BigInteger, default=0)
    attempts: Mapped[int] = mapped_column(default=0)
    lapses: Mapped[int] = mapped_column(default=0)
    cancelling: Mapped[bool] = mapped_column(default=False)
    progress: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    result: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    error: Mapped[str | None] = mapped_column(Text)


class FeedbackRow(Table):
    """Whether a user judged an image relevant to a query: the last judgement counts.

    `query` is as `index.feedback` writes it, and `query_digest` its SHA-256. `model` is the digest of the
    bundle that was searched with at that time, which is in ISO 8601. The user is None where users aren't
    distinguished. An image is `supplemented` that was relevant and not among the hits.
    """

    __tablename__ = "feedback"
    __table_args__ = (
        Index("ix_feedback_created", "collection_id", "created"),
        {"sqlite_with_rowid": False},
    )

    image_id: Mapped[int] = mapped_column(ForeignKey("images.id", ondelete="CASCADE"), primary_key=True)
    query_digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    collection_id: Mapped[int] = mapped_column(ForeignKey("collections.id"))
    query: Mapped[dict[str, list[str]]] = mapped_column(JSON)
    relevant: Mapped[bool]
    model: Mapped[str] = mapped_column(String(100))
    created: Mapped[str] = mapped_column(Text)
    user_id: Mapped[str | None] = mapped_column(Text)
    user_name: Mapped[str | None] = mapped_column(Text)
    supplemented: Mapped[bool] = mapped_column(default=False, server_default=false())


class IdempotencyKeyRow(Table):
    """A request that a caller has named, and its answer once it has one; see `index.idempotency`.

    `attempt` answers it, and renews its lease meanwhile. Times are in ISO 8601.
    """

    __tablename__ = "idempotency_keys"
    __table_args__ = (Index("ix_idempotency_keys_created", "created"),)

    caller: Mapped[str] = mapped_column(String(64), primary_key=True)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    request: Mapped[str] = mapped_column(String(64))
    attempt: Mapped[str] = mapped_column(String(32))
    created: Mapped[str] = mapped_column(Text)
    leased_until: Mapped[str] = mapped_column(Text)
    status: Mapped[int | None]
    headers: Mapped[dict[str, str] | None] = mapped_column(JSON(none_as_null=True))
    body: Mapped[bytes | None] = mapped_column(LargeBinary)


class AuditEventRow(Table):
    """An event of the audit trail, which no statement changes; see `index.audit.chain`.

    `event` is canonical JSON that holds all of it, the hash of the event before included, and `hash` is its
    SHA-256. The other columns repeat parts of it, to select by.
    """

    __tablename__ = "audit_events"
    __table_args__ = (Index("ix_audit_events_time", "time"),)

    sequence: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    time: Mapped[str] = mapped_column(ComparedText)
    action: Mapped[str] = mapped_column(String(20))
    collection: Mapped[str | None] = mapped_column(ComparedText)
    event: Mapped[str] = mapped_column(Text)
    hash: Mapped[str] = mapped_column(String(64))


class AuditHeadRow(Table):
    """The one row with the end of the audit trail: the last event, and the last one that was pruned."""

    __tablename__ = "audit_head"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    sequence: Mapped[int] = mapped_column(BigInteger)
    hash: Mapped[str] = mapped_column(String(64))
    pruned: Mapped[int] = mapped_column(BigInteger)
    pruned_hash: Mapped[str] = mapped_column(String(64))


class AuditNameRow(Table):
    """The id of an image that events name by its keyed hash; None after an erasure, and for good."""

    __tablename__ = "audit_names"
    __table_args__ = (
        Index("ix_audit_names_name", "name", "collection"),
        {"sqlite_with_rowid": False},
    )

    digest: Mapped[str] = mapped_column(String(32), primary_key=True)
    collection: Mapped[str] = mapped_column(ComparedText)
    name: Mapped[str | None] = mapped_column(ComparedText)


class FormerNameRow(Table):
    """A name that a collection had before: the trail has events of its images under it."""

    __tablename__ = "former_names"

    collection_id: Mapped[int] = mapped_column(ForeignKey("collections.id"), primary_key=True)
    name: Mapped[str] = mapped_column(String(100), primary_key=True)


class BackupRow(Table):
    """A backup that was written: where, when, and up to which key it holds images."""

    __tablename__ = "backups"

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    path: Mapped[str] = mapped_column(Text)
    created: Mapped[str] = mapped_column(Text)
    last_image: Mapped[int] = mapped_column(BigInteger)


class ArchiveRow(Table):
    """Progress of a collection in the change feed of an archive.

    `archive` is a keyed hash of the archive's address. `position` is the number of the last change,
    `instances` the number of instances that the archive had then, and `selection` names the filters, dates
    included.
    """

    __tablename__ = "archives"

    collection_id: Mapped[int] = mapped_column(
        ForeignKey("collections.id", ondelete="CASCADE"), primary_key=True
    )
    archive: Mapped[str] = mapped_column(String(16), primary_key=True)
    position: Mapped[int] = mapped_column(BigInteger)
    instances: Mapped[int] = mapped_column(BigInteger)
    selection: Mapped[str] = mapped_column(String(16))


class ArchiveStudyRow(Table):
    """Outcomes of the instances of a study of an archive: no image, UID or date, but keyed hashes of them.

    `day` is that of the study's date and `instances` are the outcomes by the hash of the SOP Instance UID,
    of a structured report with the digest of what was kept of it;
    `selection` names the filters that they went through, and `checked` is when all were last compared with
    the archive, in ISO 8601; None: that has not ended.
    """

    __tablename__ = "archive_studies"
    __table_args__ = ({"sqlite_with_rowid": False},)

    collection_id: Mapped[int] = mapped_column(
        ForeignKey("collections.id", ondelete="CASCADE"), primary_key=True
    )
    archive: Mapped[str] = mapped_column(String(16), primary_key=True)
    study: Mapped[str] = mapped_column(String(16), primary_key=True)
    day: Mapped[str] = mapped_column(String(16))
    selection: Mapped[str] = mapped_column(String(16))
    checked: Mapped[str | None] = mapped_column(Text)
    instances: Mapped[dict[str, str]] = mapped_column(JSON)


class ReportRow(Table):
    """A report that was received for a study, without what identifies people; see `index.reports`.

    `study` is the key of the study whose images it was brought to, such as "study:1.2.3", and None while it
    waits for them; `keys` are those that it may belong to. `sections` are lists of kind, heading and text.
    Keys rise with the order in which reports came, and `received` is the day (UTC).
    """

    __tablename__ = "reports"
    __table_args__ = (
        UniqueConstraint("collection_id", "digest", name="uq_reports_digest"),
        Index("ix_reports_study", "collection_id", "study"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(Key, primary_key=True)
    collection_id: Mapped[int] = mapped_column(ForeignKey("collections.id", ondelete="CASCADE"))
    digest: Mapped[str] = mapped_column(String(64))
    study: Mapped[str | None] = mapped_column(ComparedText)
    keys: Mapped[list[str]] = mapped_column(JSON)
    patient: Mapped[str | None] = mapped_column(String(16))
    identity: Mapped[str | None] = mapped_column(String(16))
    status: Mapped[str] = mapped_column(String(12))
    issued: Mapped[str | None] = mapped_column(Text)
    sections: Mapped[list[list[str]]] = mapped_column(JSON)
    received: Mapped[str | None] = mapped_column(String(10))


class CaseListRow(Table):
    """A named list of images of a collection, by the id that its maker chose. The time is in ISO 8601."""

    __tablename__ = "case_lists"
    __table_args__ = (
        UniqueConstraint("collection_id", "name", name="uq_case_lists_name"),
        {"sqlite_with_rowid": False},
    )

    collection_id: Mapped[int] = mapped_column(
        ForeignKey("collections.id", ondelete="CASCADE"), primary_key=True
    )
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str] = mapped_column(ComparedText)
    created: Mapped[str] = mapped_column(Text)


class CaseEntryRow(Table):
    """An image in a case list, with a note and who wrote it last.

    The user is None if users aren't distinguished. Positions rise in the order of saving.
    """

    __tablename__ = "case_entries"
    __table_args__ = (
        ForeignKeyConstraint(
            ["collection_id", "list_id"], ["case_lists.collection_id", "case_lists.id"], ondelete="CASCADE"
        ),
        UniqueConstraint("collection_id", "list_id", "position", name="uq_case_entries_position"),
        # Removing an image looks for its entries.
        Index("ix_case_entries_image", "image_id"),
        {"sqlite_with_rowid": False},
    )

    collection_id: Mapped[int] = mapped_column(Key, primary_key=True)
    list_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    image_id: Mapped[int] = mapped_column(ForeignKey("images.id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int]
    note: Mapped[str] = mapped_column(Text)
    saved: Mapped[str] = mapped_column(Text)
    user_id: Mapped[str | None] = mapped_column(Text)
    user_name: Mapped[str | None] = mapped_column(Text)
