"""Images as the catalogue holds them."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Final, cast

from pydantic_core import from_json
from sqlalchemy import BindParameter, Select, bindparam, null, select
from sqlalchemy.orm import Session

from index.catalogue import Catalogue, DirectRead, VersionedCache
from index.catalogue.collections import TARGETS, Target, require_collection
from index.catalogue.lookup import storable_text
from index.catalogue.tables import (
    REPORT_POSITION,
    CollectionRow,
    EmbeddingRow,
    FindingRow,
    ImageRow,
    TextEmbeddingRow,
    TextRow,
)
from index.errors import UnknownImageError
from index.search.results import (
    ActiveGeneration,
    FoundImage,
    FoundText,
    Hit,
    HitDetails,
    HitPart,
    StoredFinding,
    StoredImage,
)
from index.vectors.codec import decode_vectors
from index.vectors.protocol import Vectors
from training.clinical.findings import STATES, State
from training.common.manifest import MetadataValue

# Size of the cache in images: some kilobytes each, with long reports.
_CACHE_IMAGES: Final = 10_000
# Databases bound the number of values in a statement.
_KEYS_AT_ONCE: Final = 10_000


def require_image(session: Session, collection: str, image_id: str) -> ImageRow:
    """Return the row of an image.

    Raises:
        UnknownCollectionError: No collection has this name.
        UnknownImageError: The collection has no such image.
    """
    query = (
        select(ImageRow)
        .join(CollectionRow, CollectionRow.id == ImageRow.collection_id)
        .where(CollectionRow.name == collection, ImageRow.external_id == image_id)
    )
    # Names that no database can hold are not looked up: PostgreSQL would refuse the whole statement.
    askable = storable_text(collection) and storable_text(image_id)
    row = session.execute(query).scalar_one_or_none() if askable else None
    if row is None:
        require_collection(session, collection)
        raise UnknownImageError(collection, image_id)
    return row


def read_image(session: Session, collection: str, image_id: str) -> StoredImage:
    """Return everything that is known of an image.

    Raises:
        UnknownCollectionError: No collection has this name.
        UnknownImageError: The collection has no such image.
    """
    row = require_image(session, collection, image_id)
    texts = select(TextRow.text).where(TextRow.image_id == row.id).order_by(TextRow.position)
    return StoredImage(
        id=row.external_id,
        texts=tuple(session.execute(texts).scalars()),
        report=row.report,
        findings=_read_findings(session, row.id),
        labels=tuple(row.labels),
        metadata=_metadata(row.details),
        split=row.split,
        group=row.group_name,
        width=row.width,
        height=row.height,
        media_type=row.media_type,
        sha256=row.sha256,
        record_digest=row.record_digest,
    )


def _read_findings(session: Session, image_key: int) -> tuple[StoredFinding, ...]:
    """Return the findings of an image: those of the report first, then of its texts in order."""
    query = (
        select(FindingRow)
        .where(FindingRow.image_id == image_key)
        .order_by(FindingRow.position, FindingRow.start, FindingRow.finding)
    )
    return tuple(
        StoredFinding(
            row.finding,
            cast(State, row.state),
            None if row.position == REPORT_POSITION else row.position,
            row.start,
            row.stop,
        )
        for row in session.execute(query).scalars()
    )


def read_details(
    catalogue: Catalogue,
    active: ActiveGeneration | None,
    collection: str,
    hits: Sequence[Hit],
    parts: Collection[HitPart],
) -> list[HitDetails]:
    """Return what hits do not hold of their images, in order; nothing where no such part is asked for.

    Args:
        catalogue: Catalogue to read.
        active: Generation of the vectors; None where none are asked for.
        collection: Collection of the hits.
        hits: Hits of one page.
        parts: What is asked for.
    """
    if not {"report", "vector"} & set(parts):
        return []
    with catalogue.read() as session:
        images = (
            select(ImageRow.external_id, ImageRow.id, ImageRow.report)
            .join(CollectionRow, CollectionRow.id == ImageRow.collection_id)
            .where(CollectionRow.name == collection, ImageRow.external_id.in_({hit.id for hit in hits}))
        )
        rows = {name: (key, report) for name, key, report in session.execute(images)}
        keys = [key for key, _ in rows.values()]
        vectors = {}
        if "vector" in parts and active is not None:
            vectors = vectors_of(session, active, keys, texts=any(hit.image.text for hit in hits))
    return [_details(hit, rows.get(hit.id), parts, vectors) for hit in hits]


def _details(
    hit: Hit,
    row: tuple[int, str | None] | None,
    parts: Collection[HitPart],
    vectors: Mapping[tuple[int, int | None], Vectors],
) -> HitDetails:
    if row is None:
        return HitDetails()
    key, report = row
    position = None if hit.image.text is None else hit.image.text.position
    return HitDetails(report if "report" in parts else None, vectors.get((key, position)))


def vectors_of(
    session: Session, active: ActiveGeneration, images: Sequence[int], *, texts: bool
) -> dict[tuple[int, int | None], Vectors]:
    """Return vectors by image and position of the text; the position of an image itself is None."""
    query: Select[int, int | None, bytes]
    if texts:
        query = (
            select(TextRow.image_id, TextRow.position, TextEmbeddingRow.vector)
            .join(TextEmbeddingRow, TextEmbeddingRow.text_id == TextRow.id)
            .where(TextEmbeddingRow.generation_id == active.generation, TextRow.image_id.in_(images))
        )
    else:
        query = select(EmbeddingRow.image_id, null(), EmbeddingRow.vector).where(
            EmbeddingRow.generation_id == active.generation, EmbeddingRow.image_id.in_(images)
        )
    rows = session.execute(query).all()
    if not rows:
        return {}
    decoded = decode_vectors([vector for _, _, vector in rows], active.dim)
    return {(image, position): vector for (image, position, _), vector in zip(rows, decoded, strict=True)}


class FoundImages:
    """Images of hits, cached until the next write; threads may share it."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._kept = {target: VersionedCache[int, FoundImage](catalogue) for target in TARGETS}

    def of(
        self, keys: Sequence[int], target: Target = "images", version: Hashable = None
    ) -> list[FoundImage | None]:
        """Return the image of each hit, in order; None for a removed one.

        Args:
            keys: Keys of the hits.
            target: Whether the keys are of images or of texts.
            version: Version of the catalogue just read; None: read it now.
        """
        every = self._kept[target]
        kept = every.now() if version is None else every.at(version)
        found = [*map(kept.get, keys)]
        if not all(found):
            missing = [key for key, image in zip(keys, found, strict=True) if image is None]
            read = _read_found(self._catalogue, missing, target)
            found = [image or read.get(key) for key, image in zip(keys, found, strict=True)]
            if len(kept) > _CACHE_IMAGES:
                kept.clear()
            kept.update(read)
        return found


