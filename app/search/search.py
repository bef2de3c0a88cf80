"""A search with its image files: its vectors, the engine's request, the response, and the audit event."""

import asyncio
import hashlib
import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from http import HTTPStatus
from itertools import chain, repeat
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np
from fastapi import Request
from pydantic import MISSING, BaseModel

from app.audit.requests import Noted, note
from app.audit.trail import filter_parts
from app.concurrency import side_by_side
from app.edge.problems import invalid, kind_of
from app.edge.schemas import images_path
from app.encoding.pool import LoadedEncoder
from app.search.schemas import (
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
from app.services import Services
from index.audit.event import Detail
from index.catalogue.images import StoredImage
from index.engine import SearchEngine
from index.errors import SEARCH_ERRORS, QueryError, StoreError
from index.filters.grammar import parse_filter
from index.search.request import BatchEntry, Part, Parts, SearchRequest, stated_findings, unit_query
from index.search.results import ActiveGeneration, HitDetails, SearchPage, cosine_kind, read_details
from training.common.errors import ImageError, ImageTooLargeError, NoRegionsError, RecoquestError
from training.models.image_input import Box, RegionGrid, grid_of

_TRUNCATION: Final = attrgetter("truncation")
# Errors of one search of a batch: every other error is of all of them.
_OF_ONE: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)


class ImageFile(NamedTuple):
    """An image file of a query: its name in errors, empty for the only one, and its bytes."""

    name: str
    content: bytes


