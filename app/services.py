"""Services of the routes, made at the start, reached through `Depends`."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Concatenate, ParamSpec, TypeVar

from fastapi import Depends, Request
from sqlalchemy.orm import Session

from app.concurrency.threads import Threads
from app.decoding.images import ImageDecoders
from app.edge.observability.metrics import Metrics
from app.encoding.pool import Encoders
from app.health.readiness import Readiness
from app.settings import Settings
from index.engine import SearchEngine

P = ParamSpec("P")
Result = TypeVar("Result")


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

    async def query(
        self, work: Callable[Concatenate[Session, P], Result], *args: P.args, **kwargs: P.kwargs
    ) -> Result:
        """Call what reads the catalogue with a session, in a thread for reads."""

        def read() -> Result:
            with self.engine.home.catalogue.read() as session:
                return work(session, *args, **kwargs)

        return await self.threads.read(read)


async def get_services(request: Request) -> Services:
    """The services of the running application; async, so that no thread has to be found for it."""
    services = request.app.state.services
    assert isinstance(services, Services)
    return services


InjectedServices = Annotated[Services, Depends(get_services)]
