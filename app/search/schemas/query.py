"""Schemas of queries; the command line builds the same."""

import hashlib
import math
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    BeforeValidator,
    Field,
    model_validator,
)

from app.edge.schemas import Request, Text
from app.search.schemas.box import QueryBox
from app.search.schemas.filter_form import LIMITS, FilterForm
from app.search.schemas.hits import DEFAULT_PARTS, HIT_PARTS
from index.errors import QueryError
from index.filters.grammar import MAX_FIELD_NAME_LENGTH, FieldName, parse_filter
from index.search.request import SearchRequest, stated_findings, unit_query
from index.search.results import HitPart
from index.vectors.protocol import Vectors
from training.clinical.findings import State

MAX_LIMIT = 1000
MAX_EXAMPLES = 16
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
        default=None, description="With an id: the part of that image to search by, in place of the whole."
    )

    @model_validator(mode="after")
    def _is_one(self) -> "Example":
        if sum(given is not None for given in (self.id, self.text, self.vector)) != 1:
            raise ValueError("Give exactly one of id, text and vector.")
        if self.box is not None and self.id is None:
            raise ValueError("A box is a part of a stored image: give the image's id with it.")
        return self


Boxes = Annotated[list[QueryBox | None], Field(fail_fast=True, max_length=MAX_EXAMPLES)]
Examples = Annotated[list[Example], Field(fail_fast=True, max_length=MAX_EXAMPLES)]


