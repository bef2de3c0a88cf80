"""Schemas of searches and of their hits; the command line builds and prints the same."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, get_args
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    MISSING,
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    JsonValue,
    TypeAdapter,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from typing_extensions import TypedDict

from app.edge.problems import Problem
from app.edge.schemas import Answer, Request, Text
from app.generations.schemas import GenerationName
from index.catalogue.images import StoredImage
from index.errors import QueryError
from index.filters.grammar import (
    MAX_CONDITIONS,
    MAX_DEPTH,
    MAX_FIELD_NAME_LENGTH,
    MAX_VALUES,
    FieldName,
    Filter,
)
from index.search.request import Sort
from index.search.results import ActiveGeneration, CosineKind, HitDetails, HitImage, HitPart, SearchPage
from training.clinical.findings import State
from training.models.image_input import RegionGrid

LIMITS = (
    f"Up to {MAX_CONDITIONS} conditions with {MAX_VALUES:,} values, {MAX_DEPTH // 2} levels deep. Other "
    "forms of a finding's name, such as effusion, are also accepted."
)


class _Described:
    """Describes a field by the schema of filters, and leaves it to `parse_filter` to judge what is in it."""

    def __get_pydantic_json_schema__(self, _: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        core: Any = TypeAdapter[Any](Filter).core_schema
        return handler(core)


FilterForm = Annotated[dict[str, JsonValue], _Described()]


# Share of a side; a thinner box is a line, which no region shows.
MIN_BOX_SIDE: Final = 0.01
# Rounding error of a sum of decimal fractions.
_ROUNDING: Final = 1e-6

_Share = Annotated[float, Field(ge=0, le=1)]
_Length = Annotated[float, Field(ge=MIN_BOX_SIDE, le=1)]


class QueryBox(Request):
    """A part of the upright picture, in fractions of its width and height."""

    x: _Share = Field(description="Left edge.", examples=[0.1])
    y: _Share = Field(description="Upper edge.", examples=[0.2])
    width: _Length = Field(description="Width.", examples=[0.3])
    height: _Length = Field(description="Height.", examples=[0.4])

    @model_validator(mode="after")
    def _lies_within(self) -> Self:
        if self.x + self.width > 1 + _ROUNDING or self.y + self.height > 1 + _ROUNDING:
            raise ValueError("The box reaches beyond the picture: x + width and y + height are at most 1.")
        return self


class StatedFindings(TypedDict):
    """Names of the findings that texts and report of an image mention, by what they say of them."""

    present: list[str]
    uncertain: list[str]
    absent: list[str]


StatedByImage = Annotated[
    StatedFindings,
    Field(description="What texts and report say of findings, each in one state over all mentions."),
]


def stated_from(findings: Mapping[State, Sequence[str]]) -> StatedFindings:
    """Describe the findings of an image."""
    return {
        "present": [*findings["present"]],
        "uncertain": [*findings["uncertain"]],
        "absent": [*findings["absent"]],
    }


MetadataValue = str | int | float | bool | None | list[str | int | float | bool]

HIT_PARTS: Final[tuple[HitPart, ...]] = get_args(HitPart)
DEFAULT_PARTS: Final[tuple[HitPart, ...]] = ("texts", "findings", "labels", "metadata")


class HitLinks(TypedDict):
    """Paths of a hit's resources on this server."""

    image: Annotated[
        str, Field(description="Metadata and texts; with `/rendition` a picture, with `/content` the file.")
    ]
    thumbnail: str


class SearchHitText(TypedDict):
    """A text hit."""

    position: Annotated[int, Field(ge=0, description="Position among the image's texts, from 0.")]
    text: str


class SearchHitMatch(TypedDict):
    """A text, or a sentence of the report, with words of the query."""

    text: str
    spans: Annotated[
        list[tuple[int, int]],
        Field(description="Start and end of each word, in characters (Unicode code points) of the text."),
    ]


