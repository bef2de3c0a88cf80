"""Pages of hits, and images as the catalogue holds them."""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from pydantic_core import from_json
from sqlalchemy import BindParameter, Select, bindparam, null, select
from sqlalchemy.orm import Session

from index.catalogue import Catalogue, VersionedCache
from index.catalogue.collections import TARGETS, Generation, Target
from index.catalogue.images import as_metadata
from index.catalogue.tables import (
    CollectionRow,
    EmbeddingRow,
    FindingRow,
    ImageRow,
    TextEmbeddingRow,
    TextRow,
)
from index.catalogue.words import MAX_CHARACTERS, matched_spans
from index.filters.grammar import FieldKind
from index.scoring import ScoreScale
from index.search.cursors import PageEnd, PagePosition, encode_cursor
from index.vectors.protocol import Vectors, decode_vectors
from training.clinical.findings import STATES, State
from training.clinical.text.sentences import split_sentences
from training.common.manifest import MetadataValue

CosineKind = Literal["cosine", "blade_cosine", "absolute_cosine"]
# The list that a hit comes from.
FoundBy = Literal["vector", "keywords", "findings"]
# What a response may include about the image of a hit.
HitPart = Literal["texts", "findings", "labels", "metadata", "report", "vector"]
# A longer text is cut around its first match.
_MAX_LENGTH: Final = 400
_BEFORE: Final = 120
_CUT: Final = "\u2026"
# Size of the cache in images: some kilobytes each, with long reports.
_CACHE_IMAGES: Final = 10_000
# Databases bound the number of values in a statement.
_KEYS_AT_ONCE: Final = 10_000


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """A field that filters can name, and the kinds of values seen in it."""

    name: str
    kinds: tuple[FieldKind, ...]


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    """A collection as a list shows it; without an active generation it cannot be searched yet."""

    name: str
    count: int
    generation: int | None
    model: str | None
    digest: str | None
    fields: tuple[FieldInfo, ...]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A registered encoder and the collections that are searched with it."""

    name: str
    digest: str
    dim: int
    blades: int
    unsigned: bool
    recipe: str
    created: str
    metrics: Mapping[str, float]
    collections: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ActiveGeneration(Generation):
    """The embedding of a collection that answers searches, and the encoder that queries must go through."""

    bundle: Path
    count: int

    @property
    def generation(self) -> int:
        """Number of the generation."""
        return self.id


def cosine_kind(by: ActiveGeneration | ModelInfo) -> CosineKind:
    """Kind of cosine that compares the vectors of an encoder."""
    if by.unsigned:
        return "absolute_cosine"
    return "cosine" if by.blades == 1 else "blade_cosine"


@dataclass(frozen=True, slots=True)
class HitText:
    """A text hit, and its position among its image's texts, from 0."""

    position: int
    text: str


class MatchedText(NamedTuple):
    """A text, or a sentence of a report, and the spans (start, end) of words in it, in characters."""

    text: str
    spans: tuple[tuple[int, int], ...]


class HitImage(NamedTuple):
    """Image of a hit; `text` is the text hit, None if images are searched."""

    id: str
    text: HitText | None
    group: str | None
    texts: tuple[str, ...]
    findings: Mapping[State, tuple[str, ...]]
    labels: tuple[str, ...]
    metadata: Mapping[str, MetadataValue]


# A tuple is made in a third of the time of a frozen dataclass, and a page has up to hundreds of hits.
class Hit(NamedTuple):
    """An image hit, or a text hit with its image.

    Attributes:
        image: Found image.
        rank: Counts from 1 over all pages.
        score: Score that orders the hits: the cosine, or the sum of a fused ranking; NaN without a query.
        cosine: Similarity of query and hit, by the model's own kind of cosine; NaN without a query.
        found_by: The lists that the hit is in: of vectors, of exact words, of what says the same of findings.
        others: Group size - 1, among images that pass the filter and are not left out; only with groups.
        matched: Text with the words of the query; None without words, or if it has none.
    """

    image: HitImage
    rank: int
    score: float
    cosine: float
    found_by: tuple[FoundBy, ...]
    others: int | None
    matched: MatchedText | None

    @property
    def id(self) -> str:
        """The image's id."""
        return self.image.id


_COSINE: Final[Callable[[Hit], float]] = attrgetter("cosine")


