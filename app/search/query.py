"""A search with its image files: what its vector is made of, what the engine is asked for, and the answer."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain, islice, repeat
from typing import Any, Final, NamedTuple, Self

from pydantic import MISSING, BaseModel

from app.audit.trail import filter_parts
from app.edge.schemas import images_path
from app.generations.schemas import cosine_kind
from app.search.schemas import (
    Example,
    ImageList,
    QueryBox,
    QueryEcho,
    SearchQuery,
    SearchResponse,
    ServedBy,
    TookMs,
    Truncation,
    hits_from,
    ids_of,
    listed_from,
)
from index.engine import SearchEngine
from index.filters.grammar import parse_filter
from index.search.request import BatchEntry, Part, Parts, SearchRequest, stated_findings
from index.search.results import ActiveGeneration, HitDetails, SearchPage, read_details

# Fields of a search that the engine takes as they are.
_PASSED_ON: Final = [
    field.name
    for field in fields(SearchRequest)
    if field.name in SearchQuery.model_fields and field.name not in ("filter", "cursor")
]


class ImageFile(NamedTuple):
    """An image file of a query: its name in errors, empty for the only one, and its bytes."""

    name: str
    content: bytes


class Source(NamedTuple):
    """What one vector of a query is made of: a text, an image file, a stored image, or a given vector.

    Attributes:
        field: Place in the query, which errors name.
        box: The part of the picture to search by; None: the whole.
    """

    field: str
    text: str | None = None
    file: ImageFile | None = None
    image_id: str | None = None
    vector: Sequence[float] | None = None
    box: QueryBox | None = None


class MadePart(NamedTuple):
    """A part of the query, how its text was cut, and the number of its tokens."""

    part: Part
    truncation: Truncation | None = None
    tokens: int = 0


@dataclass(frozen=True)
class Search:
    """A search and the image files that came with it."""

    query: SearchQuery
    images: Sequence[ImageFile] = ()
    unlike_images: Sequence[ImageFile] = ()

    @classmethod
    def of(cls, wanted: BaseModel, **values: Any) -> Self:
        """Return what is to be listed or counted as a search without a query; `values` replace its fields."""
        given = {name: value for name, value in wanted if name in SearchQuery.model_fields}
        return cls(SearchQuery.model_construct(None, **given | values))

    @cached_property
    def request(self) -> SearchRequest:
        """What the engine is asked for, without what is known of the query vector alone.

        Raises:
            FilterError: The filter is none.
        """
        query, excluded = self.query, self.query.exclude_same_group
        return SearchRequest(
            **{name: getattr(query, name) for name in _PASSED_ON},
            k=query.limit,
            filter=None if query.filter is None else parse_filter(query.filter),
            cursor=query.cursor if isinstance(query.cursor, str) else None,
            # An image that is an example is no answer, but its texts may be.
            exclude=query.stored if query.target == "images" else (),
            exclude_groups_of=() if excluded in (None, False) else query.stored,
            exclude_groups_by=excluded if isinstance(excluded, str) else "group",
            exclude_patients_of=ids_of(query.like) if excluded is None else (),
            words=query.keywords,
            words_state=query.keywords_state,
            stated=() if query.text is None else stated_findings(query.text),
        )

    @cached_property
    def groups(self) -> tuple[list[Source], list[Source], list[Source]]:
        """Sources of what is asked for, of liked and of disliked examples."""
        query = self.query
        asked = [] if query.text is None else [Source("text", text=query.text)]
        asked += _pictures("image_boxes", self.images, query.image_boxes)
        unlike = _pictures("unlike_image_boxes", self.unlike_images, query.unlike_image_boxes)
        return asked, _examples("like", query.like), _examples("unlike", query.unlike) + unlike

    @cached_property
    def sources(self) -> list[Source]:
        """All sources, in the order in which `entry` takes their vectors."""
        return [*chain.from_iterable(self.groups)]

    @cached_property
    def digests(self) -> list[list[str]]:
        """SHA-256 of the image files, and of those of what is not wanted."""
        return [
            [hashlib.sha256(file.content).hexdigest() for file in files]
            for files in (self.images, self.unlike_images)
        ]

    def _digest(self) -> str:
        """Return a digest of all that the query vector is made of, files included."""
        # Cursors of queries without boxes are as they were before there were boxes.
        unmarked = {name: {"__all__": {"box"}} for name in ("like", "unlike")}
        own = self.query.model_dump_json(include={"text", "like", "unlike"}, exclude=unmarked)
        boxes = "".join(f"{place}{box.model_dump_json()}" for place, box in self.query.boxes.items())
        return hashlib.sha256(f"{own}{self.digests}{boxes}".encode()).hexdigest()

    def entry(self, engine: SearchEngine, active: ActiveGeneration, made: Sequence[MadePart]) -> BatchEntry:
        """Return the search with the vectors of its sources, of which there is one or more.

        Raises:
            QueryError: The vectors cannot be one query.
        """
        rest = iter([one.part for one in made])
        parts = Parts(*([*islice(rest, len(group))] for group in self.groups))
        request = replace(self.request, kind=parts.kind)
        # Vectors of two parts of one picture may be nearly the same.
        if parts.single is None or any(source.box is not None for source in self.sources):
            request = replace(request, parts=self._digest())
        return BatchEntry(engine.compose(active, parts, request.target), request, parts.text)

    def find(
        self,
        engine: SearchEngine,
        collection: str,
        active: ActiveGeneration | None,
        made: Sequence[MadePart],
    ) -> "Found":
        """Search with the vectors of the sources, or list without any.

        `SearchEngine.search` and `SearchEngine.browse` say what is raised.
        """
        if active is None or not made:
            page = engine.browse(collection, self.request)
        else:
            page = engine.search(active, *self.entry(engine, active, made))
        return self.found(engine, collection, active, made, page)

    def found(
        self,
        engine: SearchEngine,
        collection: str,
        active: ActiveGeneration | None,
        made: Sequence[MadePart],
        page: SearchPage,
    ) -> "Found":
        """Load the lazily computed parts of a page that the query asks for, and the details of its hits."""
        # In a thread: with thousands of hits before, or blades, it takes milliseconds.
        _ = page.z_scores, self.query.asks_for_cursor and page.next_cursor
        details = read_details(engine.home.catalogue, active, collection, page.hits, self.query.parts)
        details = details or [HitDetails()] * len(page.hits)
        cuts = [one.truncation for one in made if one.truncation is not None]
        return Found(self, collection, active, page, details, cuts)

    def audited(self) -> dict[str, list[str]]:
        """Return the parts for the audit trail: texts, examples by ids, files by digests, and the filter."""
        query = self.query
        parts: dict[str, list[str | None]] = {
            "text": [query.text],
            "keywords": [query.keywords],
            "like": [example.id for example in query.like],
            "unlike": [example.id for example in query.unlike],
            "like_text": [example.text for example in query.like],
            "unlike_text": [example.text for example in query.unlike],
            "file": [digest for digests in self.digests for digest in digests],
            "box": [f"{place}: {box.model_dump_json()}" for place, box in query.boxes.items()],
        }
        given = {name: [text for text in texts if text is not None] for name, texts in parts.items()}
        return {name: texts for name, texts in given.items() if texts} | filter_parts(query.filter)


def _pictures(field: str, files: Sequence[ImageFile], boxes: Sequence[QueryBox | None]) -> list[Source]:
    pairs = zip(files, chain(boxes, repeat(None)), strict=False)
    return [Source(field, file=file, box=box) for file, box in pairs]


def _examples(field: str, examples: Sequence[Example]) -> list[Source]:
    sources = []
    for place, example in enumerate(examples):
        kind = "box" if example.id is not None else "text" if example.text is not None else "vector"
        given = example.text, None, example.id, example.vector, example.box
        sources.append(Source(f"{field}.{place}.{kind}", *given))
    return sources


class Found(NamedTuple):
    """The page of a search, with the details of its hits, and the texts that were cut.

    `active` is the generation that was searched; None for a list of a collection without one.
    """

    search: Search
    collection: str
    active: ActiveGeneration | None
    page: SearchPage
    details: Sequence[HitDetails]
    truncations: Sequence[Truncation]

    def answer(self, took_ms: TookMs, prefix: str = "") -> SearchResponse:
        """Make the answer; `prefix` is where a proxy has put the service."""
        page, query, active = self.page, self.search.query, self.active
        kind = None if active is None else cosine_kind(active)
        return SearchResponse.model_construct(
            hits=hits_from(page, kind, images_path(self.collection, prefix), query.parts, self.details),
            confident=page.confident,
            count=page.count,
            unknown_keywords=list(page.unknown_words),
            has_more=page.has_more,
            next_cursor=page.next_cursor if query.asks_for_cursor else MISSING,
            query=QueryEcho(limit=query.limit, filter=query.filter, truncations=list(self.truncations)),
            served_by=ServedBy.of(active, exact=page.exact),
            took_ms=took_ms,
        )

    def listed(self, prefix: str) -> ImageList:
        """Make the answer to a list of images; `prefix` is where a proxy has put the service."""
        page, path = self.page, images_path(self.collection, prefix)
        # Without words, every key is counted.
        assert page.count is not None
        return ImageList.model_construct(
            images=[
                listed_from(hit.image, path, self.search.query.parts, known)
                for hit, known in zip(page.hits, self.details, strict=True)
            ],
            count=page.count,
            next_cursor=page.next_cursor,
        )
