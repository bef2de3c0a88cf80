"""What goes over the wire: requests, pages of hits, and descriptions; --json prints the same."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, JsonValue, Strict, StringConstraints

from index.facets import Overview
from index.results import ActiveGeneration, CollectionInfo, Hit, ModelInfo, SearchPage, StoredImage

MAX_K = 1000

MetadataValue = str | int | float | bool | None | list[str | int | float | bool]

K = Annotated[int, Field(ge=1, le=MAX_K, description="How many hits to return.", examples=[10])]
FilterJson = Annotated[
    dict[str, JsonValue],
    Field(
        description="A condition on metadata or on the built-in fields id, split, group and labels.",
        examples=[{"field": "view", "eq": "PA"}, {"and": [{"field": "age", "gte": 40, "lt": 70}]}],
    ),
]
# A cursor holds the query's vector: this is enough for 6,000 dimensions.
MAX_CURSOR_LENGTH = 32_768

Cursor = Annotated[
    str,
    Field(
        max_length=MAX_CURSOR_LENGTH,
        description="`next_cursor` of the page before; the query must be the same.",
    ),
]


class Request(BaseModel):
    """Base of request bodies: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Answer(BaseModel):
    """Base of answers."""

    model_config = ConfigDict(frozen=True)


class TextQuery(Request):
    """A search by text."""

    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)] = Field(
        description="What the images should show.", examples=["two dogs run through shallow water"]
    )
    k: Annotated[K, Strict()] = 10
    filter: FilterJson | None = None
    cursor: Cursor | None = None


class SimilarQuery(Request):
    """Query parameters of a search by a stored image."""

    k: K = 10
    filter: str | None = Field(
        default=None, description="A filter as JSON.", examples=['{"field":"view","eq":"PA"}']
    )
    cursor: Cursor | None = None


IMAGE_QUERY_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["image"],
                    "additionalProperties": False,
                    "properties": {
                        "image": {
                            "type": "string",
                            "format": "binary",
                            "description": "A JPEG, PNG, WebP, GIF, BMP or TIFF file.",
                        },
                        "k": {"type": "integer", "minimum": 1, "maximum": MAX_K, "default": 10},
                        "filter": {"type": "string", "description": "A filter as JSON."},
                        "cursor": {"type": "string", "description": "`next_cursor` of the page before."},
                    },
                }
            }
        },
    }
}


class Truncation(Answer):
    """How a text longer than the encoder's limit was cut."""

    tokens: int = Field(description="Tokens of the whole text.")
    kept: int = Field(description="Tokens that were searched for.")
    searched_text: str = Field(description="The part of the text that was searched for.")


class HitLinks(Answer):
    """Where to find more about a hit; paths on this server."""

    image: str = Field(description="Metadata and texts; add `/content` for the file.")
    thumbnail: str
    similar: str


ScoreKind = Literal["cosine", "blade_cosine", "absolute_cosine"]


class SearchHit(Answer):
    """One found image."""

    id: str
    rank: int = Field(ge=1, description="Position over all pages, from 1.")
    score: float = Field(description="How alike query and image are, from -1 to 1; not a probability.")
    score_kind: ScoreKind = Field(
        default="cosine",
        description="Cosine of two vectors; blade_cosine: of the subspaces that two k-blades span; "
        "absolute_cosine: its absolute value, of vectors whose sign means nothing.",
    )
    texts: list[str]
    labels: list[str]
    metadata: dict[str, MetadataValue]
    links: HitLinks


class QueryEcho(Answer):
    """The query as it was understood."""

    k: int
    filter: dict[str, JsonValue] | None = None
    truncation: Truncation | None = None


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
    next_cursor: str | None = Field(default=None, description="Asks for the next page; null on the last.")
    query: QueryEcho
    served_by: ServedBy
    took_ms: TookMs


class ImageLinks(Answer):
    """Paths of an image on this server."""

    image: str
    thumbnail: str
    content: str
    similar: str


class ImageInfo(Answer):
    """One stored image."""

    id: str
    texts: list[str]
    report: str | None
    labels: list[str]
    metadata: dict[str, MetadataValue]
    split: str | None
    group: str | None
    width: int
    height: int
    media_type: str
    sha256: str
    links: ImageLinks


class GenerationInfo(Answer):
    """The active embedding of a collection."""

    number: int
    model: str
    digest: str


class FilterField(Answer):
    """A field that a filter may name."""

    name: str
    kinds: list[str] = Field(description="Kinds of values seen in it.")


class CollectionSummary(Answer):
    """One collection."""

    name: str
    count: int = Field(description="Images that it holds.")
    generation: GenerationInfo | None = Field(description="null while nothing can be searched.")
    fields: list[FilterField]


class FacetValue(Answer):
    """A value of a field."""

    value: str | bool | float
    count: int = Field(description="Images that have it.")


class FacetField(FilterField):
    """A field with what it holds."""

    values: list[FacetValue] = Field(description="The most frequent texts and booleans.")
    distinct: int = Field(description="How many different texts and booleans there are.")
    minimum: float | None = Field(description="The smallest number; null without numbers.")
    maximum: float | None