@dataclass(frozen=True)
class SearchPage:
    """Hits, best first.

    Attributes:
        hits: At most as many as requested.
        position: Start of the page; None for the first.
        end: Returns where it ends, given whether it is confident; None on the last.
        measure: Returns what the query's cosines usually are, and which are confident; None where there is
            nothing to compare it with.
        exact: Whether nothing nearer can have been missed.
        search_ms: Time from the query vector to the hits.
        fused: Whether scores are sums of a fused ranking.
        count: Number of hits on all pages; None with a query, and of more than are ranked by words.
        unknown_words: Words of the request, as typed, that no text of the collection has.
    """

    hits: tuple[Hit, ...]
    position: PagePosition | None = field(compare=False)
    end: Callable[[bool | None], PageEnd] | None = field(compare=False)
    measure: Callable[[], ScoreScale] | None = field(compare=False)
    exact: bool
    search_ms: float
    fused: bool
    count: int | None = None
    unknown_words: tuple[str, ...] = ()

    @cached_property
    def scale(self) -> ScoreScale | None:
        """The query's cosines with a sample of the collection; measured on first use."""
        return None if self.measure is None else self.measure()

    @cached_property
    def z_scores(self) -> list[float] | None:
        """Z-score of each hit's cosine; see `index.scoring`."""
        return None if self.scale is None else self.scale.z_scores(map(_COSINE, self.hits))

    @cached_property
    def confident(self) -> bool | None:
        """Whether held-out queries with such a best score find what they ask for; None if unknown."""
        if self.position is not None:
            return self.position.confident
        if self.scale is None or self.scale.least is None or not self.hits:
            return None
        return max(map(_COSINE, self.hits)) >= self.scale.least

    @cached_property
    def next_cursor(self) -> str | None:
        """Cursor of the next page; None on the last. Made on demand, as it contains the whole query."""
        return None if self.end is None else encode_cursor(self.end(self.confident))


class HitDetails(NamedTuple):
    """Details of a hit's image beyond those of every hit; empty where no request names them.

    Attributes:
        report: The image's report.
        vector: The vector (D,) of the image or text; None also if it was removed meanwhile.
    """

    report: str | None = None
    vector: Vectors | None = None


def read_details(
    catalogue: Catalogue,
    active: ActiveGeneration | None,
    collection: str,
    hits: Sequence[Hit],
    parts: Collection[HitPart],
) -> list[HitDetails]:
    """Return what hits do not hold of their images, in order, as far as these parts name it."""
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
    details = []
    for hit in hits:
        # The image may have been removed.
        key, report = rows.get(hit.id, (-1, None))
        position = None if hit.image.text is None else hit.image.text.position
        details.append(HitDetails(report if "report" in parts else None, vectors.get((key, position))))
    return details


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


class HitImages:
    """Images of hits, cached until the next write; threads may share it."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._kept = {target: VersionedCache[int, HitImage](catalogue) for target in TARGETS}

    def get(
        self, keys: Sequence[int], target: Target = "images", version: Hashable = None
    ) -> list[HitImage | None]:
        """Return the image of each hit, in order; None for a removed one.

        `version` is that of the catalogue just read; None reads it now.
        """
        every = self._kept[target]
        kept = every.at(version)
        images = [*map(kept.get, keys)]
        if not all(images):
            missing = [key for key, image in zip(keys, images, strict=True) if image is None]
            read = _read_images(self._catalogue, missing, target)
            images = [image or read.get(key) for key, image in zip(keys, images, strict=True)]
            if len(kept) > _CACHE_IMAGES:
                kept.clear()
            kept.update(read)
        return images


def _read_images(catalogue: Catalogue, keys: Sequence[int], target: Target) -> dict[int, HitImage]:
    images = {}
    parts = [keys[start : start + _KEYS_AT_ONCE] for start in range(0, len(keys), _KEYS_AT_ONCE)]
    every = chain.from_iterable(catalogue.rows(_FOUND[target], part) for part in parts)
    stated: dict[int, list[str]] = {}
    for key, finding in chain.from_iterable(catalogue.rows(_STATED[target], part) for part in parts):
        stated.setdefault(key, []).append(finding)
    for key, rows in groupby(every, itemgetter(0)):
        named = [finding.rpartition(": ") for finding in stated.get(key, ())]
        (_, external_id, group, labels, details, position, searched, text), *others = rows
        images[key] = HitImage(
            id=external_id,
            group=group,
            texts=() if text is None else (text, *(other[-1] for other in others)),
            # The catalogue has "edema: absent".
            findings={state: tuple(name for name, _, own in named if own == state) for state in STATES},
            labels=tuple(_plain(labels)),
            metadata=as_metadata(_plain(details)),
            text=None if searched is None else HitText(position, searched),
        )
    return images


def _plain(value: Any) -> Any:
    """Return what a column of JSON holds: SQLite's driver gives it as text."""
    return from_json(value) if isinstance(value, str) else value