class HitParts(TypedDict, total=False):
    """Parts of an image's record that a hit holds where the request names them."""

    texts: Annotated[list[str], Field(description="All texts of the image.")]
    findings: StatedByImage
    labels: list[str]
    metadata: dict[str, MetadataValue]
    report: Annotated[str | None, Field(description="The image's whole report.")]
    vector: Annotated[
        list[float] | None,
        Field(description="The vector that was compared, of length one; null where it went meanwhile."),
    ]


class _Shown(HitParts):
    links: HitLinks


# Dictionaries: of hundreds of hits, checking what is of our own making would cost more than finding them.
class _Found(TypedDict):
    id: Annotated[str, Field(description="The image's id. Several text hits may belong to one image.")]
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
            description="By how many standard deviations the cosine is above the mean of the query's "
            "cosines with a sample of the collection: near 0 is as alike as anything else. Not a probability."
        ),
    ]
    found_by: Annotated[
        list[Literal["vector", "keywords", "findings"]],
        Field(
            description="The lists that have the hit: of likeness, of keywords, of texts that state the "
            "same findings as the query; empty without a query."
        ),
    ]
    text: Annotated[SearchHitText | None, Field(description="The text hit; null if images are searched.")]
    matched: Annotated[
        SearchHitMatch | None,
        Field(description="The text with most of the query's words; null if none has any."),
    ]
    group: Annotated[str | None, Field(description="The image's group, such as a patient or a study.")]
    group_size: Annotated[
        int | None,
        Field(
            description="With groups, how many of the hit's there are with it, counting what passes the "
            "filter and is not left out, at any similarity. null otherwise."
        ),
    ]


class SearchHit(_Found, _Shown):
    """An image hit; or a text hit, with the image that it belongs to."""


class _Listed(TypedDict):
    id: str
    group: Annotated[str | None, Field(description="The image's group, such as a patient or a study.")]


class ListedImage(_Listed, _Shown):
    """One image of a list."""


def hits_from(
    page: SearchPage,
    kind: CosineKind | None,
    images: str,
    parts: Sequence[HitPart],
    details: Sequence[HitDetails],
) -> list[SearchHit]:
    """Describe the hits of a page; `images` is the path of the collection's images."""
    score_kind: CosineKind | Literal["fused"] | None = "fused" if page.fused else kind
    hits: list[SearchHit] = []
    for hit, detail, z_score in zip(page.hits, details, page.z_scores or repeat(None), strict=False):
        image, is_scored = hit.image, not math.isnan(hit.score)
        text, matched = image.text, hit.matched
        hits.append(
            {
                "id": image.id,
                "rank": hit.rank,
                "score": hit.score if is_scored else None,
                "score_kind": score_kind if is_scored else None,
                "cosine": hit.cosine if is_scored else None,
                "cosine_kind": kind,
                "z_score": z_score,
                "found_by": list(hit.found_by),
                "text": None if text is None else {"position": text.position, "text": text.text},
                "matched": None if matched is None else {"text": matched.text, "spans": [*matched.spans]},
                "group": image.group,
                "group_size": None if hit.others is None else hit.others + 1,
                **_shown(image, images, parts, detail),
            }
        )
    return hits


def listed_from(
    image: HitImage,
    images: str,
    parts: Sequence[HitPart] = DEFAULT_PARTS,
    details: HitDetails | None = None,
) -> ListedImage:
    """Describe an image of a list; `images` is the path of the collection's images."""
    return {"id": image.id, "group": image.group, **_shown(image, images, parts, details or HitDetails())}


def _shown(image: HitImage, images: str, parts: Sequence[HitPart], details: HitDetails) -> _Shown:
    path = f"{images}/{quote(image.id, safe='')}"
    shown: _Shown = {"links": {"image": path, "thumbnail": f"{path}/thumbnail"}}
    report, vector = details
    if "texts" in parts:
        shown["texts"] = list(image.texts)
    if "labels" in parts:
        shown["labels"] = list(image.labels)
    if "metadata" in parts:
        shown["metadata"] = metadata = {}
        for name, value in image.metadata.items():
            # JSON has lists for tuples.
            metadata[name] = list(value) if isinstance(value, tuple) else value
    if "report" in parts:
        shown["report"] = report
    if "findings" in parts:
        shown["findings"] = stated_from(image.findings)
    if "vector" in parts:
        shown["vector"] = None if vector is None else vector.tolist()
    return shown


