"""Judgements of hits, kept for retraining, and a collection with what they teach as a manifest."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, Literal, NamedTuple

from sqlalchemy import ColumnElement, and_, case, delete, func, not_, or_, select
from sqlalchemy.orm import Session

from index.catalogue.collections import NOT_DELETED, now, require_active, require_collection
from index.catalogue.images import require_image
from index.catalogue.lookup import images_named, storable_text
from index.catalogue.tables import CollectionRow, FeedbackRow, ImageRow, TextRow
from index.errors import FeedbackFullError, QueryError, StoreError
from index.files.image_store import ImageStore
from index.home import Home
from training.common.atomic import atomic_folder
from training.common.manifest import Record, Rejections, write_manifest

# The words of IHE AIRAI (AI Result Assessment) for the verdicts of users.
Verdict = Literal["accepted", "rejected", "supplemented"]

_AT_ONCE: Final = 2000
# Parts of a query that are ids of images.
_EXAMPLES: Final = ("images", "unlike_images")
_EXPORTED_AT_ONCE: Final = 1000
# Labels measure precision among the first ten images of others.
_DEEP: Final = 10


@dataclass(frozen=True, slots=True)
class JudgedQuery:
    """The part of a query that a model can learn from.

    Attributes:
        texts: Query texts, and texts of liked examples.
        images: Liked examples, by their ids in the collection.
        unlike_texts: Texts of disliked examples.
        unlike_images: Disliked examples, by their ids in the collection.
    """

    texts: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    unlike_texts: tuple[str, ...] = ()
    unlike_images: tuple[str, ...] = ()

    def as_json(self) -> dict[str, list[str]]:
        """The query as the catalogue keeps it: the same for the same parts in any order."""
        return {name: sorted(set(parts)) for name, parts in asdict(self).items() if parts}

    @classmethod
    def from_json(cls, kept: dict[str, list[str]]) -> "JudgedQuery":
        """Return a query that the catalogue has kept."""
        return cls(**{name: tuple(parts) for name, parts in kept.items()})


@dataclass(frozen=True, slots=True)
class Judgement:
    """A user's relevance judgement of an image for a query, with the digest of the searched model.

    Attributes:
        query: The query.
        image: The image, by its id.
        relevant: Whether it is relevant.
        model: Digest of the model that was searched with.
        created: Time in ISO 8601.
        user: The user who judged; None if users aren't distinguished.
        supplemented: Whether the image is relevant and was not among the hits.
    """

    query: JudgedQuery
    image: str
    relevant: bool
    model: str
    created: str
    user: "User | None" = None
    supplemented: bool = False

    @property
    def verdict(self) -> Verdict:
        """The judgement in the words of IHE AIRAI."""
        return verdict_of(self.relevant, self.supplemented)


class User(NamedTuple):
    """A user who judges: a stable identifier, and a name for people."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class FeedbackCounts:
    """Numbers of relevance judgements in a collection; `latest` is in ISO 8601, None without judgements."""

    relevant: int
    not_relevant: int
    queries: int
    latest: str | None


@dataclass(frozen=True, slots=True)
class UsableFeedback:
    """Number of relevance judgements that give a pair of a text and a training image, and of the others.

    Attributes:
        usable: Judgements that give such a pair.
        held_out: Judgements of an image outside of the split `train`.
        without_text: Judgements of a search by images only.
        several_parts: Negative judgements of a query with several parts: the part at fault is unknown.
    """

    usable: int = 0
    held_out: int = 0
    without_text: int = 0
    several_parts: int = 0

    @property
    def all(self) -> int:
        """Number of all judgements."""
        return self.usable + self.held_out + self.without_text + self.several_parts


@dataclass(frozen=True, slots=True)
class LearningPair:
    """A part of a query, which is a text or an example by its id, and an image by its id."""

    text: str | None
    example: str | None
    image: str


@dataclass(frozen=True, slots=True)
class LearningPairs:
    """Training examples from a collection's judgements.

    Attributes:
        positives: Pairs whose image was judged relevant.
        negatives: Pairs whose image was a hit and judged not relevant: hard negatives.
    """

    positives: tuple[LearningPair, ...]
    negatives: tuple[LearningPair, ...]


