"""From a search as it was sent to the page of hits, with its times."""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastapi import Request

from app.http.disconnect import unless_disconnected
from app.http.request_context import milliseconds_since_arrival
from app.operations.read_search import SentSearch
from app.operations.services import Services
from app.schemas.search_page import SearchResponse, TookMs, Truncation, page_from
from app.schemas.search_query import Example, given_vector
from index.engine import SearchEngine
from index.search.query_vector import Part, Parts
from index.search.request import SearchRequest
from index.search.results import ActiveGeneration, SearchPage
from training.errors import ImageError


@dataclass(frozen=True, slots=True)
class _Made:
    """A part of the query, and how its text was cut."""

    part: Part
    truncation: Truncation | None = None


async def answer_search(
    request: Request, services: Services, collection: str, sent: SentSearch
) -> SearchResponse:
    """Make the query vector, search with it, and make the page of hits."""
    query, engine = sent.query, services.engine
    plain = query.request()
    # Taken before anything is encoded, so that query and collection are of one model.
    active = await services.threads.read(engine.active, collection)
    started = time.perf_counter()
    parts, truncations = await _make_parts(request, services, active, sent)
    encoded = time.perf_counter()
    asked = replace(plain, kind=parts.kind)
    if parts.single is None:
        asked = replace(asked, parts=query.parts(sent.images, sent.unlike_images))
    page = await services.threads.read(_find, engine, active, parts, asked)
    seconds = time.perf_counter() - encoded
    services.metrics.searched(seconds)
    took = TookMs(
        encode=round((encoded - started) * 1000, 3),
        search=round(seconds * 1000, 3),
        total=round(milliseconds_since_arrival(request.scope), 3),
    )
    return page_from(
        page,
        active,
        k=query.k,
        filter=query.filter,
        took_ms=took,
        truncations=truncations,
        prefix=request.scope.get("root_path", ""),
    )


def _find(engine: SearchEngine, active: ActiveGeneration, parts: Parts, asked: SearchRequest) -> SearchPage:
    page = engine.search(active, engine.compose(active, parts, asked.target), asked, parts.text)
    # Made in this thread: with thousands of hits before, or blades, it takes milliseconds.
    _ = page.next_cursor, page.unusual
    return page


async def _make_parts(
    request: Request, services: Services, active: ActiveGeneration, sent: SentSearch
) -> tuple[Parts, list[Truncation]]:
    """Make the vectors of everything that was sent, together."""
    maker = _PartMaker(services, active)
    query = sent.query
    asked = [] if query.text is None else [maker.of_text(query.text, "text")]
    asked += maker.of_images(sent.images, "image")
    liked = [maker.of_example(example, f"like.{place}") for place, example in enumerate(query.like)]
    disliked = [maker.of_example(example, f"unlike.{place}") for place, example in enumerate(query.unlike)]
    disliked += maker.of_images(sent.unlike_images, "unlike_image")
    made = await unless_disconnected(request, _all((*asked, *liked, *disliked)))
    found = [one.part for one in made]
    first, last = len(asked), len(asked) + len(liked)
    return (
        Parts(found[:first], found[first:last], found[last:]),
        [one.truncation for one in made if one.truncation is not None],
    )


@dataclass(frozen=True, slots=True)
class _PartMaker:
    """Makes the vectors of a query's parts by one generation's encoder."""

    services: Services
    active: ActiveGeneration

    async def of_text(self, text: str, field: str) -> _Made:
        """Encode a text; `field` is where it stands in the query."""
        loaded = await self.services.encoders.of(self.active)
        encoded = await loaded.queue.encode_text(text)
        cut = encoded.truncation
        judged = text if loaded.encoder.knows_only_its_texts else None
        return _Made(Part(encoded.vector, "text", judged), None if cut is None else Truncation.of(field, cut))

    def of_images(self, files: Sequence[bytes], field: str) -> list[Coroutine[Any, Any, _Made]]:
        """Encode the image files of a form's field."""
        several = len(files) > 1
        return [
            self.of_image(content, f"File {number} of `{field}`" if several else "")
            for number, content in enumerate(files, 1)
        ]

    async def of_image(self, content: bytes, name: str) -> _Made:
        """Encode an image file; `name` tells it from others, and is empty for the only one."""
        loaded = await self.services.encoders.of(self.active)
        try:
            prepared = await self.services.images.prepare(content, loaded.image_config)
        except ImageError as error:
            raise type(error)(f"{name}: {error}" if name else str(error)) from error
        encoded = await loaded.queue.encode_image(prepared)
        return _Made(Part(encoded.vector, "image"))

    async def of_example(self, example: Example, field: str) -> _Made:
        """Encode an example, or look its vector up."""
        if example.text is not None:
            return await self.of_text(example.text, f"{field}.text")
        if example.id is not None:
            engine = self.services.engine
            vector = await self.services.threads.read(engine.vector_of, self.active, example.id)
            return _Made(Part(vector, "image"))
        return _Made(Part(given_vector(example, self.active.dim, field), None))


async def _all(works: Sequence[Coroutine[Any, Any, _Made]]) -> list[_Made]:
    """Await all works side by side; the first error ends the others."""
    if len(works) == 1:
        return [await works[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]