SORT = "added: in the order in which they were added; newest: in the reverse order."
MAX_LIMIT = 1000
MAX_EXAMPLES = 16
MAX_CONTAINING = 200
# Searches of a batch: a full queue of an encoder.
MAX_SEARCHES = 64
# More numbers than the vectors of any encoder have.
MAX_VECTOR_LENGTH = 16_384
# A cursor holds the query's vector and up to 10,000 keys: this is enough for 6,000 dimensions.
MAX_CURSOR_LENGTH = 98_304


def _switch_or(what: str, max_length: int) -> BeforeValidator:
    """Refuse in one sentence what a union of a switch and a text would refuse once for each of its kinds."""

    def check(value: Any) -> Any:
        if isinstance(value, bool) or (isinstance(value, str) and len(value) <= max_length):
            return value
        raise ValueError(f"It must be true, false or {what}.")

    return BeforeValidator(check)


class Example(Request):
    """Something to find more of, or less of: exactly one of an image's id, a text and a vector."""

    id: str | None = Field(default=None, description="An image of the collection.")
    text: Text | None = Field(default=None, description="A text.")
    vector: Annotated[list[float], Field(fail_fast=True, max_length=MAX_VECTOR_LENGTH)] | None = Field(
        default=None, description="A vector by the collection's own encoder; its length does not matter."
    )
    box: QueryBox | None = Field(
        default=None, description="With an id: the part of that image to search by, instead of the whole."
    )

    @model_validator(mode="after")
    def _is_one(self) -> "Example":
        if sum(value is not None for value in (self.id, self.text, self.vector)) != 1:
            raise ValueError("Give exactly one of id, text and vector.")
        if self.box is not None and self.id is None:
            raise ValueError("A box is a part of a stored image: give the image's id with it.")
        return self


def ids_of(examples: Iterable[Example]) -> tuple[str, ...]:
    """Return the ids of the examples that are images of the collection."""
    return tuple(example.id for example in examples if example.id is not None)


Boxes = Annotated[list[QueryBox | None], Field(fail_fast=True, max_length=MAX_EXAMPLES)]
Examples = Annotated[list[Example], Field(fail_fast=True, max_length=MAX_EXAMPLES)]


