"""From a search as it was sent to its hits: its sources, their vectors, and its events in the audit trail.

The service and the command line encode sources in their own ways; everything else is shared.
"""

import asyncio
import hashlib
import math
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self, TypeVar

import numpy as np
from fastapi import Request

from app.audit.requests import Noted, note
from app.audit.trail import command_actor, filter_parts, open_trail
from app.edge.problems import kind_of
from app.encoding.pool import LoadedEncoder
from app.search.read_search import SentSearch, invalid
from app.search.schemas import Example, QueryBox, SearchQuery, SearchResponse, Truncation, ids_of
from app.services import Services
from app.settings import Settings
from index.audit.event import Detail, Event
from index.catalogue import Catalogue
from index.catalogue.images import StoredImage
from index.engine import SearchEngine
from index.errors import SEARCH_ERRORS, QueryError, StoreError
from index.search.request import BatchEntry, Part, Parts, SearchRequest, unit_query
from index.search.results import ActiveGeneration, HitDetails, SearchPage, read_details
from training.common.errors import ImageError, ImageTooLargeError, NoRegionsError, RecoquestError
from training.models.inputs.regions import Box, RegionGrid, grid_of

# Errors of one search of a batch: every other error is of all of them.
_OF_ONE: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)

_Result = TypeVar("_Result")
Found = tuple[SearchPage, list[HitDetails]]


class ImageFile(NamedTuple):
    """An image file of a query.

    Attributes:
        name: Name in errors; empty for the only one.
        content: Bytes of the file.
        box: The part to search by; None: the whole.
        field: Field of the query that has the box.
    """

    name: str
    content: bytes
    box: Box | None = None
    field: str = "image_boxes"


class TextSource(NamedTuple):
    """A text to encode, and its place in the query."""

    field: str
    text: str


class StoredSource(NamedTuple):
    """A stored image or a given vector, and its place in the query."""

    field: str
    example: Example

    @property
    def box(self) -> Box | None:
        """The part of the image to search by; None: the whole."""
        return None if self.example.box is None else self.example.box.box


Source = ImageFile | TextSource | StoredSource


@dataclass(frozen=True, slots=True)
class QuerySources:
    """Texts, image files and examples of a query.

    Attributes:
        request: The engine's request, without the vector.
        asked: Text and image files.
        liked: Positive examples.
        disliked: Negative examples.
    """

    request: SearchRequest
    asked: tuple[Source, ...]
    liked: tuple[Source, ...]
    disliked: tuple[Source, ...]
    _digest: Callable[[], str]

    @classmethod
    def of(
        cls, query: SearchQuery, images: Sequence[ImageFile] = (), unlike_images: Sequence[ImageFile] = ()
    ) -> Self:
        """Gather the sources of a query and of the image files that came with it.

        Raises:
            FilterError: The filter is none.
        """
        text = [] if query.text is None else [TextSource("text", query.text)]
        files = [[file.content for file in kind] for kind in (images, unlike_images)]
        return cls(
            query.request(),
            (*text, *_marked(images, query.image_boxes, "image_boxes")),
            _examples("like", query.like),
            (
                *_examples("unlike", query.unlike),
                *_marked(unlike_images, query.unlike_image_boxes, "unlike_image_boxes"),
            ),
            partial(query.digest, *files),
        )

    @property
    def all(self) -> tuple[Source, ...]:
        """All sources, in the order in which `find` takes their vectors."""
        return (*self.asked, *self.liked, *self.disliked)

    @property
    def pictures(self) -> list[ImageFile | StoredSource]:
        """Image files and examples that are no texts."""
        return [source for source in self.all if not isinstance(source, TextSource)]

    @property
    def modality(self) -> Literal["text", "image"] | None:
        """The modality of all sources to encode; None where there are both, or none."""
        texts = any(isinstance(source, TextSource) for source in self.all)
        images = any(isinstance(one, ImageFile) or one.box is not None for one in self.pictures)
        if texts == images:
            return None
        return "text" if texts else "image"

    def find(self, engine: SearchEngine, active: ActiveGeneration, made: Sequence[Part]) -> SearchPage:
        """Search with the vectors of `all` sources, or list without any.

        `SearchEngine.search` and `SearchEngine.browse` say what is raised.
        """
        if not self.all:
            return engine.browse(active.collection, self.request)
        return engine.search(active, *self.entry(engine, active, made))

    def entry(self, engine: SearchEngine, active: ActiveGeneration, made: Sequence[Part]) -> BatchEntry:
        """Return the search with the vectors of `all` sources, of which there is one or more.

        Raises:
            QueryError: The vectors cannot be one query.
        """
        last = len(self.asked) + len(self.liked)
        parts = Parts(made[: len(self.asked)], made[len(self.asked) : last], made[last:])
        request = replace(self.request, kind=parts.kind)
        # Vectors of two parts of one picture may be nearly the same.
        if parts.single is None or any(source.box is not None for source in self.pictures):
            request = replace(request, parts=self._digest())
        return BatchEntry(engine.compose(active, parts, request.target), request, parts.text)


