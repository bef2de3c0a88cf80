"""A collection as a manifest, with what its feedback teaches, so that models can be trained on it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from index.catalogue.collections import require_collection
from index.catalogue.tables import ImageRow, TextRow
from index.errors import StoreError
from index.feedback.judgements import UsableFeedback, count_usable, learning_pairs
from index.files.image_store import ImageStore
from index.home import Home
from training.common.atomic import atomic_folder
from training.common.manifest import Record, Rejections, write_manifest

_AT_ONCE: Final = 1000
# Labels measure precision among the first ten images of others.
_DEEP: Final = 10


@dataclass(frozen=True, slots=True)
class ExportReport:
    """Contents of an exported manifest.

    Attributes:
        images: Number of records.
        left_out: Images whose file is missing, or that no manifest can hold.
        liked: Pairs of a text that was searched for and an image for training that was found relevant.
        disliked: Pairs of a text and an image that was found and not relevant: hard negatives.
        alone: Further such pairs that training meets nowhere: the image has no text, or the text no image.
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

    Images for training get the texts that they were found relevant to beside their own, so often that every
    other draw is one of them, and as `not_texts` those that they were found for and not relevant to. Images
    that are held out get the first alone, and only where they have no text of their own: models are measured
    by them. An image for validation without text and label can choose no epoch, and goes to split `test`; so
    do all where no two have different texts, and ten or fewer have labels.

    Args:
        home: Home of the collection.
        collection: Name of the collection.
        folder: Must not exist.
        feedback: Whether what was said of hits goes in.
        label_sentences: Whether training makes texts from labels, which matters to the counts alone.

    Raises:
        UnknownCollectionError: No collection has this name.
        OSError: The folder cannot be written.
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
                self._link(row.sha256)
            except StoreError:
                self.missing += 1
                continue
            liked, disliked = self._said(row)
            if row.split != "train":
                liked, disliked = ([] if texts else liked), []
            else:
                self._count(row, [*texts, *liked], disliked)
                self.liked += len(liked)
            liked = [text for text in liked if text not in texts]
            yield _record(row, texts, liked, disliked, validates=self.chooses)

    def disliked(self) -> int:
        """Pairs that do not go together and come into one batch: image and text are drawn with others."""
        return sum(text in self._drawn for text in self._met)

    def _count(self, row: ImageRow, texts: list[str], disliked: list[str]) -> None:
        self.rejected += len(disliked)
        self._drawn.update(self.taught.rejected.intersection(texts))
        if texts or (self.label_sentences and row.labels):
            self._met += disliked

    def _link(self, sha256: str) -> None:
        link = self.images / sha256
        if not link.is_symlink():
            link.symlink_to(self.store.path(sha256).absolute())

    def _said(self, row: ImageRow) -> tuple[list[str], list[str]]:
        taught = self.taught
        return taught.liked.get(row.external_id, []), taught.disliked.get(row.external_id, [])


def _taught(session: Session, collection: str) -> _Taught:
    pairs, taught = learning_pairs(session, collection), _Taught()
    for kept, by_image in ((pairs.positives, taught.liked), (pairs.negatives, taught.disliked)):
        for pair in kept:
            if pair.text is not None:
                by_image.setdefault(pair.image, []).append(pair.text)
    return taught


def _can_choose(validation: Iterable[tuple[ImageRow, list[str]]], taught: _Taught) -> bool:
    """Tell if images for validation distinguish two models: two by their texts, or eleven by labels."""
    said: set[frozenset[str]] = set()
    labelled = 0
    for row, texts in validation:
        labelled += bool(row.labels)
        if own := frozenset(texts or taught.liked.get(row.external_id, [])):
            said.add(own)
        if labelled > _DEEP or len(said) > 1:
            return True
    return False


def _rows(
    session: Session, collection: str, *conditions: ColumnElement[bool]
) -> Iterator[tuple[ImageRow, list[str]]]:
    """The images of a collection in the order in which they came, with their texts."""
    key, after = require_collection(session, collection).id, 0
    while True:
        query = select(ImageRow).where(ImageRow.collection_id == key, ImageRow.id > after, *conditions)
        rows = session.execute(query.order_by(ImageRow.id).limit(_AT_ONCE)).scalars().all()
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