class SearchQuery(Request):
    """A search: what to find, among what, and in which order.

    A text, liked and disliked examples, and the images of a form make up one query together. Without any of
    them the hits are the images that pass the filter and have the keywords, or all, without scores: in the
    order of sort, without it as they were added, with keywords by these.
    """

    text: Text | None = Field(
        default=None,
        description="Description of the images to find.",
        examples=["two dogs run through shallow water"],
    )
    like: Examples = Field(
        default=[], description="Examples to search for.", examples=[[{"id": "scene00012"}]]
    )
    unlike: Examples = Field(default=[], description="Examples of what to avoid.", examples=[[]])
    keywords: Text | None = Field(
        default=None,
        description="Words whose matches in texts and reports are fused with the ranking by likeness, by "
        "reciprocal rank; without a query, their matches are the hits. Any of the words matches, up to 64; "
        "more and rarer words rank higher, plurals and compounds behind the words themselves.",
    )
    keywords_state: State | None = Field(
        default=None,
        description="Take matches of `keywords` only where the texts say this of the findings that the words "
        "name: present, absent or uncertain.",
        examples=[None],
    )
    target: Literal["images", "texts"] = Field(
        default="images",
        description="Kind of hits: images, or the texts of images (captions, sentences of reports).",
    )
    filter: FilterForm | None = Field(
        default=None,
        description="A condition on metadata or on a built-in field such as split, group or labels; for "
        f"texts, those of their image. {LIMITS}",
        examples=[{"field": "view", "eq": "PA"}],
    )
    group_by: FieldName | None = Field(
        default=None,
        description="One hit for each group (patient, study): its best. A group is what has the same value "
        "in this field: group, or any that filters can name. An image without one is a group of its own; of "
        "a list the first value counts.",
        examples=["group"],
    )
    exclude_same_group: (
        Annotated[bool | FieldName, _switch_or("the name of a field", MAX_FIELD_NAME_LENGTH)] | None
    ) = Field(
        default=None,
        description="Leave out all images of the groups that the stored examples belong to: true for those "
        "of the field group, or the name of another field. Without it, images of the patients of `like` are "
        "left out where images have the fields study and patient; false keeps them, such as for priors.",
        examples=[False],
    )
    min_score: Annotated[float, Field(ge=-1, le=1)] | None = Field(
        default=None,
        description="Leave out hits whose cosine is lower, on every page, in all lists.",
    )
    diversity: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None,
        description="Choose hits that differ from each other, by maximal marginal relevance: 0 changes "
        "nothing, 1 looks at nothing else. Scores then do not fall from hit to hit.",
    )
    sort: Sort | None = Field(
        default=None, description=f"Order of a list, so without a query. {SORT}", examples=[None]
    )
    image_boxes: Boxes = Field(
        default=[],
        description="For each file in `image`, in order: the part to search by; null for all of it.",
        examples=[[]],
    )
    unlike_image_boxes: Boxes = Field(
        default=[],
        description="For each file in `unlike_image`, in order: the part to avoid; null for all of it.",
        examples=[[]],
    )
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = Field(
        default=10, description="Number of hits to return.", examples=[10]
    )
    cursor: (
        Annotated[bool | str, _switch_or("`next_cursor` of the page before", MAX_CURSOR_LENGTH)] | None
    ) = Field(
        default=None,
        description="true: the answer has `next_cursor`, which takes some kilobytes. For the next page, send "
        "the `next_cursor` of the page before; everything but limit and with must be the same.",
    )
    parts: Annotated[list[HitPart], Field(fail_fast=True, max_length=len(HIT_PARTS))] = Field(
        default=[*DEFAULT_PARTS],
        alias="with",
        description="Parts of each hit's image to return: texts, findings, labels, metadata, report, and "
        "vector, which for a text hit is the text's.",
    )

    @property
    def stored(self) -> tuple[str, ...]:
        """The images of the collection that are examples, by id."""
        return ids_of((*self.like, *self.unlike))

    @property
    def boxes(self) -> dict[str, QueryBox]:
        """Parts of pictures to search by, by the position of their pictures in the query."""
        pictures = {
            "image": self.image_boxes,
            "unlike_image": self.unlike_image_boxes,
            "like": [example.box for example in self.like],
            "unlike": [example.box for example in self.unlike],
        }
        return {
            f"{name}.{index}": box
            for name, boxes in pictures.items()
            for index, box in enumerate(boxes)
            if box is not None
        }

    def check(self, *, images: int = 0, unlike_images: int = 0) -> None:
        """Refuse what isn't a valid search in any collection, with so many image files.

        Raises:
            QueryError: The query has too many examples, or lacks a part that another needs.
        """
        examples = len(self.like) + len(self.unlike) + images + unlike_images
        if examples > MAX_EXAMPLES:
            raise QueryError(f"{examples} examples are too many: send at most {MAX_EXAMPLES}.", field="like")
        for files, boxes, count in (
            ("image", self.image_boxes, images),
            ("unlike_image", self.unlike_image_boxes, unlike_images),
        ):
            if len(boxes) > count:
                raise QueryError(
                    f"{len(boxes)} boxes come with {count} files in `{files}`: send the file of each. "
                    "The box of a stored image belongs next to its id.",
                    field=f"{files}_boxes",
                )
        if self.exclude_same_group not in (None, False) and not self.stored:
            raise QueryError(
                "exclude_same_group goes with an example that the collection holds: give the id of one.",
                field="exclude_same_group",
            )


