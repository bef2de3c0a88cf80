"""From a search as it was sent to the page of hits, with its times."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fastapi import Request

from app.edge.http.disconnect import unless_disconnected
from app.edge.http.request_context import milliseconds_since_arrival
from app.encoding.pool import LoadedEncoder
from app.search.audit import note_queries, shown
from app.search.query_sources import (
    ImageFile,
    QuerySources,
    Source,
    StoredSource,
    TextSource,
    naming_failures,
    region_part,
    stored_part,
)
from app.search.read_search import SentSearch
from app.search.schemas.page import SearchResponse, TookMs, Truncation, page_from
from app.search.schemas.query import SearchQuery
from app.services import Services
from index.engine import SearchEngine
from index.errors import NoActiveGenerationError, StoreError
from index.search.request import Part
from index.search.results import ActiveGeneration, HitDetails, HitPart, SearchPage, StoredImage, read_details
from training.common.errors import ImageError, NoRegionsError
from training.models.inputs.regions import RegionGrid, grid_of

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class MadePart:
    """A part of the query, how its text was cut, and the number of its tokens."""

    part: Part
    truncation: Truncation | None = None
    tokens: int = 0


async def answer_search(
    request: Request, services: Services, collection: str, sent: SentSearch
) -> SearchResponse:
    """Make the query vector, search with it, and make the page of hits."""
    query, engine = sent.query, services.engine
    sources = sources_of(sent)
    # Taken before anything is encoded, so that query and collection are of one model.
    active = await services.threads.read(_active, engine, collection, sources, query.parts)
    started = time.perf_counter()
    made: list[MadePart] = []
    if active is not None:
        maker = PartMaker(services, active)
        made = await unless_disconnected(
            request, side_by_side([maker.make(source) for source in sources.all])
        )
    encoded = time.perf_counter()
    page, details = await services.threads.read(
        _find, engine, collection, active, sources, [one.part for one in made], query
    )
    seconds = time.perf_counter() - encoded
    services.metrics.searched(seconds)
    digests = await digests_of(services, sent)
    note_queries(
        request,
        active,
        [query],
        shown(page),
        digests,
        target=query.target,
        limit=query.limit,
        later_page=isinstance(query.cursor, str),
    )
    took = TookMs(
        encode=round((encoded - started) * 1000, 3),
        search=round(seconds * 1000, 3),
        total=round(milliseconds_since_arrival(request.scope), 3),
    )
    return page_from(
        page,
        active or collection,
        query,
        took_ms=took,
        truncations=[one.truncation for one in made if one.truncation is not None],
        prefix=request.scope.get("root_path", ""),
        details=details,
    )


def _active(
    engine: SearchEngine, collection: str, sources: QuerySources, parts: Sequence[HitPart]
) -> ActiveGeneration | None:
    """Return the active generation; None where there is none and a list needs none."""
    try:
        return engine.active(collection)
    except NoActiveGenerationError:
        if sources.all or "vector" in parts:
            raise
        return None


def told_of(
    engine: SearchEngine,
    collection: str,
    active: ActiveGeneration | None,
    page: SearchPage,
    query: SearchQuery,
) -> list[HitDetails]:
    """Load the lazily computed parts of a page that a query asks for, and the details of its hits."""
    # In a thread: with thousands of hits before, or blades, it takes milliseconds.
    _ = page.z_scores, query.asks_for_cursor and page.next_cursor
    return read_details(engine.home.catalogue, active, collection, page.hits, query.parts)


def _find(
    engine: SearchEngine,
    collection: str,
    active: ActiveGeneration | None,
    sources: QuerySources,
    made: Sequence[Part],
    query: SearchQuery,
) -> tuple[SearchPage, list[HitDetails]]:
    if active is None:
        page = engine.browse(collection, sources.request)
    else:
        page = sources.find(engine, active, made)
    return page, told_of(engine, collection, active, page, query)


async def digests_of(services: Services, sent: SentSearch) -> list[str]:
    """Return the SHA-256 of the image files of a search, by which the audit trail names them."""
    files = (*sent.images, *sent.unlike_images)

    def digests() -> list[str]:
        return [hashlib.sha256(file).hexdigest() for file in files]

    return await services.threads.read(digests) if files else []


def sources_of(sent: SentSearch) -> QuerySources:
    """Return the sources of a search, its image files among them."""
    unlike = _named("unlike_image", sent.unlike_images)
    return QuerySources.of(sent.query, _named("image", sent.images), unlike)


def _named(field: str, files: Sequence[bytes]) -> list[ImageFile]:
    """Name the image files of a form's field where there are several."""
    several = len(files) > 1
    return [
        ImageFile(f"File {number} of `{field}`" if several else "", content)
        for number, content in enumerate(files, 1)
    ]


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
                grid = await embed_regions(self.services, loaded, file.content)
                return MadePart(region_part(grid, file.box, file.field))
            prepared = await self.services.images.prepare(file.content, loaded.image_config)
        except ImageError as error:
            raise type(error)(f"{file.name}: {error}" if file.name else str(error)) from error
        encoded = await loaded.queue.encode_image(prepared)
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


async def embed_regions(services: Services, loaded: LoadedEncoder, source: bytes | Path) -> RegionGrid:
    """Decode the file of a query, or that of a stored image, and embed its regions.

    Raises:
        NoRegionsError: The encoder has none.
        ImageError: The file cannot be decoded.
        EncodingError: Too many queries wait, it was not done in time, or the service ends.
    """
    if not loaded.encoder.regions:
        raise NoRegionsError
    decoded = await services.images.decode_query(source, loaded.image_config)
    regions = await loaded.queue.encode_regions(decoded.pixels)
    return grid_of(regions, decoded.picture, loaded.image_config.square)


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
                return image, await embed_regions(services, loaded, path)
        except StoreError:
            # The image may have been replaced or removed since.
            if image.sha256 == lost:
                raise
            lost = image.sha256
