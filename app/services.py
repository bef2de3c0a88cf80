"""Services of the routes, made at the start, reached through `Depends`."""

import asyncio
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from app.concurrency.threads import Threads
from app.decoding.images import ImageDecoders
from app.edge.observability.metrics import Metrics
from app.encoding.pool import Encoders
from app.health.readiness import Readiness
from app.settings import Settings
from index.engine import SearchEngine


@dataclass(frozen=True, slots=True)
class Services:
    """Shared objects with the lifetime of the service.

    Attributes:
        stopping: Set when the service is to end; an answer without an end of its own ends then.
    """

    settings: Settings
    engine: SearchEngine
    encoders: Encoders
    images: ImageDecoders
    readiness: Readiness
    metrics: Metrics
    threads: Threads
    stopping: asyncio.Event


async def get_services(request: Request) -> Services:
    """The services of the running application; async, so that no thread has to be found for it."""
    services = request.app.state.services
    assert isinstance(services, Services)
    return services


InjectedServices = Annotated[Services, Depends(get_services)]
