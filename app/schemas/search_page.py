"""Schemas of pages of hits and of images; --json prints the same."""

import math
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from typing_extensions import TypedDict

from app.schemas.findings import StatedByImage, stated_from
from index.search.results import ActiveGeneration, Hit, ModelInfo, SearchPage, StoredImage
from training.reports import State

if TYPE_CHECKING:
    from training.models.inputs.texts import Truncation as Cut

MetadataValue = str | int | float | bool | None | list[str | int | float | bool]


class Answer(BaseModel):
    """Base of answers."""

    model_config = ConfigDict(frozen=True)


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


class HitLinks(TypedDict):
    """Paths of a hit's resources on this server."""

    image: Annotated[
        str, Field(description="Metadata and texts; with `/rendition` a picture, with `/content` the file.")
    ]
    thumbnail: str


CosineKind = Literal["cosine", "blade_cosine", "absolute_cosine"]


class SearchHitText(TypedDict):
    """A found text."""

    position: Annotated[int, Field(ge=0, description="Position among the image's texts, from 0.")]
    text: str


class SearchHitMatch(TypedDict):
    """A text, or a sentence of the report, with words that were asked for."""

    text: str
    spans: Annotated[
        list[tuple[int, int]],
        Field(description="Start and end of each word, in characters (Unicode code points) of the text."),
    ]


# Dictionaries: of hundreds of hits, checking what is of our own making would cost more than finding them.
class SearchHit(TypedDict):
    """One found image; or one found text, with the image that it belongs to."""

    id: Annotated[str, Field(description="The image's id. Several found texts may belong to one image.")]
    rank: Annotated[int, Field(ge=1, description="Position over all pages, from 1.")]
    score: Annotated[
        float | None,
        Field(description="Value that orders the hits; not a probability. null without a query."),
    ]
    score_kind: Annotated[
        CosineKind | Literal["fused"] | None,
        Field(
            description="The kind of cosine; or fused: the sum over the lists, by likeness, by words and by "
            "findings, of 1 / (60 + rank) for each that has the hit among its first 1,000. null without a "
            "query."
        ),
    ]
    cosine: Annotated[
        float | None,
        Field(
            description="Similarity of query and hit, from -1 to 1; not a probability. null without a query."
        ),
    ]
    cosine_kind: Annotated[
        CosineKind | None,
        Field(
            description="Cosine of two vectors; blade_cosine: of the subspaces that two k-blades span; "
            "absolute_cosine: its absolute value, of vectors whose sign means nothing. null in a list of a "
            "collection without an active generation."
        ),
    ]
    z_score: Annotated[
        float | None,
        Field(
            description="By how many standard deviations the cosine lies above the mean of the query's "
            "cosines with a sample of the collection: near 0 is as alike as anything else. Not a probability."
        ),
    ]
    found_by: Annotated[
        list[Literal["vector", "keywords", "findings"]],
        Field(
            description="The lists that the hit comes from: of likeness, of keywords, of what says of "
            "findings what the query says; none where none was asked for."
        ),
    ]
    text: Annotated[
        SearchHitText | None, Field(description="The found text; null where images are searched.")
    ]
    matched: Annotated[
        SearchHitMatch | None,
        Field(description="The text with most of the words that were asked for; null without any of them."),
    ]
    group: Annotated[str | None, Field(description="The image's group, such as a patient or a study.")]
    group_size: Annotated[
        int | None,
        Field(
            description="With groups, how many of the hit's there are with it, counting what passes the "
            "filter and is not left out, whatever its similarity. null otherwise."
        ),
    ]
    texts: Annotated[list[str], Field(description="All texts of the image.")]
    findings: StatedByImage
    labels: list[str]
    metadata: dict[str, MetadataValue]
    links: HitLinks


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
        description="Whether the collection has what was asked for: the query is like the collection's own "
        "texts (a text) or images (an image), or its best hit is as near as theirs. Not certain either way. "
        "null where it cannot be told, as for several examples at once or a text with words unknown to the "
        "encoder."
    )
    count: int | None = Field(
        default=None,
        description="Without a query, the number of hits on all pages; null with one, and where over 10,000 "
        "images have the words.",
    )
    next_cursor: str | None = Field(default=None, description="Asks for the next page; null on the last.")
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


class ListedImage(TypedDict):
    """One image of a list."""

    id: str
    group: Annotated[str | None, Field(description="The image's group, such as a patient or a study.")]
    texts: list[str]
    findings: StatedByImage
    labels: list[str]
    metadata: dict[str, MetadataValue]
    links: HitLinks