def record_judgement(
    session: Session,
    collection: str,
    query: JudgedQuery,
    image: str,
    relevant: bool | None,
    *,
    limit: int,
    user: User | None = None,
    missed: bool = False,
) -> bool:
    """Record whether an image is relevant to a query; the last judgement counts.

    Args:
        session: Session of a transaction.
        collection: Name of the searched collection.
        query: Query of the search.
        image: The hit, by its id.
        relevant: The judgement; None withdraws it.
        limit: Maximum number of judgements in a collection.
        user: The user who judges.
        missed: Whether the image was not among the hits: a relevant one is a supplement.

    Returns:
        Whether the image had a judgement for the query before.

    Raises:
        UnknownCollectionError: No collection has this name.
        NoActiveGenerationError: The collection has no active generation yet.
        UnknownImageError: The collection lacks the image or an example.
        QueryError: The query has neither texts nor liked images, a text cannot be stored, or a missed image
            is not relevant.
        FeedbackFullError: The collection has as many judgements as it may have.
    """
    kept = query.as_json()
    if not (query.texts or query.images):
        raise QueryError("Give the text or the liked images that were searched for.", field="query")
    if not all(storable_text(text) for parts in kept.values() for text in parts):
        raise QueryError("A text contains a character that cannot be stored.", field="query")
    if missed and relevant is False:
        raise QueryError("Only a hit can be rejected, not a missed image.", field="missed")
    generation, _ = require_active(session, collection)
    # The lock excludes removal of the image and a concurrent judgement of it.
    session.execute(
        select(CollectionRow.id).where(CollectionRow.id == generation.collection_id).with_for_update()
    )
    key = require_image(session, collection, image).id
    for example in (*query.images, *query.unlike_images):
        require_image(session, collection, example)
    digest = _digest(kept)
    existing = session.get(FeedbackRow, (key, digest))
    if relevant is None:
        if existing is not None:
            session.delete(existing)
        return existing is not None
    replaced = existing is not None
    if existing is None:
        count = select(func.count()).where(FeedbackRow.collection_id == generation.collection_id)
        if session.execute(count).scalar_one() >= limit:
            raise FeedbackFullError(
                f"The collection has {limit:,} judgements, as many as it may have: remove them with "
                "`recoquest feedback clear`, or allow more with RECOQUEST_MAX_FEEDBACK."
            )
        existing = FeedbackRow(
            image_id=key, query_digest=digest, collection_id=generation.collection_id, query=kept
        )
        session.add(existing)
    existing.relevant, existing.model, existing.created = relevant, generation.digest, now()
    existing.supplemented = missed
    existing.user_id, existing.user_name = (None, None) if user is None else user
    return replaced


def rename_examples(session: Session, collection_id: int, ids: Mapping[str, str]) -> None:
    """Let the queries of judgements name images by their new ids, given by the former ones."""
    query = select(FeedbackRow).where(FeedbackRow.collection_id == collection_id)
    renamed = []
    for row in session.execute(query.execution_options(yield_per=_AT_ONCE)).scalars():
        kept = {
            name: sorted(ids.get(part, part) for part in parts) if name in _EXAMPLES else parts
            for name, parts in row.query.items()
        }
        if kept != row.query:
            values = {column.key: getattr(row, column.key) for column in FeedbackRow.__table__.columns}
            renamed.append((row, FeedbackRow(**values | {"query": kept, "query_digest": _digest(kept)})))
    for row, _ in renamed:
        session.delete(row)
    # First, since ids may have been swapped.
    session.flush()
    session.expunge_all()
    for _, new in renamed:
        session.merge(new)


