"""Put the service together: settings in, an ASGI application out."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, closing
from importlib.metadata import version
from typing import Any, Final, cast

import structlog
from fastapi import APIRouter, FastAPI
from fastapi.staticfiles import StaticFiles
from opentelemetry.trace import Tracer, TracerProvider
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from app import embeddings, feedback, idempotency
from app import page_routes as pages
from app.access import routes as sessions
from app.access.authentication import Authenticator, BruteForceLimiter
from app.access.hosts import AllowedHosts, SecurityHeaders, SiteCheck
from app.access.sessions import SessionSigner
from app.audit import routes as audit
from app.audit.recorder import Recorder
from app.audit.requests import AuditTrail
from app.audit.trail import open_trail
from app.cases import routes as case_lists
from app.collections import routes as collections
from app.concurrency import Threads
from app.decoding.images import ImageDecoders
from app.edge.admission import Admission, Stages
from app.edge.metrics import Metrics
from app.edge.operations import OPERATION, operation
from app.edge.problems import install_problems
from app.edge.protocol import ConnectionLimits, Connections
from app.edge.request_context import REQUEST_ID_HEADER, RequestContext, open_provider
from app.edge.sharing import Sharing
from app.encoding.pool import EncoderLoader, Encoders, LoadEncoder
from app.encoding.queue import QueueLimits
from app.engine import open_engine, service_patience
from app.generations import routes as generations
from app.health import routes as health
from app.health.readiness import DEGRADED, Readiness
from app.images import routes as images
from app.jobs import routes as jobs
from app.jobs.queue import role_of_job
from app.openapi import DESCRIPTION, TAGS, describe
from app.refresh import follow, publish_figures, refresh_views
from app.search import routes as search
from app.services import Archive, Services
from app.settings import Settings
from index.audit.dead_letters import dead_letters_of, keep_dead_letter
from index.generations.names import CollectionNames
from index.home import Home
from index.writes.deletion import collect_garbage
from training.common.errors import RecoquestError

# Less than the server's limit for the shutdown of the application.
_FINISH_S: Final = 2.0
# A process that is not ready after so long takes requests as it is.
_JOIN_S: Final = 120.0
_JOIN_LOOK_S: Final = 0.2

_log = structlog.stdlib.get_logger(__name__)


class RecoquestService(FastAPI):
    """The application, with problem documents in its OpenAPI description.

    Attributes:
        root_path: Path that a proxy serves the application below and removes from requests.
        connections: Open connections, for the server.
        stages: Admission of requests.
        stopping: Set when the service is to end.
    """

    connections: Connections
    stages: Stages
    stopping: asyncio.Event

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; the middleware sees requests alone, and not the start and the end."""
        if scope["type"] != "http":
            await self.router({**scope, "app": self}, receive, send)
            return
        scope[OPERATION] = self.stages.operations.match(scope)
        # Routes, folders of files and links in answers need the path again.
        scope["path"] = self.root_path + scope["path"]
        await super().__call__(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """The description, made once."""
        if self.openapi_schema is None:
            self.openapi_schema = describe(super().openapi())
        return self.openapi_schema


def create_app(
    settings: Settings | None = None,
    *,
    load: LoadEncoder | None = None,
    give_up: Callable[[], object] = lambda: None,
    tracer_provider: TracerProvider | None = None,
    sharing: Sharing | None = None,
) -> RecoquestService:
    """Build the application; nothing is opened before it starts.

    Args:
        settings: Settings; None: those of the environment.
        load: Opens a bundle; None loads it onto the device of the settings.
        give_up: Ends the process, once an encoder in one of its threads hangs for good.
        tracer_provider: Takes the traces of requests; None: the collector of the settings does, if any.
        sharing: What the processes of the service share; None: there is one process.

    Raises:
        TelemetryError: The settings name a collector, and the extra `telemetry` is not installed.
    """
    settings, sharing = settings or Settings(), sharing or Sharing()
    metrics = Metrics(sharing)
    guesses = BruteForceLimiter(metrics.key_refused, sharing=sharing)
    radiology_routers, archive = _radiology(settings)
    application = RecoquestService(
        title="recoquest",
        summary="Search over images by what they show.",
        description=DESCRIPTION,
        version=version("recoquest"),
        openapi_tags=TAGS,
        # The framework's own traces contain addresses and bodies; `app.edge.request_context` leaves them out.
        telemetry={"tracing": False, "metrics": False, "logs": False},
        docs_url=None,
        redoc_url=None,
        lifespan=lambda application: _run(
            application, settings, metrics, guesses, load, give_up, sharing, archive
        ),
    )
    application.root_path = settings.root_path
    application.stopping = asyncio.Event()
    application.connections = Connections(
        ConnectionLimits(settings.max_connections), metrics.connection_ended, sharing.count()
    )
    application.stages = Stages(settings, metrics.refused, sharing)
    metrics.connections.set_function(application.connections.__len__)
    install_problems(application)
    routers = (
        search.searching,
        search.router,
        embeddings.router,
        feedback.router,
        case_lists.router,
        images.router,
        *radiology_routers,
        images.writes,
        search.browse_router,
        collections.router,
        collections.writes,
        generations.router,
        generations.models,
        jobs.router,
        audit.router,
        sessions.router,
        health.router,
        pages.router,
    )
    # FastAPI itself adds the route of the OpenAPI document.
    operation(None, "read")(cast(Route, application.router.routes[0]).endpoint)
    for router in routers:
        # Routers that are included match every request twice, and make each of their routes a second time.
        application.router.routes += router.routes
    application.stages.operations.learn(application.router.routes)
    application.mount("/docs/assets", StaticFiles(directory=pages.swagger_ui_folder()), name="swagger-ui")
    application.mount("/page", StaticFiles(directory=pages.PAGE_FOLDER, check_dir=False), name="page")
    if tracer_provider is None and settings.traces_url is not None:
        tracer_provider = open_provider(settings.traces_url)
    tracer = None if tracer_provider is None else tracer_provider.get_tracer("recoquest")
    _add_middleware(application, settings, metrics, tracer)
    return application


def _radiology(settings: Settings) -> tuple[Sequence[APIRouter], Archive | None]:
    """Return the routes of studies, archive and viewer, and what reads the archive.

    Where they are off, nothing is imported.
    """
    if not settings.radiology:
        return (), None
    from app.radiology.archive_proxy import archive_of
    from app.radiology.routes import ROUTERS

    return ROUTERS, archive_of(settings)


@asynccontextmanager
async def _run(
    application: RecoquestService,
    settings: Settings,
    metrics: Metrics,
    guesses: BruteForceLimiter,
    load: LoadEncoder | None,
    give_up: Callable[[], object],
    sharing: Sharing,
    archive: Archive | None,
) -> AsyncIterator[None]:
    _log.debug("settings", **settings.printable())
    # Closed also if the start fails, so that no process is left.
    with closing(ImageDecoders(settings, metrics)) as decoders, ExitStack() as opened:
        limits = QueueLimits(
            batch_size=settings.encode_batch_size,
            batch_wait_s=settings.encode_batch_wait_ms / 1000,
            capacity=settings.encode_queue_size,
            deadline_s=settings.encode_deadline_s,
        )
        if load is None:
            # The fork server starts while the catalogue is opened.
            load = EncoderLoader(settings.device, settings.threads, limits.pass_limit_s, metrics.restarted)
            opened.callback(load.close)
        encoders = Encoders(load, limits, metrics, give_up=give_up)
        threads = Threads()
        metrics.decodes_waiting.set_function(lambda: decoders.pool.waiting)
        patience = service_patience(settings)
        is_main = None if sharing.processes == 1 else sharing.is_main
        engine = await threads.background(open_engine, settings, patience, decoders.thumbnail, is_main)
        catalogue = engine.home.catalogue
        if sharing.is_main():
            await threads.background(_tidy_up, engine.home)
        signer = await threads.background(SessionSigner.from_home, settings.home)
        metrics.queries_waiting.set_function(encoders.waiting)
        recorder = await threads.background(_open_recorder, settings, engine.home, metrics)
        application.state.services = services = Services(
            settings=settings,
            engine=engine,
            encoders=encoders,
            images=decoders,
            readiness=Readiness(settings, engine, encoders, threads),
            metrics=metrics,
            threads=threads,
            stages=application.stages,
            authenticator=Authenticator(settings, catalogue, threads, signer, guesses),
            names=CollectionNames(catalogue),
            recorder=recorder,
            role_of_job=lambda number: threads.read(role_of_job, catalogue, number),
            stopping=application.stopping,
            archive=archive,
            sharing=sharing,
        )
        following = [asyncio.create_task(follow(services)), asyncio.create_task(refresh_views(services))]
        if sharing.processes > 1:
            following.append(asyncio.create_task(publish_figures(services)))
        try:
            await _until_useful(services)
            sharing.serving.own = 1
            yield
        finally:
            for task in following:
                task.cancel()
            await asyncio.to_thread(decoders.close)
            await encoders.close()
            if archive is not None:
                await archive.close()
            if recorder is not None:
                await asyncio.to_thread(recorder.close)
            # Work in a thread needs the catalogue; one that is stuck ends with the process.
            if await threads.finish(_FINISH_S):
                await threads.background(engine.close)
            else:
                _log.warning("work is left at the stop")
            threads.close()


async def _until_useful(services: Services) -> None:
    """Wait until this process is ready, if another one answers in the meantime."""
    end = time.monotonic() + _JOIN_S
    while not services.sharing.is_main() and time.monotonic() < end:
        results = (await services.readiness.report()).values()
        if all(result in ("ok", DEGRADED) for result in results):
            return
        await asyncio.sleep(_JOIN_LOOK_S)


def _open_recorder(settings: Settings, home: Home, metrics: Metrics) -> Recorder | None:
    if not settings.audit:
        return None
    letters, count = dead_letters_of(settings.home), metrics.audit_letters.inc
    recorder = Recorder(
        open_trail(settings, home.catalogue),
        metrics.audited.inc,
        metrics.audit_failures.inc,
        lambda *refused: keep_dead_letter(letters, count, *refused),
    )
    metrics.audit_waiting.set_function(recorder.__len__)
    return recorder


def _tidy_up(home: Home) -> None:
    """Remove leftovers of killed processes; a full disk doesn't prevent searches."""
    try:
        collect_garbage(home)
    except RecoquestError as error:
        _log.warning("garbage is not removed", error=type(error).__name__)


def _add_middleware(
    application: RecoquestService, settings: Settings, metrics: Metrics, tracer: Tracer | None
) -> None:
    """Wrap the application, from the inside out."""
    application.add_middleware(Admission, stages=application.stages)
    if settings.cors_origins:
        application.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=[
                "Authorization",
                "Cache-Control",
                "Content-Type",
                "If-Match",
                "If-Modified-Since",
                "If-None-Match",
                "If-Range",
                "Prefer",
                "Range",
                "traceparent",
                "tracestate",
                REQUEST_ID_HEADER,
                idempotency.HEADER,
            ],
            expose_headers=[
                REQUEST_ID_HEADER,
                idempotency.REPLAYED,
                "Content-Range",
                "ETag",
                "Link",
                "Location",
                "Retry-After",
                "Server-Timing",
            ],
        )
    application.add_middleware(
        RequestContext,
        metrics=metrics,
        wrong_site=SiteCheck(AllowedHosts(settings.allowed_hosts, settings.host), settings.cors_origins),
        audit=AuditTrail(),
        add_headers=SecurityHeaders(settings.frame_ancestors, settings.cors_origins),
        origins=settings.cors_origins,
        tracer=tracer,
    )
