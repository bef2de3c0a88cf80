"""The vectors of searches and the events in the audit trail, as the service makes them."""

import asyncio
import math
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from fastapi import Request

from app.audit.requests import Noted, note
from app.edge.problems import kind_of
from app.encoding.pool import LoadedEncoder
from app.search.query import Found, ImageFile, MadePart, Search, Source
from app.search.read_search import invalid
from app.search.schemas import QueryBox, Truncation
from app.services import Services
from index.audit.event import Detail
from index.catalogue.images import StoredImage
from index.engine import SearchEngine
from index.errors import SEARCH_ERRORS, QueryError, StoreError
from index.search.request import BatchEntry, Part, unit_query
from index.search.results import ActiveGeneration, SearchPage
from training.common.errors import ImageError, ImageTooLargeError, NoRegionsError, RecoquestError
from training.models.inputs.regions import Box, RegionGrid, grid_of

# Errors of one search of a batch: every other error is of all of them.
_OF_ONE: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)

_Result = TypeVar("_Result")


class PartMaker:
    """Makes the vectors of queries' parts by one generation's encoder.

    It makes few at once, so that the encoder's queue has room for others.
    """

    def __init__(self, services: Services, active: ActiveGeneration) -> None:
        self._services = services
        self._active = active
        self._places = asyncio.Semaphore(max(1, services.settings.encode_queue_size // 2))

    async def make_all(self, sources: Sequence[Source]) -> list[MadePart]:
        """Make the parts of all sources side by side."""
        return await side_by_side([self._make(source) for source in sources])

    async def _make(self, source: Source) -> MadePart:
        services, active = self._services, self._active
        async with self._places:
            if source.text is not None:
                loaded = await services.encoders.of(active)
                encoded = await loaded.queue.encode_text(source.text)
                part = Part(encoded.vector, "text", source.text)
                return MadePart(part, Truncation.of(source.field, encoded.truncation), encoded.tokens)
            if source.file is not None:
                return MadePart(await self._of_file(source.file, source))
            if source.image_id is not None and source.box is not None:
                _, grid = await stored_regions(services, active, source.image_id)
                return MadePart(region_part(grid, source.box, source.field))
            return MadePart(await services.threads.read(stored_part, services.engine, active, source))

    async def _of_file(self, file: ImageFile, source: Source) -> Part:
        services = self._services
        loaded = await services.encoders.of(self._active)
        with file_named(file.name):
            if source.box is not None:
                grid = await _embed_regions(services, loaded, file.content)
                return region_part(grid, source.box, source.field)
            decoded = await services.images.decode_query(file.content, loaded.encoder.image_config)
        return Part((await loaded.queue.encode_image(decoded.pixels)).vector, "image")


@contextmanager
def file_named(name: str) -> Iterator[None]:
    """Name an image file in what is said of it; the only one of a request has no name."""
    try:
        yield
    except ImageError as error:
        raise type(error)(f"{name}: {error}" if name else str(error)) from error


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


def stored_part(engine: SearchEngine, active: ActiveGeneration, source: Source) -> Part:
    """Return the vector of a stored image, or the given vector at length one.

    Raises:
        UnknownImageError: The collection has no such image.
        QueryError: The vector is none of this collection.
    """
    if source.image_id is not None:
        return Part(engine.vector_of(active, source.image_id), "image")
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
    # Vectors of parts lie elsewhere than those of whole images.
    return Part(vector, None)


async def make_batch(
    services: Services, active: ActiveGeneration, searches: Sequence[Search]
) -> list[list[MadePart] | RecoquestError]:
    """Make the parts of each search of a batch; an error of one search is in its place.

    Raises:
        RecoquestError: None of them can be answered, for a reason that is not in one search.
    """
    maker = PartMaker(services, active)

    async def make(search: Search) -> list[MadePart] | RecoquestError:
        try:
            search.query.check()
            _ = search.request
            return await maker.make_all(search.sources)
        except RecoquestError as error:
            if kind_of(error).status in _OF_ONE:
                return error
            raise

    return await side_by_side([make(search) for search in searches])


def find_batch(
    engine: SearchEngine,
    active: ActiveGeneration,
    searches: Sequence[Search],
    made: Sequence[list[MadePart] | RecoquestError],
) -> list[Found | RecoquestError]:
    """Answer the searches of a batch in few passes over the index; an error of one is in its place."""

    def begin(search: Search, parts: list[MadePart] | RecoquestError) -> BatchEntry | Found | RecoquestError:
        if isinstance(parts, RecoquestError):
            return parts
        try:
            if parts:
                return search.entry(engine, active, parts)
            return search.find(engine, active.collection, active, parts)
        except SEARCH_ERRORS as error:
            return error

    begun = [begin(search, parts) for search, parts in zip(searches, made, strict=True)]
    pages = iter(engine.search_batch(active, [one for one in begun if isinstance(one, BatchEntry)]))
    found: list[Found | RecoquestError] = []
    for search, parts, one in zip(searches, made, begun, strict=True):
        page = next(pages) if isinstance(one, BatchEntry) else one
        if isinstance(page, SearchPage):
            assert not isinstance(parts, RecoquestError)
            found.append(search.found(engine, active.collection, active, parts, page))
        else:
            found.append(page)
    return found


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
    parts: dict[str, list[str]] = {}
    for search in every:
        if search.images or search.unlike_images:
            # Of large files it takes milliseconds.
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
