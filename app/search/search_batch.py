"""Many searches of one request: texts in few passes of the encoder, vectors in few passes over the index."""

import json
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import Request
from pydantic import Field

from app.concurrency import unless_disconnected
from app.edge.problems import Problem, answer_recoquest_error, kind_of
from app.edge.request_context import milliseconds_since_arrival
from app.edge.schemas import Answer
from app.search.audit import note_queries, shown
from app.search.query_sources import QuerySources
from app.search.schemas.page import SearchResponse, TookMs, page_from
from app.search.schemas.query import SearchQuery
from app.search.search import MadePart, PartMaker, side_by_side, told_of
from app.services import Services
from index.engine import SearchEngine
from index.errors import SEARCH_ERRORS
from index.search.request import BatchEntry
from index.search.results import ActiveGeneration, HitDetails, SearchPage
from training.common.errors import RecoquestError

# Errors of one search: every other error is of all of them.
_OF_ONE: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)

_Found = tuple[SearchPage, list[HitDetails]]


class BatchResult(Answer):
    """Answer to one search of a batch: a page, or the problem that it would have had alone."""

    page: SearchResponse | None
    problem: Problem | None


class BatchResponse(Answer):
    """Answers to the searches of a batch, in their order."""

    results: Annotated[list[BatchResult], Field(description="The status is 207 if one has a problem.")]
    took_ms: TookMs


async def answer_batch(
    request: Request, services: Services, collection: str, queries: Sequence[SearchQuery]
) -> BatchResponse:
    """Answer searches together, each as if it had been sent alone.

    Raises:
        RecoquestError: None of them can be answered, for a reason that is not in one search.
    """
    engine = services.engine
    active = await services.threads.read(engine.active, collection)
    started = time.perf_counter()
    sources = [_sources(query) for query in queries]
    made = await unless_disconnected(request, _all_parts(services, active, sources))
    encoded = time.perf_counter()
    found = await services.threads.read(_find_all, engine, active, queries, sources, made)
    searched = time.perf_counter()
    answered = [
        (query, one[0])
        for query, one in zip(queries, found, strict=True)
        if not isinstance(one, RecoquestError)
    ]
    note_queries(
        request,
        active,
        [query for query, _ in answered],
        [image for _, page in answered for image in shown(page)],
        searches=len(answered),
    )
    encode, search = 1000 * (encoded - started), 1000 * (searched - encoded)
    for _ in queries:
        services.metrics.searched((searched - encoded) / len(queries))
    # Every search gets an equal share of the time of all.
    shares = [round(part / len(queries), 3) for part in (encode, search, encode + search)]
    share = TookMs(encode=shares[0], search=shares[1], total=shares[2])
    prefix, results = request.scope.get("root_path", ""), []
    for query, parts, one in zip(queries, made, found, strict=True):
        if isinstance(one, RecoquestError):
            results.append(BatchResult.model_construct(page=None, problem=await _problem(request, one)))
            continue
        assert not isinstance(parts, RecoquestError)
        page = page_from(
            one[0],
            active,
            query,
            took_ms=share,
            truncations=[part.truncation for part in parts if part.truncation is not None],
            prefix=prefix,
            details=one[1],
        )
        results.append(BatchResult.model_construct(page=page, problem=None))
    total = round(milliseconds_since_arrival(request.scope), 3)
    took = TookMs(encode=round(encode, 3), search=round(search, 3), total=total)
    return BatchResponse.model_construct(results=results, took_ms=took)


def _sources(query: SearchQuery) -> QuerySources | RecoquestError:
    try:
        query.check()
        return QuerySources.of(query, (), ())
    except SEARCH_ERRORS as error:
        return error


async def _all_parts(
    services: Services, active: ActiveGeneration, every: Sequence[QuerySources | RecoquestError]
) -> list[list[MadePart] | RecoquestError]:
    make = PartMaker(services, active).in_turn()

    async def make_all(sources: QuerySources | RecoquestError) -> list[MadePart] | RecoquestError:
        if isinstance(sources, RecoquestError):
            return sources
        try:
            return await side_by_side([make(source) for source in sources.all])
        except RecoquestError as error:
            return _of_one(error)

    return await side_by_side([make_all(sources) for sources in every])


def _of_one(error: RecoquestError) -> RecoquestError:
    """Return the error of one search, and raise one that is of all."""
    if kind_of(error).status in _OF_ONE:
        return error
    raise error


def _find_all(
    engine: SearchEngine,
    active: ActiveGeneration,
    queries: Sequence[SearchQuery],
    every: Sequence[QuerySources | RecoquestError],
    made: Sequence[list[MadePart] | RecoquestError],
) -> list[_Found | RecoquestError]:
    found: dict[int, SearchPage | RecoquestError] = {}
    entries: dict[int, BatchEntry] = {}
    for place, (sources, parts) in enumerate(zip(every, made, strict=True)):
        if isinstance(parts, RecoquestError):
            found[place] = parts
            continue
        # A search without sources has no parts.
        assert not isinstance(sources, RecoquestError)
        try:
            if sources.all:
                entries[place] = sources.entry(engine, active, [made.part for made in parts])
            else:
                found[place] = engine.browse(active.collection, sources.request)
        except SEARCH_ERRORS as error:
            found[place] = error
    found.update(zip(entries, engine.search_batch(active, list(entries.values())), strict=True))
    answers: list[_Found | RecoquestError] = []
    for place, query in enumerate(queries):
        page = found[place]
        if isinstance(page, SearchPage):
            answers.append((page, told_of(engine, active.collection, active, page, query)))
        else:
            answers.append(page)
    return answers


async def _problem(request: Request, error: RecoquestError) -> Problem:
    answer = await answer_recoquest_error(request, error)
    return Problem.model_validate(json.loads(bytes(answer.body)))