_IMAGES: Final = ImageRow.__table__
_TEXTS: Final = TextRow.__table__
_SEARCHED: Final = _TEXTS.alias("searched")
_IMAGE_COLUMNS: Final = (_IMAGES.c.external_id, _IMAGES.c.group_name, _IMAGES.c.labels, _IMAGES.c.details)
_KEYS: Final[BindParameter[Any]] = bindparam("keys", expanding=True)
_ITS_TEXTS: Final = _TEXTS.c.image_id == _IMAGES.c.id
_FOUND: Final[dict[Target, Select[*tuple[Any, ...]]]] = {
    "images": (
        select(_IMAGES.c.id.label("key"), *_IMAGE_COLUMNS, null(), null(), _TEXTS.c.text)
        .select_from(_IMAGES.outerjoin(_TEXTS, _ITS_TEXTS))
        .where(_IMAGES.c.id.in_(_KEYS))
        .order_by(_IMAGES.c.id, _TEXTS.c.position)
    ),
    "texts": (
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
_STATED: Final[dict[Target, Select[*tuple[Any, ...]]]] = {
    "images": (
        select(_FINDINGS.c.image_id, _FINDINGS.c.image_finding)
        .distinct()
        .where(_FINDINGS.c.image_id.in_(_KEYS))
        .order_by(_FINDINGS.c.image_id, _FINDINGS.c.image_finding)
    ),
    "texts": (
        select(_TEXTS.c.id, _FINDINGS.c.image_finding)
        .distinct()
        .select_from(_TEXTS.join(_FINDINGS, _FINDINGS.c.image_id == _TEXTS.c.image_id))
        .where(_TEXTS.c.id.in_(_KEYS))
        .order_by(_TEXTS.c.id, _FINDINGS.c.image_finding)
    ),
}


def matched_texts(
    catalogue: Catalogue, words: str, keys: Sequence[int], images: Sequence[HitImage], target: Target
) -> list[MatchedText | None]:
    """Return for each hit the text or the sentence of its report that has most of the words.

    A text hit is searched alone; for an image hit its texts, and then its report.
    """
    matches = [_best(image.texts if image.text is None else (image.text.text,), words) for image in images]
    missing = [key for key, match in zip(keys, matches, strict=True) if match is None]
    if target == "texts" or not missing:
        return matches
    with catalogue.read() as session:
        query = select(ImageRow.id, ImageRow.report).where(ImageRow.id.in_(missing))
        reports = {key: report for key, report in session.execute(query) if report is not None}
    return [
        _best(split_sentences(reports[key][:MAX_CHARACTERS], fragments=True), words)
        if match is None and key in reports
        else match
        for key, match in zip(keys, matches, strict=True)
    ]


def _best(texts: Iterable[str], words: str) -> MatchedText | None:
    """Return the first of the texts with the most different matches."""
    best, most = None, 0
    for text in texts:
        spans = matched_spans(text, words)
        different = len({text[start:end].casefold() for start, end in spans})
        if different > most:
            best, most = _around(text, spans), different
    return best


def _around(text: str, spans: Sequence[tuple[int, int]]) -> MatchedText:
    if len(text) <= _MAX_LENGTH:
        return MatchedText(text, tuple(spans))
    first = max(0, min(spans[0][0] - _BEFORE, len(text) - _MAX_LENGTH))
    last = first + _MAX_LENGTH
    head, tail = _CUT if first else "", _CUT if last < len(text) else ""
    shift = len(head) - first
    kept = tuple((start + shift, end + shift) for start, end in spans if first <= start and end <= last)
    return MatchedText(f"{head}{text[first:last]}{tail}", kept)