class BatchQuery(Request):
    """Searches that are answered together."""

    searches: Annotated[list[SearchQuery], Field(fail_fast=True, min_length=1, max_length=MAX_SEARCHES)] = (
        Field(
            description="Searches, each as it would be sent alone.",
            examples=[[{"text": "a dog"}, {"text": "a boat", "limit": 3}]],
        )
    )


_Passing = Annotated[
    FilterForm | None,
    Field(description="A filter, as in a search.", examples=[{"field": "view", "eq": "PA"}]),
]
_Containing = Annotated[
    str,
    Field(
        max_length=MAX_CONTAINING,
        description="Only values that contain this text, case-insensitively; requires field.",
    ),
]


class CountQuery(Request):
    """A count: of all in a collection, or of all that pass a filter and have keywords."""

    filter: _Passing = None
    keywords: Text | None = Field(
        default=None,
        description="Count what has any of these words, with their plurals and compounds, as a search finds "
        "them; however common they are.",
        examples=[None],
    )
    keywords_state: State | None = Field(default=None, description="As in a search.", examples=[None])
    target: Literal["images", "texts"] = Field(default="images", description="Count images, or their texts.")
    group_by: FieldName | None = Field(
        default=None, description="Count groups, such as patients, as in a search.", examples=[None]
    )


class FacetQuery(Request):
    """Values to count: of all fields or of one, among the images that pass a filter."""

    filter: _Passing = None
    field: FieldName | None = Field(
        default=None, description="Only this field, which may be id or group.", examples=[None]
    )
    containing: _Containing = ""
    keywords: Text | None = Field(
        default=None, description="Only images that have any of these words, as in a count.", examples=[None]
    )
    keywords_state: State | None = Field(default=None, description="As in a search.", examples=[None])


class Filtered(BaseModel):
    """Parameters of an address that may have a filter."""

    # A parameter that is unknown may be a slip, and the answer one to another question.
    model_config = ConfigDict(extra="forbid", frozen=True)

    filter: str | None = Field(
        default=None, description="A filter as JSON.", examples=['{"field": "view", "eq": "PA"}']
    )


class ImagesQuery(Filtered):
    """Images to list."""

    cursor: str | None = Field(
        default=None,
        max_length=MAX_CURSOR_LENGTH,
        description="`next_cursor` of the page before; filter and sort must be the same.",
    )
    sort: Sort | None = Field(default=None, description=f"Order of the images. {SORT}")
    limit: int = Field(default=100, ge=1, le=MAX_LIMIT, description="Number of images on a page.")
    parts: list[HitPart] = Field(
        default=[*DEFAULT_PARTS],
        alias="with",
        max_length=len(HIT_PARTS),
        description="Parts of each image to return: texts, findings, labels, metadata, report, vector.",
    )


class FieldsQuery(Filtered):
    """Values to count, by an address."""

    field: str | None = Field(
        default=None,
        max_length=MAX_FIELD_NAME_LENGTH,
        description="Only this field, which may be id or group.",
    )
    containing: _Containing = ""


_FILES: dict[str, Any] = {
    "type": "array",
    "items": {"type": "string", "format": "binary"},
    "maxItems": MAX_EXAMPLES,
}
_QUERY: dict[str, Any] = {"$ref": f"#/components/schemas/{SearchQuery.__name__}"}
SEARCH_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": _QUERY},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "query": _QUERY,
                        "image": {
                            **_FILES,
                            "description": "Files to find more of: JPEG, PNG, WebP, AVIF, GIF, BMP, TIFF or "
                            "DICOM.",
                        },
                        "unlike_image": {**_FILES, "description": "Files to find less of."},
                    },
                },
                "encoding": {"query": {"contentType": "application/json"}},
            },
        },
    }
}


