"""Answers about images, searches and collections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recoquest_client.errors import ProblemError


@dataclass(frozen=True)
class Links:
    """Paths of an image on the service."""

    image: str
    thumbnail: str


@dataclass(frozen=True)
class Stated:
    """Findings that texts and report of an image mention, by what they say of them."""

    present: tuple[str, ...] = ()
    uncertain: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


@dataclass(frozen=True)
class FoundText:
    """A found text and its position among the image's texts, from 0."""

    position: int
    text: str


@dataclass(frozen=True)
class Match:
    """A text with words of the query; `spans` are their positions in code points."""

    text: str
    spans: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Area:
    """A part of a picture, in fractions of its width and height."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class SimilarityMap:
    """Share of each region of an image in its cosine with a query, row by row over `area`."""

    id: str
    cosine: float
    width: int
    height: int
    values: tuple[tuple[float, ...], ...]
    area: Area


@dataclass(frozen=True)
class ListedImage:
    """An image of a list; parts that were not asked for are empty."""

    id: str
    links: Links
    group: str | None = None
    texts: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    findings: Stated | None = None
    report: str | None = None
    vector: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Hit:
    """A found image, or a found text with its image; parts that were not asked for are empty.

    `score` orders the hits, `z_score` says by how many standard deviations the cosine is above the mean
    of the query's with the collection. None is a probability.
    """

    id: str
    rank: int
    links: Links
    score: float | None = None
    score_kind: str | None = None
    cosine: float | None = None
    cosine_kind: str | None = None
    z_score: float | None = None
    found_by: tuple[str, ...] = ()
    text: FoundText | None = None
    matched: Match | None = None
    group: str | None = None
    group_size: int | None = None
    texts: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    findings: Stated | None = None
    report: str | None = None
    vector: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Truncation:
    """A text of the query that is longer than the encoder reads."""

    field: str
    tokens: int
    kept: int
    searched_text: str


@dataclass(frozen=True)
class QueryEcho:
    """The query as it was understood."""

    limit: int
    truncations: tuple[Truncation, ...] = ()
    filter: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class GenerationRef:
    """The generation that answered or was written to."""

    collection: str
    generation: int
    model: str
    digest: str
    exact: bool | None = None


@dataclass(frozen=True)
class SearchPage:
    """A page of hits.

    `confident`: at such a score, held-out queries find what they ask for above chance; None: not measured.
    `unknown_keywords` are words of `keywords` that no text of the collection has. `next_cursor` is only there
    where it was asked for; `has_more` says whether there are hits behind the page.
    """

    hits: tuple[Hit, ...]
    query: QueryEcho
    confident: bool | None = None
    count: int | None = None
    next_cursor: str | None = None
    served_by: GenerationRef | None = None
    unknown_keywords: tuple[str, ...] = ()
    has_more: bool = False


@dataclass(frozen=True)
class BatchResult:
    """Answer to one search of a batch: its page, or the error that it would have raised alone."""

    page: SearchPage | None
    problem: ProblemError | None


@dataclass(frozen=True)
class ImagePage:
    """A page of images."""

    images: tuple[ListedImage, ...]
    count: int
    next_cursor: str | None = None


@dataclass(frozen=True)
class ImageFinding:
    """A mention of a finding in a text, or in the report where `position` is None.

    `prior` says whether its sentence compares with an earlier examination, or mentions one.
    """

    finding: str
    state: str
    start: int
    end: int
    position: int | None = None
    prior: bool | None = None


@dataclass(frozen=True)
class Image:
    """A stored image; `etag` is the condition of a change of it."""

    id: str
    width: int
    height: int
    media_type: str
    sha256: str
    links: Links
    texts: tuple[str, ...] = ()
    report: str | None = None
    findings: tuple[ImageFinding, ...] = ()
    labels: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    split: str | None = None
    group: str | None = None
    etag: str = ""


@dataclass(frozen=True)
class GenerationName:
    """The generation that a collection is searched in."""

    collection: str
    number: int
    model: str
    digest: str


@dataclass(frozen=True)
class Generation:
    """A generation of a collection: building, active or retired."""

    collection: str
    number: int
    model: str
    digest: str
    state: str
    images: int
    texts: int
    missing: int
    created: str | None = None
    activated: str | None = None
    comparison: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class FieldValue:
    """A value of a field, and how many images have it."""

    value: Any
    count: int


@dataclass(frozen=True)
class Field:
    """A field to filter by; facets and single collections describe its values."""

    name: str
    kinds: tuple[str, ...]
    values: tuple[FieldValue, ...] = ()
    distinct: int | None = None
    minimum: Any = None
    maximum: Any = None
    date_shifted: bool | None = None


@dataclass(frozen=True)
class FindingCount:
    """How many images say each thing of a finding."""

    finding: str
    present: int
    uncertain: int
    absent: int


@dataclass(frozen=True)
class Collection:
    """A collection; `generation` is None while it cannot be searched."""

    name: str
    count: int
    fields: tuple[Field, ...]
    generation: GenerationName | None = None
    findings: tuple[FindingCount, ...] = ()


@dataclass(frozen=True)
class Embedding:
    """The vector of one input, at length one."""

    index: int
    embedding: tuple[float, ...]


@dataclass(frozen=True)
class Embeddings:
    """Vectors, those of texts before those of images; vectors of one digest can be compared."""

    data: tuple[Embedding, ...]
    model: str
    digest: str
    truncations: tuple[Truncation, ...] = ()


@dataclass(frozen=True)
class PictureLink:
    """A link to a picture: path on the service, with its signature, and its end in UTC."""

    url: str
    expires: str


@dataclass(frozen=True)
class Alias:
    """Another name of a collection; `etag` is that of its next change."""

    alias: str
    collection: str
    etag: str


@dataclass(frozen=True)
class Facets:
    """Images that pass a filter, and the values of their fields."""

    count: int
    fields: tuple[Field, ...]
    findings: tuple[FindingCount, ...] = ()


@dataclass(frozen=True)
class Refusal:
    """Problem of an image that was refused, or of a deletion that stopped."""

    type: str
    title: str
    status: int
    detail: str


@dataclass(frozen=True)
class Written:
    """Outcome of one image: created, replaced, unchanged, or refused with its problem."""

    id: str
    status: str
    etag: str | None = None
    truncated_texts: int = 0
    problem: Refusal | None = None


@dataclass(frozen=True)
class Uploaded:
    """Outcomes of many images, in their order."""

    results: tuple[Written, ...]

    @property
    def refused(self) -> tuple[Written, ...]:
        """Images that were not taken."""
        return tuple(result for result in self.results if result.status == "refused")

    @property
    def written(self) -> int:
        """Number of images that are there as they were sent."""
        return len(self.results) - len(self.refused)


@dataclass(frozen=True)
class Judged:
    """A stored judgement."""

    collection: str
    hit: str
    relevant: bool | None = None


@dataclass(frozen=True)
class Judgements:
    """Numbers of judgements in a collection."""

    collection: str
    relevant: int
    not_relevant: int
    queries: int
    latest: str | None = None