class ExampleImage(Answer):
    """An image to begin a search with."""

    id: str
    text: str = Field(description="The shortest of its texts; empty when it has none.")


class CollectionOverview(Answer):
    """One collection, with what a person can filter by and begin with."""

    name: str
    count: int = Field(description="Images that it holds.")
    generation: GenerationInfo | None = Field(description="null while nothing can be searched.")
    fields: list[FacetField] = Field(description="Fields, but for id and group, which tell images apart.")
    examples: list[ExampleImage]


class Collections(Answer):
    """All collections."""

    collections: list[CollectionSummary]


class ModelSummary(Answer):
    """One registered bundle."""

    name: str
    digest: str
    dim: int = Field(description="Length of its vectors.")
    metrics: dict[str, float] = Field(description="Measured when it was trained.")
    created: str
    loaded: bool = Field(description="Whether its encoder answers queries now.")
    collections: list[str] = Field(description="Collections whose active generation it made.")


class Models(Answer):
    """All registered bundles."""

    models: list[ModelSummary]


class Live(Answer):
    """The process answers."""

    status: Literal["alive"] = "alive"


class Ready(Answer):
    """Searches are answered."""

    status: Literal["ready"] = "ready"
    checks: dict[str, str]


def image_path(collection: str, image_id: str, *, prefix: str = "") -> str:
    """Path of an image below /v1, percent-encoded; `prefix` is where a proxy has put the service."""
    return f"{prefix}/v1/collections/{quote(collection, safe='')}/images/{quote(image_id, safe='')}"


def page_from(
    page: SearchPage,
    active: ActiveGeneration,
    *,
    k: int,
    filter: Mapping[str, Any] | None,
    took_ms: TookMs,
    truncation: Truncation | None = None,
    prefix: str = "",
) -> SearchResponse:
    """Make the answer to a search from what the engine found."""
    return SearchResponse(
        hits=[_hit_from(hit, active, prefix) for hit in page.hits],
        next_cursor=page.next_cursor,
        query=QueryEcho(k=k, filter=dict(filter) if filter is not None else None, truncation=truncation),
        served_by=ServedBy(
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
        labels=list(image.labels),
        metadata=_plain(image.metadata),
        split=image.split,
        group=image.group,
        width=image.width,
        height=image.height,
        media_type=image.media_type,
        sha256=image.sha256,
        links=ImageLinks(
            image=path, thumbnail=f"{path}/thumbnail", content=f"{path}/content", similar=f"{path}/similar"
        ),
    )


def collection_from(info: CollectionInfo) -> CollectionSummary:
    """Describe a collection."""
    generation = None
    if info.generation is not None and info.model is not None and info.digest is not None:
        generation = GenerationInfo(number=info.generation, model=info.model, digest=info.digest)
    fields = [FilterField(name=field.name, kinds=list(field.kinds)) for field in info.fields]
    return CollectionSummary(name=info.name, count=info.count, generation=generation, fields=fields)


def overview_from(info: CollectionInfo, overview: Overview) -> CollectionOverview:
    """Describe a collection with its fields' values and a few of its images."""
    summary = collection_from(info)
    return CollectionOverview(
        name=summary.name,
        count=summary.count,
        generation=summary.generation,
        fields=[
            FacetField(
                name=facet.name,
                kinds=list(facet.kinds),
                values=[FacetValue(value=item.value, count=item.count) for item in facet.values],
                distinct=facet.distinct,
                minimum=facet.minimum,
                maximum=facet.maximum,
            )
            for facet in overview.facets
        ],
        examples=[ExampleImage(id=example.id, text=example.text) for example in overview.examples],
    )


def model_from(info: ModelInfo, *, loaded: bool) -> ModelSummary:
    """Describe a registered bundle; `loaded` says whether this process answers queries with it."""
    return ModelSummary(
        name=info.name,
        digest=info.digest,
        dim=info.dim,
        metrics=dict(info.metrics),
        created=info.created,
        loaded=loaded,
        collections=list(info.collections),
    )


def _score_kind(active: ActiveGeneration) -> ScoreKind:
    if active.unsigned:
        return "absolute_cosine"
    return "cosine" if active.blades == 1 else "blade_cosine"


def _hit_from(hit: Hit, active: ActiveGeneration, prefix: str) -> SearchHit:
    path = image_path(active.collection, hit.id, prefix=prefix)
    return SearchHit(
        id=hit.id,
        rank=hit.rank,
        score=hit.score,
        score_kind=_score_kind(active),
        texts=list(hit.texts),
        labels=list(hit.labels),
        metadata=_plain(hit.metadata),
        links=HitLinks(image=path, thumbnail=f"{path}/thumbnail", similar=f"{path}/similar"),
    )


def _plain(metadata: Mapping[str, Any]) -> dict[str, MetadataValue]:
    return {key: list(v) if isinstance(v, tuple) else v for key, v in metadata.items()}