class SearchQuery(Request):
    """A search: what to find, among what, and in which order.

    A text, liked and disliked examples, and the images of a form make up one query together. Without any of
    them the hits are the images that pass the filter and have the keywords, or all, without scores: in the
    order in which they were added, with keywords by these.
    """

    text: Text | None = Field(
        default=None,
        description="Description of the wanted images.",
        examples=["two dogs run through shallow water"],
    )
    like: Examples = Field(
        default=[], description="Examples of what is wanted.", examples=[[{"id": "scene00012"}]]
    )
    unlike: Examples = Field(default=[], description="Examples of what is not wanted.", examples=[[]])
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
        description="A condition on metadata or on the built-in fields id, split, group and labels; for "
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
        description="Leave out hits whose cosine is lower, on every page, whichever lists have them.",
    )
    diversity: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None,
        description="Choose hits that differ from each other, by maximal marginal relevance: 0 changes "
        "nothing, 1 looks at nothing else. Scores then do not fall from hit to hit.",
    )
    image_boxes: Boxes = Field(
        default=[],
        description="Of the files in `image`, in their order: the part to search by, or null for the whole.",
        examples=[[]],
    )
    unlike_image_boxes: Boxes = Field(
        default=[],
        description="Of the files in `unlike_image`, likewise: the part that is not wanted.",
        examples=[[]],
    )
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = Field(
        default=10,
        description="Number of hits to return.",
        examples=[10],
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
        description="What is told of the image of each hit: texts, findings, labels, metadata, report, and "
        "vector, which for texts is that of the found text.",
    )

    @property
    def asks_for_cursor(self) -> bool:
        """Whether the answer has `next_cursor`."""
        return self.cursor not in (None, False)

    @property
    def stored(self) -> tuple[str, ...]:
        """The images of the collection that are examples, by id."""
        return tuple(example.id for example in (*self.like, *self.unlike) if example.id is not None)

    @property
    def _excludes_groups(self) -> bool:
        return self.exclude_same_group not in (None, False)

    @property
    def _liked(self) -> tuple[str, ...]:
        return tuple(example.id for example in self.like if example.id is not None)

    @property
    def boxes(self) -> dict[str, QueryBox]:
        """Parts of pictures to search by, by the place of their pictures in the query."""
        places = {f"image.{place}": box for place, box in enumerate(self.image_boxes)}
        places |= {f"unlike_image.{place}": box for place, box in enumerate(self.unlike_image_boxes)}
        for name, examples in (("like", self.like), ("unlike", self.unlike)):
            places |= {f"{name}.{place}": example.box for place, example in enumerate(examples)}
        return {place: box for place, box in places.items() if box is not None}

    def check(self, *, images: int = 0, unlike_images: int = 0) -> None:
        """Refuse what makes no search, whatever the collection.

        Args:
            images: Image files that are sent.
            unlike_images: Image files that are sent as examples of what is not wanted.

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
                    "The box of a stored image stands beside its id.",
                    field=f"{files}_boxes",
                )
        if self._excludes_groups and not self.stored:
            raise QueryError(
                "exclude_same_group goes with an example that the collection holds: give the id of one.",
                field="exclude_same_group",
            )

    def digest(self, images: Iterable[bytes] = (), unlike_images: Iterable[bytes] = ()) -> str:
        """Return a digest of all that the query vector is made of, files that are sent included."""
        # Cursors of queries without boxes are as they were before there were boxes.
        unmarked = {name: {"__all__": {"box"}} for name in ("like", "unlike")}
        own = self.model_dump_json(include={"text", "like", "unlike"}, exclude=unmarked)
        files = [[hashlib.sha256(file).hexdigest() for file in kind] for kind in (images, unlike_images)]
        boxes = "".join(f"{place}{box.model_dump_json()}" for place, box in self.boxes.items())
        return hashlib.sha256(f"{own}{files}{boxes}".encode()).hexdigest()

    def request(self, **known: Any) -> SearchRequest:
        """Return what the engine is asked for; `known` are further values of it, such as the query's kind.

        Raises:
            FilterError: The filter is none.
        """
        return SearchRequest(
            k=self.limit,
            filter=None if self.filter is None else parse_filter(self.filter),
            cursor=self.cursor if isinstance(self.cursor, str) else None,
            # An image that is an example is no answer, but its texts may be.
            exclude=self.stored if self.target == "images" else (),
            exclude_groups_of=self.stored if self._excludes_groups else (),
            exclude_groups_by=self.exclude_same_group
            if isinstance(self.exclude_same_group, str)
            else "group",
            exclude_patients_of=self._liked if self.exclude_same_group is None else (),
            words=self.keywords,
            words_state=self.keywords_state,
            stated=() if self.text is None else stated_findings(self.text),
            target=self.target,
            group_by=self.group_by,
            min_score=self.min_score,
            diversity=self.diversity,
            **known,
        )


class BatchQuery(Request):
    """Searches that are answered together."""

    searches: Annotated[list[SearchQuery], Field(fail_fast=True, min_length=1, max_length=MAX_SEARCHES)] = (
        Field(
            description="Searches, each as it would be sent alone.",
            examples=[[{"text": "a dog"}, {"text": "a boat", "limit": 3}]],
        )
    )


class CountQuery(Request):
    """A count: of all in a collection, or of all that pass a filter and have keywords."""

    filter: FilterForm | None = Field(
        default=None, description="A filter, as in a search.", examples=[{"field": "view", "eq": "PA"}]
    )
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

    def request(self) -> SearchRequest:
        """Return what the engine is asked for.

        Raises:
            FilterError: The filter is none.
        """
        return SearchRequest(
            filter=None if self.filter is None else parse_filter(self.filter),
            words=self.keywords,
            words_state=self.keywords_state,
            target=self.target,
            group_by=self.group_by,
        )


def given_vector(example: Example, dim: int, field: str) -> Vectors:
    """Return the vector (D,) of an example at length one; `field` is where the example stands in the query.

    Raises:
        QueryError: The vector has another dimension than the collection.
    """
    numbers = np.array(example.vector, dtype=np.float64)
    largest = float(np.abs(numbers).max(initial=0))
    if 0 < largest < math.inf:
        # Only the direction counts, and float32 may not hold the numbers.
        numbers /= largest
    try:
        return unit_query(numbers.astype(np.float32), dim)
    except QueryError as error:
        raise QueryError(str(error), field=f"{field}.vector") from None


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