def count_feedback(session: Session, collection: str, *, since: str = "") -> FeedbackCounts:
    """Count the judgements of hits in a collection, or those after a time in ISO 8601."""
    counted = (
        FeedbackRow.collection_id == require_collection(session, collection).id,
        FeedbackRow.created > since,
    )
    by_kind = (
        select(FeedbackRow.relevant, func.count().label("judged"))
        .where(*counted)
        .group_by(FeedbackRow.relevant)
    )
    counts = {row.relevant: row.judged for row in session.execute(by_kind)}
    queries, latest = session.execute(
        select(func.count(FeedbackRow.query_digest.distinct()), func.max(FeedbackRow.created)).where(*counted)
    ).one()
    return FeedbackCounts(counts.get(True, 0), counts.get(False, 0), queries, latest)


def count_verdicts(session: Session, since: str, until: str) -> dict[tuple[str, str], int]:
    """Count the verdicts of a time by collection, from a time in ISO 8601 up to another."""
    query = (
        select(CollectionRow.name, FeedbackRow.relevant, FeedbackRow.supplemented, func.count())
        .join(CollectionRow, CollectionRow.id == FeedbackRow.collection_id)
        .where(NOT_DELETED, FeedbackRow.created >= since, FeedbackRow.created < until)
        .group_by(CollectionRow.name, FeedbackRow.relevant, FeedbackRow.supplemented)
    )
    return {
        (name, verdict_of(relevant, supplemented)): count
        for name, relevant, supplemented, count in session.execute(query)
    }


def verdict_of(relevant: bool, supplemented: bool) -> Verdict:
    """Return a judgement in the words of IHE AIRAI."""
    if not relevant:
        return "rejected"
    return "supplemented" if supplemented else "accepted"


def count_usable(session: Session, collection: str, *, since: str = "") -> UsableFeedback:
    """Count what a training on texts and images can learn from, of all feedback or that after a time."""
    part = FeedbackRow.query
    texts, images = part["texts"].as_string(), part["images"].as_string()
    # A hit is no example of itself; see `_pairs`.
    only_itself = and_(
        part["images", 1].as_string().is_(None), part["images", 0].as_string() == ImageRow.external_id
    )
    several = or_(
        part["texts", 1].as_string().is_not(None),
        and_(images.is_not(None), not_(only_itself)),
        part["unlike_texts"].as_string().is_not(None),
        part["unlike_images"].as_string().is_not(None),
    )
    kind = case(
        (ImageRow.split != "train", "held_out"),
        (texts.is_(None), "without_text"),
        (and_(not_(FeedbackRow.relevant), several), "several_parts"),
        else_="usable",
    ).label("kind")
    counted = (
        select(kind, func.count().label("judged"))
        .select_from(FeedbackRow)
        .join(ImageRow, ImageRow.id == FeedbackRow.image_id)
        .where(
            FeedbackRow.collection_id == require_collection(session, collection).id,
            FeedbackRow.created > since,
        )
        .group_by("kind")
    )
    return UsableFeedback(**{row.kind: row.judged for row in session.execute(counted)})


def judgements(session: Session, collection: str) -> Iterator[Judgement]:
    """Yield the judgements of hits in a collection, the oldest first."""
    rows = (
        select(FeedbackRow, ImageRow.external_id)
        .join(ImageRow, ImageRow.id == FeedbackRow.image_id)
        .where(FeedbackRow.collection_id == require_collection(session, collection).id)
        .order_by(FeedbackRow.created, FeedbackRow.image_id, FeedbackRow.query_digest)
        .execution_options(yield_per=_AT_ONCE)
    )
    for row, image in session.execute(rows):
        user = None if row.user_id is None else User(row.user_id, row.user_name or "")
        query = JudgedQuery.from_json(row.query)
        yield Judgement(query, image, row.relevant, row.model, row.created, user, row.supplemented)


def judged_images(session: Session, collection: str) -> Iterator[str]:
    """Yield the ids of the images that have judgements in a collection, each once, in bounded memory."""
    key = require_collection(session, collection).id
    judged = select(FeedbackRow.image_id).where(FeedbackRow.collection_id == key)
    query = select(ImageRow.external_id).where(ImageRow.id.in_(judged)).order_by(ImageRow.id)
    yield from session.execute(query.execution_options(yield_per=_AT_ONCE)).scalars()