if TYPE_CHECKING:
    from training.models.text_input import Truncation as Cut


class Truncation(Answer):
    """Truncation of a text longer than the encoder's limit."""

    field: str = Field(description="Path of the text in the query.", examples=["text"])
    tokens: int = Field(description="Tokens of the full text.")
    kept: int = Field(description="Tokens that were searched for.")
    searched_text: str = Field(description="The part of the text that was searched for.")

    @classmethod
    def from_cut(cls, field: str, cut: "Cut") -> Self:
        """Describe how the text of a query's field was truncated."""
        return cls(field=field, **asdict(cut))


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

    @classmethod
    def from_generation(cls, active: ActiveGeneration | None, *, exact: bool) -> "ServedBy | None":
        """Describe the generation that was searched; None if none was."""
        if active is None:
            return None
        return cls.model_construct(
            collection=active.collection,
            generation=active.generation,
            model=active.model,
            digest=active.digest,
            exact=exact,
        )


_Milliseconds = Annotated[float, AfterValidator(partial(round, ndigits=3))]


class TookMs(Answer):
    """Milliseconds spent on this request, by part."""

    encode: _Milliseconds = Field(
        description="From the query to its vector: decoding, waiting in the queue, the encoder."
    )
    search: _Milliseconds = Field(description="From the vector to the hits.")
    total: _Milliseconds = Field(description="From the arrival of the request to its answer.")


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
        description="Cursor of the next page; null on the last. Only in answers to requests with `cursor`.",
    )
    query: QueryEcho
    served_by: ServedBy | None = Field(
        description="null for a list of a collection without an active generation."
    )
    took_ms: TookMs


class BatchResult(Answer):
    """Answer to one search of a batch: a page, or the problem that it would have had alone."""

    page: SearchResponse | None
    problem: Problem | None


class BatchResponse(Answer):
    """Answers to the searches of a batch, in their order."""

    results: Annotated[list[BatchResult], Field(description="The status is 207 if one has a problem.")]
    took_ms: TookMs


class Count(Answer):
    """How many images, texts or groups there are."""

    count: Annotated[int, Field(ge=0)]


class ImageList(Answer):
    """A page of images, in the order of `sort`."""

    images: list[ListedImage]
    count: int = Field(description="Images that pass the filter.")
    next_cursor: str | None = Field(description="Cursor of the next page; null on the last.")


class Area(Answer):
    """A part of the upright picture, in fractions of its width and height."""

    x: float
    y: float
    width: float
    height: float


class SimilarityMap(Answer):
    """Similarity map: the share of each region of an image in its cosine with a query."""

    id: str = Field(description="Id of the image.")
    cosine: float = Field(description="Cosine of image and query: the mean of the values.")
    width: int = Field(description="Regions in a row.")
    height: int = Field(description="Rows.")
    values: list[list[float]] = Field(
        description="What each region adds to the cosine, row by row from above."
    )
    smallest: float
    largest: float
    area: Area = Field(
        description="Position of the grid on the picture; beyond 0 and 1 where the model pads the picture."
    )
    picture_width: int = Field(description="Pixels of the upright picture.")
    picture_height: int
    generation: GenerationName = Field(description="Whose model compared them.")

    @classmethod
    def from_grid(
        cls, image: StoredImage, active: ActiveGeneration, grid: RegionGrid, query: NDArray[np.float32]
    ) -> Self:
        """Describe how the regions of an image fit a query vector (D,)."""
        values = grid.similarities(query)
        return cls(
            id=image.id,
            cosine=float(values.mean()),
            width=grid.side,
            height=grid.side,
            values=values.tolist(),
            smallest=float(values.min()),
            largest=float(values.max()),
            area=Area.model_validate(grid.area, from_attributes=True),
            picture_width=image.width,
            picture_height=image.height,
            generation=GenerationName(
                collection=active.collection,
                number=active.generation,
                model=active.model,
                digest=active.digest,
            ),
        )
