"""Schemas of pages of hits and of images; --json prints the same."""

from collections.abc import Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Annotated

from pydantic import MISSING, Field, JsonValue

from app.edge.schemas import Answer, image_path, images_path
from app.generations.schemas import cosine_kind
from app.search.schemas.hits import (
    DEFAULT_PARTS,
    ListedImage,
    MetadataValue,
    SearchHit,
    hit_from,
    listed_from,
    plain,
)
from index.search.results import ActiveGeneration, HitDetails, HitPart, SearchPage, StoredImage
from training.clinical.findings import State

if TYPE_CHECKING:
    from app.search.schemas.query import SearchQuery
    from training.models.inputs.texts import Truncation as Cut


class Truncation(Answer):
    """Truncation of a text longer than the encoder's limit."""

    field: str = Field(description="Path of the text in the query.", examples=["text"])
    tokens: int = Field(description="Tokens of the whole text.")
    kept: int = Field(description="Tokens that were searched for.")
    searched_text: str = Field(description="The part of the text that was searched for.")

    @classmethod
    def of(cls, field: str, cut: "Cut") -> "Truncation":
        """Say how the text of a query's field was cut."""
        return cls(field=field, tokens=cut.tokens, kept=cut.kept, searched_text=cut.searched_text)


class QueryEcho(Answer):
    """The query as it was understood."""

    limit: int
    filter: dict[str, JsonValue] | None = None
    truncations: list[Truncation] = Field(description="The texts that were too long for the encoder.")


class ServedBy(Answer):
    """The generation that gave the answer."""

    collection: str
    generation: int
    model: str
    digest: str = Field(description="Digest of the encoder that made query and image vectors.")
    exact: bool = Field(description="Whether every candidate was compared.")


class TookMs(Answer):
    """Milliseconds spent on this request, by part."""

    encode: float = Field(
        description="From the query to its vector: decoding, waiting in the queue, the encoder."
    )
    search: float = Field(description="From the vector to the hits.")
    total: float = Field(description="From the arrival of the request to its answer.")


class SearchResponse(Answer):
    """A page of hits."""

    hits: list[SearchHit]
    confident: bool | None = Field(
        description="Whether the best score is one at which held-out queries of this collection find what "
        "they ask for among their first ten hits, significantly more often than by chance (95 %). false: no "
        "evidence of that. null: not measured, as for searches by images, by several parts or among texts, "
        "and where the collection has too few held-out images with texts."
    )
    count: int | None = Field(
        default=None,
        description="Without a query, the number of hits on all pages; null with one, and where over 10,000 "
        "images have the words.",
    )
    unknown_keywords: list[str] = Field(
        default_factory=list,
        description="Words of `keywords`, as typed, that no text or report of the collection has, in "
        "any form: they find nothing.",
    )
    has_more: bool = Field(description="Whether there are hits behind this page.")
    next_cursor: str | MISSING | None = Field(
        default=MISSING,
        description="Asks for the next page; null on the last. Only in answers to requests with `cursor`.",
    )
    query: QueryEcho
    served_by: ServedBy | None = Field(
        description="null for a list of a collection without an active generation."
    )
    took_ms: TookMs


class ImageLinks(Answer):
    """Paths of an image on this server."""

    image: str
    thumbnail: str
    rendition: str
    content: str


class ImageFinding(Answer):
    """A mention of a finding in a text of an image or in its report."""

    finding: str
    state: State
    position: Annotated[
        int | None, Field(description="Position of the text, from 0; null where it is in the report.")
    ]
    start: Annotated[int, Field(description="Offset of the mention in the text, in Unicode code points.")]
    end: Annotated[int, Field(description="Offset behind the mention.")]
    prior: Annotated[
        bool,
        Field(description="Whether its sentence compares with an earlier examination, or tells of one."),
    ]


class ImageInfo(Answer):
    """One stored image."""

    id: str
    texts: list[str]
    report: str | None
    findings: Annotated[
        list[ImageFinding], Field(description="What report and texts say of findings, by stated rules.")
    ]
    labels: list[str]
    metadata: dict[str, MetadataValue]
    split: str | None
    group: str | None
    width: int
    height: int
    media_type: str
    sha256: str
    links: ImageLinks


class Count(Answer):
    """How many images, texts or groups there are."""

    count: Annotated[int, Field(ge=0)]


class ImageList(Answer):
    """A page of images, in the order in which they were added."""

    images: list[ListedImage]
    count: int = Field(description="Images that pass the filter.")
    next_cursor: str | None = Field(description="Asks for the next page; null on the last.")


def page_from(
    page: SearchPage,
    served_by: ActiveGeneration | str,
    query: "SearchQuery",
    *,
    took_ms: TookMs,
    truncations: Sequence[Truncation] = (),
    prefix: str = "",
    details: Sequence[HitDetails] = (),
) -> SearchResponse:
    """Make the answer to a search from what the engine found.

    Args:
        page: Hits.
        served_by: Generation that was searched; the name of a collection that was listed without one.
        query: The search.
        took_ms: Times of the request.
        truncations: Texts that were cut.
        prefix: Where a proxy has put the service.
        details: What is told and not held with the hits; empty where nothing is.
    """
    active = None if isinstance(served_by, str) else served_by
    kind = None if active is None else cosine_kind(active)
    images = images_path(served_by if isinstance(served_by, str) else served_by.collection, prefix)
    return SearchResponse.model_construct(
        hits=[
            hit_from(hit, z_score, kind, images, fused=page.fused, parts=query.parts, details=known)
            for hit, z_score, known in zip(
                page.hits, page.z_scores or repeat(None), details or repeat(None), strict=False
            )
        ],
        confident=page.confident,
        count=page.count,
        unknown_keywords=list(page.unknown_words),
        has_more=page.has_more,
        next_cursor=page.next_cursor if query.asks_for_cursor else MISSING,
        query=QueryEcho(
            limit=query.limit,
            filter=None if query.filter is None else dict(query.filter),
            truncations=list(truncations),
        ),
        served_by=None
        if active is None
        else ServedBy(
            collection=active.collection,
            generation=active.generation,
            model=active.model,
            digest=active.digest,
            exact=page.exact,
        ),
        took_ms=took_ms,
    )


def image_info_from(image: StoredImage, collection: str, *, prefix: str = "") -> ImageInfo:
    """Describe a stored image."""
    path = image_path(collection, image.id, prefix=prefix)
    return ImageInfo(
        id=image.id,
        texts=list(image.texts),
        report=image.report,
        findings=[
            ImageFinding(**found._asdict(), prior=prior)
            for found, prior in zip(image.findings, image.priors(), strict=True)
        ],
        labels=list(image.labels),
        metadata=plain(image.metadata),
        split=image.split,
        group=image.group,
        width=image.width,
        height=image.height,
        media_type=image.media_type,
        sha256=image.sha256,
        links=ImageLinks(
            image=path,
            thumbnail=f"{path}/thumbnail",
            rendition=f"{path}/rendition",
            content=f"{path}/content",
        ),
    )


def image_list_from(
    page: SearchPage,
    collection: str,
    *,
    prefix: str = "",
    parts: Sequence[HitPart] = DEFAULT_PARTS,
    details: Sequence[HitDetails] = (),
) -> ImageList:
    """Describe a page of images without a query."""
    images = images_path(collection, prefix)
    # Without words, every key is counted.
    assert page.count is not None
    return ImageList.model_construct(
        images=[
            listed_from(hit.image, images, parts, known)
            for hit, known in zip(page.hits, details or repeat(None), strict=False)
        ],
        count=page.count,
        next_cursor=page.next_cursor,
    )