def clear_feedback(session: Session, collection: str) -> int:
    """Delete all judgements of hits in a collection, and return their number."""
    key = require_collection(session, collection).id
    forget = delete(FeedbackRow).where(FeedbackRow.collection_id == key).returning(FeedbackRow.image_id)
    return len(session.execute(forget).all())


def learning_pairs(session: Session, collection: str) -> LearningPairs:
    """Return what a model can learn from the feedback of a collection.

    A relevant hit is a positive of each text and each example of the query. A hit that is not relevant is a
    negative only of a query of one part: with several, it isn't known which part it doesn't fit. A judgement
    of a part alone takes precedence over one of it among others. Examples that have been removed since are
    left out.
    """
    alone: dict[LearningPair, bool] = {}
    together: dict[LearningPair, bool] = {}
    for judgement in judgements(session, collection):
        pairs, query = _pairs(judgement), judgement.query
        if len(pairs) == 1 and not (query.unlike_texts or query.unlike_images):
            alone[pairs[0]] = judgement.relevant
        elif judgement.relevant:
            together |= dict.fromkeys(pairs, True)
    judged = together | alone
    examples = {pair.example for pair in judged if pair.example is not None}
    there = images_named(session, require_collection(session, collection).id, examples)
    remaining = [pair for pair in judged if pair.example is None or pair.example in there]
    return LearningPairs(
        tuple(pair for pair in remaining if judged[pair]),
        tuple(pair for pair in remaining if not judged[pair]),
    )


def _digest(kept: Mapping[str, Sequence[str]]) -> str:
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def _pairs(judgement: Judgement) -> list[LearningPair]:
    query, image = judgement.query, judgement.image
    return [
        *(LearningPair(text, None, image) for text in query.texts),
        *(LearningPair(None, example, image) for example in query.images if example != image),
    ]


@dataclass(frozen=True, slots=True)
class ExportReport:
    """Contents of an exported manifest.

    Attributes:
        images: Number of records.
        left_out: Images whose file is missing, or that no manifest can hold.
        liked: Pairs of a query text and an image for training that was judged relevant.
        disliked: Pairs of a query text and a hit that was judged not relevant: hard negatives.
        alone: Further such pairs that training doesn't use: the image has no text, or the text no image.
        judged: Number of judgements behind these pairs, and of those that cannot be used, by reason.
    """

    images: int
    left_out: int
    liked: int
    disliked: int
    alone: int
    judged: UsableFeedback


@dataclass
class _Taught:
    """The texts that were searched for by image: those that it was relevant to, and the others."""

    liked: dict[str, list[str]] = field(default_factory=dict)
    disliked: dict[str, list[str]] = field(default_factory=dict)

    @cached_property
    def rejected(self) -> frozenset[str]:
        """All texts that an image was not relevant to."""
        return frozenset(text for texts in self.disliked.values() for text in texts)


def export_collection(
    home: Home, collection: str, folder: Path, *, feedback: bool = True, label_sentences: bool = False
) -> ExportReport:
    """Write a folder with the manifest of a collection and links to its images, whole or not at all.

    Images for training get the texts that they were judged relevant to in addition to their own, so often
    that every other draw is one of them, and as `not_texts` those that they were judged not relevant to.
    Held-out images only get the former, and only if they have no text of their own: models are
    measured by them. An image for validation without text and label can choose no epoch, and goes to split
    `test`; so do all where no two have different texts, and ten or fewer have labels.

    Args:
        home: Home of the collection.
        collection: Name of the collection.
        folder: Must not exist.
        feedback: Whether judgements are included.
        label_sentences: Whether training makes texts from labels, which matters to the counts alone.
    """
    with home.catalogue.read() as session, atomic_folder(folder) as fresh:
        (fresh / "images").mkdir()
        taught = _taught(session, collection) if feedback else _Taught()
        chooses = _can_choose(_rows(session, collection, ImageRow.split == "val"), taught)
        export = _Export(home.store, fresh / "images", taught, chooses, label_sentences)
        refused = Rejections(1, max_share=1.0)
        written = write_manifest(fresh, export.records(_rows(session, collection)), rejections=refused)
        judged = count_usable(session, collection)
    missing, disliked = export.missing + len(refused), export.disliked()
    alone = export.rejected - disliked
    return ExportReport(written, missing, export.liked, disliked, alone, judged)


