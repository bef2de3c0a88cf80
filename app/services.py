"""Services of a running application, made at the start, for routes and for what is around them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Concatenate, ParamSpec, Protocol, TypeVar

from fastapi import Depends, Request
from sqlalchemy.orm import Session

from app.access.authentication import Authenticator
from app.audit.recorder import Recorder
from app.concurrency import Threads
from app.decoding.images import ImageDecoders
from app.edge.admission import Stages
from app.edge.metrics import Metrics
from app.edge.principal import Role
from app.edge.sharing import Sharing
from app.encoding.pool import Encoders
from app.health.readiness import Readiness
from app.settings import Settings
from index.engine import SearchEngine
from index.generations.names import CollectionNames

P = ParamSpec("P")
Result = TypeVar("Result")


class Archive(Protocol):
    """Reader of the image archive; the rest is in `app.radiology`, which an installation may lack."""

    async def close(self) -> None:
        """Close its connections."""


@dataclass(frozen=True, slots=True)
class Services:
    """Shared objects with the lifetime of the service.

    Attributes:
        names: Finds the collections behind aliases.
        recorder: Takes events for the audit trail; None if the settings disable it.
        role_of_job: Returns the role in a collection that is enough for a job, by the job's number.
        archive: Reads the image archive for viewers; None where the settings don't open it.
        stopping: Set when the service is to end; an answer without an end of its own ends then.
        sharing: What this process shares with others of the service.
    """

    settings: Settings
    engine: SearchEngine
    encoders: Encoders
    images: ImageDecoders
    readiness: Readiness
    metrics: Metrics
    threads: Threads
    stages: Stages
    authenticator: Authenticator
    names: CollectionNames
    recorder: Recorder | None
    role_of_job: Callable[[str], Awaitable[tuple[Role, str] | None]]
    stopping: asyncio.Event
    archive: Archive | None = None
    sharing: Sharing = field(default_factory=Sharing)

    async def read(
        self, work: Callable[Concatenate[Session, P], Result], *args: P.args, **kwargs: P.kwargs
    ) -> Result:
        """Call what reads the catalogue with a session of it, in a thread."""

        def read() -> Result:
            with self.engine.home.catalogue.read() as session:
                return work(session, *args, **kwargs)

        return await self.threads.read(read)

    async def write(
        self, work: Callable[Concatenate[Session, P], Result], *args: P.args, **kwargs: P.kwargs
    ) -> Result:
        """Call what writes to the catalogue in one transaction, in a thread."""

        def write() -> Result:
            with self.engine.home.catalogue.write() as session:
                return work(session, *args, **kwargs)

        return await self.threads.write(write)


def services_of(scope: Mapping[str, Any]) -> Services:
    """The services of the running application, by the scope of a request, or by the request."""
    services = scope["app"].state.services
    assert isinstance(services, Services)
    return services


async def _injected(request: Request) -> Services:
    # Async, so that no thread has to be found for it.
    return services_of(request)


InjectedServices = Annotated[Services, Depends(_injected)]