def _read_found(catalogue: Catalogue, keys: Sequence[int], target: Target) -> dict[int, FoundImage]:
    found = {}
    parts = [keys[start : start + _KEYS_AT_ONCE] for start in range(0, len(keys), _KEYS_AT_ONCE)]
    every = chain.from_iterable(catalogue.rows(_FOUND[target], part) for part in parts)
    stated: dict[int, list[str]] = {}
    for key, finding in chain.from_iterable(catalogue.rows(_STATED[target], part) for part in parts):
        stated.setdefault(key, []).append(finding)
    for key, rows in groupby(every, itemgetter(0)):
        (_, external_id, group, labels, details, position, searched, text), *others = rows
        found[key] = FoundImage(
            id=external_id,
            group=group,
            texts=() if text is None else (text, *(other[-1] for other in others)),
            findings=_by_state(stated.get(key, ())),
            labels=tuple(_plain(labels)),
            metadata=_metadata(_plain(details)),
            text=None if searched is None else FoundText(position, searched),
        )
    return found


def _by_state(stated: Sequence[str]) -> dict[State, tuple[str, ...]]:
    """Sort findings with their states, as the catalogue has them, by state."""
    named = [finding.rpartition(": ") for finding in stated]
    return {state: tuple(name for name, _, own in named if own == state) for state in STATES}


def _plain(value: Any) -> Any:
    """Return what a column of JSON holds: SQLite's driver gives it as text."""
    return from_json(value) if isinstance(value, str) else value


def _metadata(details: dict[str, Any]) -> dict[str, MetadataValue]:
    """Turn JSON lists back into tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in details.items()}


_IMAGES: Final = ImageRow.__table__
_TEXTS: Final = TextRow.__table__
_SEARCHED: Final = _TEXTS.alias("searched")
_IMAGE_COLUMNS: Final = (
    _IMAGES.c.external_id,
    _IMAGES.c.group_name,
    _IMAGES.c.labels,
    _IMAGES.c.details,
)
_KEYS: Final[BindParameter[Any]] = bindparam("keys", expanding=True)
_ITS_TEXTS: Final = _TEXTS.c.image_id == _IMAGES.c.id
_FOUND: Final[dict[Target, DirectRead]] = {
    "images": DirectRead(
        select(_IMAGES.c.id.label("key"), *_IMAGE_COLUMNS, null(), null(), _TEXTS.c.text)
        .select_from(_IMAGES.outerjoin(_TEXTS, _ITS_TEXTS))
        .where(_IMAGES.c.id.in_(_KEYS))
        .order_by(_IMAGES.c.id, _TEXTS.c.position)
    ),
    "texts": DirectRead(
        select(
            _SEARCHED.c.id.label("key"),
            *_IMAGE_COLUMNS,
            _SEARCHED.c.position,
            _SEARCHED.c.text,
            _TEXTS.c.text,
        )
        .select_from(
            _SEARCHED.join(_IMAGES, _SEARCHED.c.image_id == _IMAGES.c.id).outerjoin(_TEXTS, _ITS_TEXTS)
        )
        .where(_SEARCHED.c.id.in_(_KEYS))
        .order_by(_SEARCHED.c.id, _TEXTS.c.position)
    ),
}
_FINDINGS: Final = FindingRow.__table__
_STATED: Final[dict[Target, DirectRead]] = {
    "images": DirectRead(
        select(_FINDINGS.c.image_id, _FINDINGS.c.image_finding)
        .distinct()
        .where(_FINDINGS.c.image_id.in_(_KEYS))
        .order_by(_FINDINGS.c.image_id, _FINDINGS.c.image_finding)
    ),
    "texts": DirectRead(
        select(_TEXTS.c.id, _FINDINGS.c.image_finding)
        .distinct()
        .select_from(_TEXTS.join(_FINDINGS, _FINDINGS.c.image_id == _TEXTS.c.image_id))
        .where(_TEXTS.c.id.in_(_KEYS))
        .order_by(_TEXTS.c.id, _FINDINGS.c.image_finding)
    ),
}