@dataclass(slots=True)
class _Export:
    """Makes records with links to their images, and counts."""

    store: ImageStore
    images: Path
    taught: _Taught
    chooses: bool
    label_sentences: bool
    missing: int = 0
    liked: int = 0
    rejected: int = 0
    _met: list[str] = field(default_factory=list)
    _drawn: set[str] = field(default_factory=set)

    def records(self, rows: Iterable[tuple[ImageRow, list[str]]]) -> Iterator[Record]:
        """The records of all images whose file is there."""
        for row, texts in rows:
            try:
                link = self.images / row.sha256
                if not link.is_symlink():
                    link.symlink_to(self.store.path(row.sha256).absolute())
            except StoreError:
                self.missing += 1
                continue
            liked = self.taught.liked.get(row.external_id, [])
            disliked = self.taught.disliked.get(row.external_id, [])
            if row.split != "train":
                liked, disliked = ([] if texts else liked), []
            else:
                self.liked += len(liked)
                self.rejected += len(disliked)
                self._drawn.update(self.taught.rejected.intersection([*texts, *liked]))
                if texts or liked or (self.label_sentences and row.labels):
                    self._met += disliked
            liked = [text for text in liked if text not in texts]
            yield _record(row, texts, liked, disliked, validates=self.chooses)

    def disliked(self) -> int:
        """Pairs that do not go together and come into one batch: image and text are drawn with others."""
        return sum(text in self._drawn for text in self._met)


def _taught(session: Session, collection: str) -> _Taught:
    pairs, taught = learning_pairs(session, collection), _Taught()
    for kept, by_image in ((pairs.positives, taught.liked), (pairs.negatives, taught.disliked)):
        for pair in kept:
            if pair.text is not None:
                by_image.setdefault(pair.image, []).append(pair.text)
    return taught


def _can_choose(validation: Iterable[tuple[ImageRow, list[str]]], taught: _Taught) -> bool:
    """Return whether images for validation can compare two models: two by texts, or eleven by labels."""
    described: set[frozenset[str]] = set()
    labelled = 0
    for row, texts in validation:
        labelled += bool(row.labels)
        if own := frozenset(texts or taught.liked.get(row.external_id, [])):
            described.add(own)
        if labelled > _DEEP or len(described) > 1:
            return True
    return False


def _rows(
    session: Session, collection: str, *conditions: ColumnElement[bool]
) -> Iterator[tuple[ImageRow, list[str]]]:
    """The images of a collection in the order in which they came, with their texts."""
    key, after = require_collection(session, collection).id, 0
    while True:
        query = select(ImageRow).where(ImageRow.collection_id == key, ImageRow.id > after, *conditions)
        rows = session.execute(query.order_by(ImageRow.id).limit(_EXPORTED_AT_ONCE)).scalars().all()
        if not rows:
            return
        texts = _texts(session, [row.id for row in rows])
        for row in rows:
            yield row, texts.get(row.id, [])
        after = rows[-1].id
        session.expunge_all()


def _texts(session: Session, images: Sequence[int]) -> Mapping[int, list[str]]:
    query = select(TextRow.image_id, TextRow.text).where(TextRow.image_id.in_(images))
    texts: dict[int, list[str]] = {}
    for image, text in session.execute(query.order_by(TextRow.image_id, TextRow.position)):
        texts.setdefault(image, []).append(text)
    return texts


def _record(
    row: ImageRow, texts: list[str], liked: list[str], disliked: list[str], *, validates: bool
) -> Record:
    # Queries are drawn as often as the image's own texts.
    often = max(1, round(len(texts) / len(liked))) if liked else 0
    chooses = validates and row.split == "val" and bool(texts or liked or row.labels)
    return Record(
        id=row.external_id,
        image=f"images/{row.sha256}",
        split="train" if row.split == "train" else "val" if chooses else "test",
        texts=(*texts, *liked * often),
        group=row.group_name,
        labels=tuple(row.labels),
        metadata=row.details,
        not_texts=tuple(disliked),
    )