class ImageList(Answer):
    """A page of images, in the order in which they were added."""

    images: list[ListedImage]
    count: int = Field(description="Images that pass the filter.")
    next_cursor: str | None = Field(description="Asks for the next page; null on the last.")


class Live(Answer):
    """The process answers."""

    status: Literal["alive"] = "alive"


class Ready(Answer):
    """Searches are answered; `degraded`: not those of collections whose encoder cannot be loaded."""

    status: Literal["ready", "degraded"] = "ready"
    checks: dict[str, str]


def image_path(collection: str, image_id: str, *, prefix: str = "") -> str:
    """Path of an image below /v1, percent-encoded; `prefix` is where a proxy has put the service."""
    return f"{_images_path(collection, prefix)}/{quote(image_id, safe='')}"


def _images_path(collection: str, prefix: str) -> str:
    return f"{prefix}/v1/collections/{quote(collection, safe='')}/images"


def page_from(
    page: SearchPage,
    served_by: ActiveGeneration | str,
    *,
    limit: int,
    filter: Mapping[str, Any] | None,
    took_ms: TookMs,
    truncations: Sequence[Truncation] = (),
    prefix: str = "",
) -> SearchResponse:
    """Make the answer to a search from what the engine found.

    Args:
        page: Hits.
        served_by: Generation that was searched; the name of a collection that was listed without one.
        limit: Number of hits that were asked for.
        filter: Filter of the search.
        took_ms: Times of the request.
        truncations: Texts that were cut.
        prefix: Where a proxy has put the service.
    """
    active = None if isinstance(served_by, str) else served_by
    kind = None if active is None else cosine_kind(active)
    images = _images_path(served_by if isinstance(served_by, str) else served_by.collection, prefix)
    return SearchResponse.model_construct(
        hits=[
            _hit_from(hit, z_score, kind, images, fused=page.fused)
            for hit, z_score in zip(page.hits, page.z_scores or repeat(None), strict=False)
        ],
        confident=page.confident,
        count=page.count,
        next_cursor=page.next_cursor,
        query=QueryEcho(
            limit=limit, filter=dict(filter) if filter is not None else None, truncations=list(truncations)
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
        findings=[ImageFinding(**finding._asdict()) for finding in image.findings],
        labels=list(image.labels),
        metadata=_plain(image.metadata),
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


def image_list_from(page: SearchPage, collection: str, *, prefix: str = "") -> ImageList:
    """Describe a page of images without a query."""
    images = _images_path(collection, prefix)
    # Without words, every key is counted.
    assert page.count is not None
    return ImageList.model_construct(
        images=[_listed_from(hit, images) for hit in page.hits],
        count=page.count,
        next_cursor=page.next_cursor,
    )


def _listed_from(hit: Hit, images: str) -> ListedImage:
    image, path = hit.image, f"{images}/{quote(hit.id, safe='')}"
    return {
        "id": image.id,
        "group": image.group,
        "texts": list(image.texts),
        "findings": stated_from(image.findings),
        "labels": list(image.labels),
        "metadata": _plain(image.metadata),
        "links": {"image": path, "thumbnail": f"{path}/thumbnail"},
    }


def cosine_kind(by: ActiveGeneration | ModelInfo) -> CosineKind:
    """Kind of cosine that compares the vectors of an encoder."""
    if by.unsigned:
        return "absolute_cosine"
    return "cosine" if by.blades == 1 else "blade_cosine"


def _hit_from(
    hit: Hit, z_score: float | None, kind: CosineKind | None, images: str, *, fused: bool
) -> SearchHit:
    image, path = hit.image, f"{images}/{quote(hit.id, safe='')}"
    is_scored = not math.isnan(hit.score)
    return {
        "id": image.id,
        "rank": hit.rank,
        "score": hit.score if is_scored else None,
        "score_kind": ("fused" if fused else kind) if is_scored else None,
        "cosine": hit.cosine if is_scored else None,
        "cosine_kind": kind,
        "z_score": z_score,
        "found_by": list(hit.found_by),
        "text": None if image.text is None else {"position": image.text.position, "text": image.text.text},
        "matched": None if hit.matched is None else {"text": hit.matched.text, "spans": [*hit.matched.spans]},
        "group": image.group,
        "group_size": None if hit.others is None else hit.others + 1,
        "texts": list(image.texts),
        "findings": stated_from(image.findings),
        "labels": list(image.labels),
        "metadata": _plain(image.metadata),
        "links": {"image": path, "thumbnail": f"{path}/thumbnail"},
    }


def _plain(metadata: Mapping[str, Any]) -> dict[str, MetadataValue]:
    return {key: list(v) if isinstance(v, tuple) else v for key, v in metadata.items()}