class Source(NamedTuple):
    """The source of one vector of a query: a text, an image file, a stored image, or a vector.

    Attributes:
        field: Path in the query, which errors name.
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
    def without_query(cls, parameters: BaseModel, **values: Any) -> Self:
        """Return a listing or count as a search without a query; `values` replace its fields."""
        values_given = {name: value for name, value in parameters if name in SearchQuery.model_fields}
        return cls(SearchQuery.model_construct(None, **values_given | values))

    @cached_property
    def request(self) -> SearchRequest:
        """The engine's request, without anything that depends on the query vector.

        Raises:
            FilterError: The filter is none.
        """
        query, excluded = self.query, self.query.exclude_same_group
        stored = query.stored if query.like or query.unlike else ()
        return SearchRequest(
            k=query.limit,
            target=query.target,
            group_by=query.group_by,
            min_score=query.min_score,
            diversity=query.diversity,
            sort=query.sort,
            filter=None if query.filter is None else parse_filter(query.filter),
            cursor=query.cursor if isinstance(query.cursor, str) else None,
            # An image that is an example is no answer, but its texts may be.
            exclude=stored if query.target == "images" else (),
            exclude_groups_of=() if excluded in (None, False) else stored,
            exclude_groups_by=excluded if isinstance(excluded, str) else "group",
            exclude_patients_of=ids_of(query.like) if excluded is None and stored else (),
            words=query.keywords,
            words_state=query.keywords_state,
            stated=() if query.text is None else stated_findings(query.text),
        )

    @cached_property
    def sources(self) -> list[Source]:
        """The sources of its vectors: the query, then liked and disliked examples."""
        query = self.query
        sources = [] if query.text is None else [Source("text", text=query.text)]
        if self.images:
            sources += _pictures("image_boxes", self.images, query.image_boxes)
        for field, examples in (("like", query.like), ("unlike", query.unlike)):
            for index, one in enumerate(examples):
                kind = "box" if one.id is not None else "text" if one.text is not None else "vector"
                values = one.text, None, one.id, one.vector, one.box
                sources.append(Source(f"{field}.{index}.{kind}", *values))
        if self.unlike_images:
            sources += _pictures("unlike_image_boxes", self.unlike_images, query.unlike_image_boxes)
        return sources

    @cached_property
    def digests(self) -> list[list[str]]:
        """SHA-256 of the image files, and of those to avoid."""
        return [
            [hashlib.sha256(file.content).hexdigest() for file in files]
            for files in (self.images, self.unlike_images)
        ]

    @property
    def shape(self) -> Hashable:
        """What mostly decides how long the search takes: fields, the form of the filter, and the limit."""
        query = self.query
        return frozenset(query.model_fields_set), _form(query.filter), query.limit.bit_length()

    def _digest(self) -> str:
        """Return a digest of all sources of the query vector, including files."""
        # Cursors of queries without boxes are as they were before there were boxes.
        unmarked = {name: {"__all__": {"box"}} for name in ("like", "unlike")}
        parts_json = self.query.model_dump_json(include={"text", "like", "unlike"}, exclude=unmarked)
        boxes = "".join(f"{position}{box.model_dump_json()}" for position, box in self.query.boxes.items())
        return hashlib.sha256(f"{parts_json}{self.digests}{boxes}".encode()).hexdigest()

    def entry(self, engine: SearchEngine, active: ActiveGeneration, made: Sequence[MadePart]) -> BatchEntry:
        """Return the search with the vectors of its sources, of which there is one or more.

        Raises:
            QueryError: The vectors cannot be one query.
        """
        query_count = len(self.images) + (self.query.text is not None)
        positive_count = query_count + len(self.query.like)
        if len(made) == positive_count == 1:
            only = made[0].part
            # Vectors of two parts of one picture may be nearly the same.
            digest = None if self.sources[0].box is None else self._digest()
            return BatchEntry(only.vector, replace(self.request, kind=only.kind, parts=digest), only.text)
        vectors = [one.part for one in made]
        parts = Parts(vectors[:query_count], vectors[query_count:positive_count], vectors[positive_count:])
        vector = engine.compose(active, parts, self.request.target)
        return BatchEntry(vector, replace(self.request, parts=self._digest()), None)

    def find(
        self, engine: SearchEngine, collection: str, active: ActiveGeneration | None, made: Sequence[MadePart]
    ) -> "SearchResult":
        """Search with the vectors of the sources, or list without any.

        `SearchEngine.search` and `SearchEngine.browse` say what is raised.
        """
        if active is None or not made:
            page = engine.browse(collection, self.request)
        else:
            page = engine.search(active, *self.entry(engine, active, made))
        return self.load(engine, collection, active, made, page)

    def load(
        self,
        engine: SearchEngine,
        collection: str,
        active: ActiveGeneration | None,
        made: Sequence[MadePart],
        page: SearchPage,
    ) -> "SearchResult":
        """Load the lazily computed parts of a page that the query asks for, and the details of its hits."""
        # In a thread: after thousands of earlier hits, or with blades, it takes milliseconds.
        _ = page.z_scores, self.query.cursor and page.next_cursor
        details = [HitDetails()] * len(page.hits)
        if "report" in self.query.parts or "vector" in self.query.parts:
            details = read_details(engine.home.catalogue, active, collection, page.hits, self.query.parts)
        return SearchResult(self, collection, active, page, details, [*filter(None, map(_TRUNCATION, made))])

    def audited(self) -> dict[str, list[str]]:
        """Return the parts for the audit trail: texts, examples by ids, files by digests, and the filter."""
        query = self.query
        parts: dict[str, list[str]] = {}
        if query.text is not None:
            parts["text"] = [query.text]
        if query.keywords is not None:
            parts["keywords"] = [query.keywords]
        if query.like or query.unlike or self.images or self.unlike_images:
            for name, examples in (("like", query.like), ("unlike", query.unlike)):
                parts[name] = [*ids_of(examples)]
                parts[f"{name}_text"] = [one.text for one in examples if one.text is not None]
            parts["file"] = [*chain.from_iterable(self.digests)]
            parts["box"] = [f"{position}: {box.model_dump_json()}" for position, box in query.boxes.items()]
            parts = {name: texts for name, texts in parts.items() if texts}
        return parts if query.filter is None else parts | filter_parts(query.filter)


def _form(condition: Any) -> Hashable:
    """Return a filter without the values that it compares with."""
    if isinstance(condition, dict):
        return tuple((name, value if name == "field" else _form(value)) for name, value in condition.items())
    if isinstance(condition, list) and condition and isinstance(condition[0], dict):
        return tuple(map(_form, condition))
    return len(condition).bit_length() if isinstance(condition, list) else None


def _pictures(field: str, files: Sequence[ImageFile], boxes: Sequence[QueryBox | None]) -> Iterator[Source]:
    for file, box in zip(files, chain(boxes, repeat(None)), strict=False):
        yield Source(field, file=file, box=box)


class SearchResult(NamedTuple):
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
            has_more=page.end is not None,
            next_cursor=page.next_cursor if query.cursor else MISSING,
            query=QueryEcho.model_construct(
                limit=query.limit, filter=query.filter, truncations=list(self.truncations)
            ),
            served_by=ServedBy.from_generation(active, exact=page.exact),
            took_ms=took_ms,
        )

    def listed(self, prefix: str) -> ImageList:
        """Make the answer to a list of images; `prefix` is where a proxy has put the service."""
        page, path = self.page, images_path(self.collection, prefix)
        # Without words, every key is counted.
        assert page.count is not None
        return ImageList.model_construct(
            images=[
                listed_from(hit.image, path, self.search.query.parts, detail)
                for hit, detail in zip(page.hits, self.details, strict=True)
            ],
            count=page.count,
            next_cursor=page.next_cursor,
        )


async def make_parts(
    services: Services,
    active: ActiveGeneration,
    sources: Sequence[Source],
    slots: asyncio.Semaphore | None = None,
) -> list[MadePart]:
    """Make the vectors of sources side by side, by one generation's encoder.

    Few are made at once, so that the encoder's queue has room for others; `slots` are those of a batch.
    """
    if slots is None and len(sources) == 1:
        return [await _make_part(services, active, sources[0])]
    slots = slots or asyncio.Semaphore(max(1, services.settings.encode_queue_size // 2))
    return await side_by_side([_make_part(services, active, source) for source in sources], slots)


async def _make_part(services: Services, active: ActiveGeneration, source: Source) -> MadePart:
    if source.text is not None:
        loaded = await services.encoders.get(active)
        encoded = await loaded.queue.encode_text(source.text)
        cut = encoded.truncation
        truncation = None if cut is None else Truncation.from_cut(source.field, cut)
        return MadePart(Part(encoded.vector, "text", source.text), truncation, encoded.tokens)
    if source.file is not None:
        loaded = await services.encoders.get(active)
        with file_named(source.file.name):
            if source.box is not None:
                grid = await _embed_regions(services, loaded, source.file.content)
                return MadePart(region_part(grid, source.box, source.field))
            config = loaded.encoder.image_config
            decoded = await services.images.decode_query(source.file.content, config)
        return MadePart(Part((await loaded.queue.encode_image(decoded.pixels)).vector, "image"))
    if source.image_id is None:
        return MadePart(given_part(active, source))
    if source.box is not None:
        _, grid = await stored_regions(services, active, source.image_id)
        return MadePart(region_part(grid, source.box, source.field))
    vector = await services.threads.read(services.engine.vector_of, active, source.image_id)
    return MadePart(Part(vector, "image"))


@contextmanager
def file_named(name: str) -> Iterator[None]:
    """Name an image file in its errors; the only one of a request has no name."""
    try:
        yield
    except ImageError as error:
        raise type(error)(f"{name}: {error}" if name else str(error)) from error


def given_part(active: ActiveGeneration, source: Source) -> Part:
    """Return the source's vector at length one.

    Raises:
        QueryError: The vector is none of this collection.
    """
    numbers = np.array(source.vector, dtype=np.float64)
    largest = float(np.abs(numbers).max(initial=0))
    if 0 < largest < math.inf:
        # Only the direction counts, and float32 may not hold the numbers.
        numbers /= largest
    try:
        return Part(unit_query(numbers.astype(np.float32), active.dim), None)
    except QueryError as error:
        raise QueryError(str(error), field=source.field) from None


async def stored_regions(
    services: Services, active: ActiveGeneration, image_id: str
) -> tuple[StoredImage, RegionGrid]:
    """Embed the regions of a stored image, by the encoder of a generation.

    Raises:
        UnknownImageError: The collection has no such image.
        StoreError: The file is missing or damaged.
        RequestError: It takes more memory or work than an image may.
        NoRegionsError: The encoder has none.
        EncodingError: Too many queries wait, it was not done in time, or the service ends.
    """
    loaded, lost = await services.encoders.get(active), ""
    while True:
        image = await services.threads.read(services.engine.image, active.collection, image_id)
        try:
            path = await services.threads.read(services.engine.home.store.path, image.sha256)
            with naming_failures(image, "image_id", "The image takes more memory or work than one may."):
                return image, await _embed_regions(services, loaded, path)
        except StoreError:
            # The image may have been replaced or removed since.
            if image.sha256 == lost:
                raise
            lost = image.sha256


@contextmanager
def naming_failures(image: StoredImage, field: str, too_large: str) -> Iterator[None]:
    """Answer failed decoding of a stored image with StoreError, or RequestError if a field asks too much."""
    try:
        yield
    except ImageTooLargeError as error:
        raise invalid(field, too_large) from error
    except ImageError as error:
        raise StoreError(f"The stored image {image.sha256} is damaged: {error}") from error


async def _embed_regions(services: Services, loaded: LoadedEncoder, source: bytes | Path) -> RegionGrid:
    if not loaded.encoder.regions:
        raise NoRegionsError
    config = loaded.encoder.image_config
    decoded = await services.images.decode_query(source, config)
    regions = await loaded.queue.encode_regions(decoded.pixels)
    return grid_of(regions, decoded.picture, config.square)


def region_part(grid: RegionGrid, box: QueryBox, field: str) -> Part:
    """Return the vector of a part of a picture.

    Raises:
        QueryError: The encoder sees nothing of the part.
    """
    vector = grid.pool(Box(box.x, box.y, box.width, box.height))
    if vector is None:
        seen = grid.area
        raise QueryError(
            f"The model sees of this picture only x from {seen.x:.2f} to {seen.x + seen.width:.2f} and y "
            f"from {seen.y:.2f} to {seen.y + seen.height:.2f}: draw the box there.",
            field=field,
        )
    # Vectors of parts aren't comparable with those of whole images.
    return Part(vector, None)


async def make_batch(
    services: Services, active: ActiveGeneration, searches: Sequence[Search]
) -> list[list[MadePart] | RecoquestError]:
    """Make the parts of each search of a batch; an error of one search takes its position.

    Raises:
        RecoquestError: None of them can be answered, for a reason that is not in one search.
    """
    slots = asyncio.Semaphore(max(1, services.settings.encode_queue_size // 2))

    async def make(search: Search) -> list[MadePart] | RecoquestError:
        try:
            search.query.check()
            _ = search.request
            return await make_parts(services, active, search.sources, slots)
        except RecoquestError as error:
            if kind_of(error).status in _OF_ONE:
                return error
            raise

    return await side_by_side([make(search) for search in searches], asyncio.Semaphore(len(searches)))


def find_batch(
    engine: SearchEngine,
    active: ActiveGeneration,
    searches: Sequence[Search],
    made: Sequence[list[MadePart] | RecoquestError],
) -> list[SearchResult | RecoquestError]:
    """Answer the searches of a batch in few passes over the index; an error of one takes its position."""
    results: dict[int, SearchResult | RecoquestError] = {}
    entries: dict[int, tuple[BatchEntry, list[MadePart]]] = {}
    for index, (search, parts) in enumerate(zip(searches, made, strict=True)):
        try:
            if isinstance(parts, RecoquestError):
                results[index] = parts
            elif parts:
                entries[index] = search.entry(engine, active, parts), parts
            else:
                results[index] = search.find(engine, active.collection, active, parts)
        except SEARCH_ERRORS as error:
            results[index] = error
    pages = engine.search_batch(active, [entry for entry, _ in entries.values()])
    for (index, (_, parts)), page in zip(entries.items(), pages, strict=True):
        if isinstance(page, SearchPage):
            results[index] = searches[index].load(engine, active.collection, active, parts, page)
        else:
            results[index] = page
    return [results[index] for index in range(len(searches))]


async def note_queries(
    request: Request,
    services: Services,
    active: ActiveGeneration | None,
    every: Sequence[Search],
    objects: Iterable[str],
    **details: Detail,
) -> None:
    """Note the queries of a request, and the images that it shows or compares with them, by their ids.

    `active` is the generation that was searched; None for a list of a collection without one.
    """
    if services.recorder is None:
        return
    parts: dict[str, list[str]] = {}
    for search in every:
        if search.images or search.unlike_images:
            # Large files take milliseconds.
            await services.threads.read(getattr, search, "digests")
        for name, texts in search.audited().items():
            parts.setdefault(name, []).extend(texts)
    note(
        request,
        Noted(
            objects=list(dict.fromkeys(objects)),
            query=parts,
            model=None if active is None else active.digest,
            generation=None if active is None else active.generation,
            details=details,
        ),
    )