def _marked(images: Sequence[ImageFile], boxes: Sequence[QueryBox | None], field: str) -> Iterator[ImageFile]:
    for image, box in zip(images, chain(boxes, repeat(None)), strict=False):
        yield image._replace(box=None if box is None else box.box, field=field)


def _examples(name: str, examples: Sequence[Example]) -> tuple[Source, ...]:
    return tuple(
        StoredSource(f"{name}.{place}", example)
        if example.text is None
        else TextSource(f"{name}.{place}.text", example.text)
        for place, example in enumerate(examples)
    )


def sources_of(sent: SentSearch) -> QuerySources:
    """Return the sources of a search; image files of a form's field are named where there are several."""

    def named(field: str, files: Sequence[bytes]) -> list[ImageFile]:
        several = len(files) > 1
        return [
            ImageFile(f"File {number} of `{field}`" if several else "", content)
            for number, content in enumerate(files, 1)
        ]

    return QuerySources.of(sent.query, named("image", sent.images), named("unlike_image", sent.unlike_images))


@dataclass(frozen=True, slots=True)
class MadePart:
    """A part of the query, how its text was cut, and the number of its tokens."""

    part: Part
    truncation: Truncation | None = None
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class PartMaker:
    """Makes the vectors of a query's parts by one generation's encoder."""

    services: Services
    active: ActiveGeneration

    async def make(self, source: Source) -> MadePart:
        """Encode a text or an image file, or look up the vector of an example."""
        match source:
            case TextSource():
                return await self._of_text(source)
            case ImageFile():
                return await self._of_image(source)
            case StoredSource() if source.box is not None and source.example.id is not None:
                _, grid = await stored_regions(self.services, self.active, source.example.id)
                return MadePart(region_part(grid, source.box, f"{source.field}.box"))
            case StoredSource():
                engine, threads = self.services.engine, self.services.threads
                return MadePart(await threads.read(stored_part, engine, self.active, source))

    async def make_all(self, sources: QuerySources) -> list[MadePart]:
        """Make the parts of all sources side by side."""
        return await side_by_side([self.make(source) for source in sources.all])

    def in_turn(self) -> Callable[[Source], Coroutine[Any, Any, MadePart]]:
        """Return what makes parts as `make` does, so few at once that the queue has room for others."""
        places = asyncio.Semaphore(max(1, self.services.settings.encode_queue_size // 2))

        async def make(source: Source) -> MadePart:
            async with places:
                return await self.make(source)

        return make

    async def _of_text(self, source: TextSource) -> MadePart:
        loaded = await self.services.encoders.of(self.active)
        encoded = await loaded.queue.encode_text(source.text)
        cut = encoded.truncation
        part = Part(encoded.vector, "text", source.text)
        return MadePart(part, None if cut is None else Truncation.of(source.field, cut), encoded.tokens)

    async def _of_image(self, file: ImageFile) -> MadePart:
        loaded = await self.services.encoders.of(self.active)
        try:
            if file.box is not None:
                grid = await _embed_regions(self.services, loaded, file.content)
                return MadePart(region_part(grid, file.box, file.field))
            decoded = await self.services.images.decode_query(file.content, loaded.encoder.image_config)
        except ImageError as error:
            raise type(error)(f"{file.name}: {error}" if file.name else str(error)) from error
        encoded = await loaded.queue.encode_image(decoded.pixels)
        return MadePart(Part(encoded.vector, "image"))


async def side_by_side(works: Sequence[Coroutine[Any, Any, _Result]]) -> list[_Result]:
    """Await all works side by side; the first error ends the others."""
    if len(works) == 1:
        return [await works[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


def stored_part(engine: SearchEngine, active: ActiveGeneration, source: StoredSource) -> Part:
    """Return the vector of a stored image, or the given vector at length one.

    Raises:
        UnknownImageError: The collection has no such image.
        QueryError: The vector is none of this collection.
    """
    if source.example.id is not None:
        return Part(engine.vector_of(active, source.example.id), "image")
    numbers = np.array(source.example.vector, dtype=np.float64)
    largest = float(np.abs(numbers).max(initial=0))
    if 0 < largest < math.inf:
        # Only the direction counts, and float32 may not hold the numbers.
        numbers /= largest
    try:
        return Part(unit_query(numbers.astype(np.float32), active.dim), None)
    except QueryError as error:
        raise QueryError(str(error), field=f"{source.field}.vector") from None


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
    loaded, lost = await services.encoders.of(active), ""
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
    """Say of the decoding of a stored image that it is damaged, or that a field asks for too much.

    Raises:
        RequestError: It takes more memory or work than a picture may.
        StoreError: The file cannot be decoded.
    """
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


def region_part(grid: RegionGrid, box: Box, field: str) -> Part:
    """Return the vector of a part of a picture.

    Raises:
        QueryError: The encoder sees nothing of the part.
    """
    vector = grid.pool(box)
    if vector is None:
        seen = grid.area
        raise QueryError(
            f"The model sees of this picture only x from {seen.x:.2f} to {seen.x + seen.width:.2f} and y "
            f"from {seen.y:.2f} to {seen.y + seen.height:.2f}: draw the box there.",
            field=field,
        )
    # Vectors of parts lie elsewhere than those of whole images.
    return Part(vector, None)


def with_details(
    engine: SearchEngine,
    collection: str,
    active: ActiveGeneration | None,
    page: SearchPage,
    query: SearchQuery,
) -> Found:
    """Load the lazily computed parts of a page that a query asks for, and the details of its hits."""
    # In a thread: with thousands of hits before, or blades, it takes milliseconds.
    _ = page.z_scores, query.asks_for_cursor and page.next_cursor
    return page, read_details(engine.home.catalogue, active, collection, page.hits, query.parts)


async def make_batch(
    services: Services, active: ActiveGeneration, queries: Sequence[SearchQuery]
) -> list[tuple[QuerySources, list[MadePart]] | RecoquestError]:
    """Make the parts of each search of a batch; an error of one search is in its place.

    Raises:
        RecoquestError: None of them can be answered, for a reason that is not in one search.
    """
    make = PartMaker(services, active).in_turn()

    async def make_one(query: SearchQuery) -> tuple[QuerySources, list[MadePart]] | RecoquestError:
        try:
            query.check()
            sources = QuerySources.of(query)
        except SEARCH_ERRORS as error:
            return error
        try:
            return sources, await side_by_side([make(source) for source in sources.all])
        except RecoquestError as error:
            if kind_of(error).status in _OF_ONE:
                return error
            raise

    return await side_by_side([make_one(query) for query in queries])


def find_batch(
    engine: SearchEngine,
    active: ActiveGeneration,
    queries: Sequence[SearchQuery],
    made: Sequence[tuple[QuerySources, list[MadePart]] | RecoquestError],
) -> list[Found | RecoquestError]:
    """Answer the searches of a batch in few passes over the index; an error of one is in its place."""
    found: dict[int, SearchPage | RecoquestError] = {}
    entries: dict[int, BatchEntry] = {}
    for place, one in enumerate(made):
        if isinstance(one, RecoquestError):
            found[place] = one
            continue
        sources, parts = one
        try:
            if parts:
                entries[place] = sources.entry(engine, active, [part.part for part in parts])
            else:
                found[place] = engine.browse(active.collection, sources.request)
        except SEARCH_ERRORS as error:
            found[place] = error
    found.update(zip(entries, engine.search_batch(active, list(entries.values())), strict=True))
    pages = [found[place] for place in range(len(queries))]
    return [
        with_details(engine, active.collection, active, page, query) if isinstance(page, SearchPage) else page
        for page, query in zip(pages, queries, strict=True)
    ]


def record_searches(
    settings: Settings,
    catalogue: Catalogue,
    collection: str,
    found: Sequence[tuple[SearchQuery, SearchResponse]],
) -> None:
    """Write searches of a command, with the hits of their pages, to the audit trail, if there is one.

    Raises:
        CatalogueError: The catalogue cannot be written to.
        DiskFullError: The disk has no space left.
        HomeError: The key in the home folder cannot be used.
    """
    if not settings.audit:
        return
    actor = command_actor()
    events = [
        Event(
            action="search",
            actor=actor,
            collection=collection,
            objects=list(dict.fromkeys(hit["id"] for hit in page.hits)),
            query=query_parts(query),
            model=None if page.served_by is None else page.served_by.digest,
            generation=None if page.served_by is None else page.served_by.generation,
            details={"operation": "search", "target": query.target, "limit": query.limit},
        )
        for query, page in found
    ]
    open_trail(settings, catalogue).append(events)


async def note_queries(
    request: Request,
    services: Services,
    active: ActiveGeneration | None,
    every: Sequence[SentSearch],
    objects: Iterable[str],
    **details: Detail,
) -> None:
    """Note the queries of a request, and the images that it shows or compares with them, by their ids.

    `active` is the generation that was searched; None for a list of a collection without one.
    """
    parts: dict[str, list[str]] = {}
    for sent in every:
        files = (*sent.images, *sent.unlike_images)
        digests = await services.threads.read(_digests, files) if files else []
        for name, texts in query_parts(sent.query, digests).items():
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


def _digests(files: Sequence[bytes]) -> list[str]:
    return [hashlib.sha256(file).hexdigest() for file in files]


def query_parts(query: SearchQuery, files: Sequence[str] = ()) -> dict[str, list[str]]:
    """Return the parts of a query: texts, examples by their ids, files by their digests, and the filter."""
    parts = {
        "text": [] if query.text is None else [query.text],
        "keywords": [] if query.keywords is None else [query.keywords],
        "like": [*ids_of(query.like)],
        "unlike": [*ids_of(query.unlike)],
        "like_text": [example.text for example in query.like if example.text is not None],
        "unlike_text": [example.text for example in query.unlike if example.text is not None],
        "file": list(files),
        "box": [f"{place}: {box.model_dump_json()}" for place, box in query.boxes.items()],
        **filter_parts(query.filter),
    }
    return {name: texts for name, texts in parts.items() if texts}
