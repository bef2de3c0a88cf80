"""From a query's vector to the page of hits, with its times."""

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import anyio
import numpy as np
from fastapi import Request
from numpy.typing import NDArray

from app.context import milliseconds_since_arrival
from app.encoding import Encoded
from app.schemas import SearchResponse, TookMs, Truncation, page_from
from app.state import Services
from index.filters import Filter
from index.request import SearchRequest
from index.results import ActiveGeneration, SearchPage


@dataclass(frozen=True, slots=True)
class Asked:
    """What a search asks for beside its query; the filter both as the engine takes it and as it came."""

    k: int
    filter: Filter | None = None
    filter_json: dict[str, Any] | None = None
    cursor: str | None = None
    exclude: tuple[str, ...] = ()


async def active_generation(services: Services, collection: str) -> ActiveGeneration:
    """The generation that answers; taken before the query is encoded, so that both are of one model."""
    return await anyio.to_thread.run_sync(services.engine.active, collection)


async def answer(
    request: Request,
    services: Services,
    active: ActiveGeneration,
    asked: Asked,
    encoded: Encoded,
    encode_ms: float,
) -> SearchResponse:
    """Search with a vector and make the page of hits."""
    started = time.perf_counter()
    page = await anyio.to_thread.run_sync(
        _search, services, active, encoded.vector, asked.k, asked.filter, asked.cursor, asked.exclude
    )
    seconds = time.perf_counter() - started
    services.metrics.searched(seconds)
    cut = encoded.truncation
    took = TookMs(
        encode=round(encode_ms, 3),
        search=round(seconds * 1000, 3),
        total=round(milliseconds_since_arrival(request.scope), 3),
    )
    return page_from(
        page,
        active,
        k=asked.k,
        filter=asked.filter_json,
        took_ms=took,
        truncation=None
        if cut is None
        else Truncation(tokens=cut.tokens, kept=cut.kept, searched_text=cut.searched_text),
        prefix=request.scope.get("root_path", ""),
    )


def _search(
    services: Services,
    active: ActiveGeneration,
    vector: NDArray[np.float32],
    k: int,
    condition: Filter | None,
    cursor: str | None,
    exclude: Collection[str],
) -> SearchPage:
    return services.engine.search(
        active, vector, SearchRequest(k=k, filter=condition, cursor=cursor, exclude=tuple(exclude))
    )
