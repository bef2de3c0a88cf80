"""Put the service together: settings in, an ASGI application out."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, closing
from functools import partial
from importlib.metadata import version
from typing import Any, Final

import structlog
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles
from opentelemetry.trace import Tracer, TracerProvider
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from app import idempotency
from app import page_routes as pages
from app.access import session_routes as sessions
from app.access import sign_in_routes as sign_in
from app.access.authentication import Authenticator
from app.access.hosts import AllowedHosts, SiteCheck
from app.access.security import SecurityHeaders
from app.access.sessions import SessionSigner
from app.audit import routes as audit
from app.audit.middleware import AuditTrail
from app.audit.recorder import Recorder
from app.audit.trail import open_trail
from app.cases import routes as case_lists
from app.collections import routes as collections
from app.concurrency.threads import Threads
from app.decoding.images import ImageDecoders
from app.edge.http.body_limit import BodyLimit
from app.edge.http.methods import Methods
from app.edge.http.problems import install_problems
from app.edge.http.ranges import Ranges
from app.edge.http.request_context import REQUEST_ID_HEADER, RequestContext
from app.edge.observability.metrics import Metrics
from app.edge.observability.tracing import open_provider, tracer_of
from app.edge.server.admission import Admission, Stages
from app.edge.server.connections import ConnectionLimits, Connections
from app.embeddings import routes as embeddings
from app.encoding import QueueLimits
from app.encoding.pool import EncoderLoader, Encoders, LoadEncoder
from app.engine import open_engine, service_patience
from app.feedback import routes as feedback
from app.generations import model_routes as models
from app.generations import routes as generations
from app.health import routes as health
from app.health.readiness import Readiness
from app.images import link_routes as links
from app.images import routes as images
from app.images import write_routes as writes
from app.jobs import routes as jobs
from app.jobs.queue import role_of_job
from app.openapi import DESCRIPTION, TAGS, describe
from app.refresh import follow, refresh_views
from app.search import browse_routes as browse
from app.search import routes as search
from app.services import Services
from app.settings import Settings
from index.audit.dead_letters import DeadLetters, dead_letters_of
from index.generations.names import CollectionNames
from index.home import Home
from index.writes.garbage import collect_garbage
from training.common.errors import RecoquestError

# Less than the server gives the whole end of the application.
_FINISH_S: Final = 2.0

_log = structlog.stdlib.get_logger(__name__)


class RecoquestService(FastAPI):
    """The application, with problem documents in its OpenAPI description.

    Attributes:
        root_path: Path that a proxy serves the application below and removes from requests.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; routes, folders of files and links in answers need the path again."""
        if scope["type"] == "http":
            scope["path"] = self.root_path + scope["path"]
        await super().__call__(scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        """The application inside its middleware, which sees requests alone: start and end pass it by."""
        inside = super().build_middleware_stack()

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            await (inside if scope["type"] == "http" else self.router)(scope, receive, send)

        return answer

    def openapi(self) -> dict[str, Any]:
        """The description, made once."""
        if self.openapi_schema is None:
            self.openapi_schema = describe(super().openapi())
        return self.openapi_schema


def create_app(
    settings: Settings | None = None,
    *,
    load: LoadEncoder | None = None,
    give_up: Callable[[], object] | None = None,
    tracer_provider: TracerProvider | None = None,
) -> FastAPI:
    """Build the application; nothing is opened before it starts.

    Args:
        settings: Settings; None: those of the environment.
        load: Opens a bundle; None loads it onto the device of the settings.
        give_up: Ends the process, once an encoder hangs for good; None: nothing does.
        tracer_provider: Takes the traces of requests; None: the collector of the settings does, if any.

    Raises:
        TelemetryError: The settings name a collector, and the extra `telemetry` is not installed.
    """
    settings = settings or Settings()
    metrics = Metrics()
    application = RecoquestService(
        title="recoquest",
        summary="Search over images by what they show.",
        description=DESCRIPTION,
        version=version("recoquest"),
        openapi_tags=TAGS,
        # The framework's own traces tell addresses and bodies; `app.edge.observability.tracing` does not.
        telemetry={"tracing": False, "metrics": False, "logs": False},
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=_operation_id,
        lifespan=partial(_run, settings=settings, metrics=metrics, load=load, give_up=give_up),
    )
    application.root_path = settings.root_path
    application.state.stopping = asyncio.Event()
    application.state.connections = Connections(
        ConnectionLimits(settings.max_connections), metrics.connection_ended
    )
    application.state.stages = Stages(settings, metrics.refused)
    metrics.watch_connections(application.state.connections.__len__)
    install_problems(application)
    routers = (
        search.router,
        embeddings.router,
        feedback.router,
        case_lists.router,
        images.router,
        *_radiology(application, settings),
        links.router,
        writes.router,
        browse.router,
        collections.router,
        generations.router,
        models.router,
        jobs.router,
        audit.router,
        sessions.router,
        sign_in.router,
        health.router,
        pages.router,
    )
    for router in routers:
        application.include_router(router)
        application.state.stages.learn(route for route in router.routes if isinstance(route, APIRoute))
    application.mount("/docs/assets", StaticFiles(directory=pages.swagger_ui_folder()), name="swagger-ui")
    application.mount("/page", StaticFiles(directory=pages.PAGE_FOLDER, check_dir=False), name="page")
    if tracer_provider is None and settings.traces_url is not None:
        tracer_provider = open_provider(settings.traces_url)
    _add_middleware(application, settings, metrics, tracer_of(tracer_provider))
    return application


def _radiology(application: FastAPI, settings: Settings) -> Sequence[APIRouter]:
    """Return the routes of studies, the archive and the viewer; where they are off, nothing is imported."""
    application.state.archive = None
    if not settings.radiology:
        return ()
    from app.radiology.archive_proxy import archive_of
    from app.radiology.routes import ROUTERS

    application.state.archive = archive_of(settings)
    return ROUTERS


@asynccontextmanager
async def _run(
    application: FastAPI,
    *,
    settings: Settings,
    metrics: Metrics,
    load: LoadEncoder | None,
    give_up: Callable[[], object] | None,
) -> AsyncIterator[None]:
    _log.debug("settings", **settings.printable())
    # Closed also if the start fails, so that no process is left.
    with closing(ImageDecoders(settings, metrics)) as decoders, ExitStack() as opened:
        limits = _queue_limits(settings)
        if load is None:
            # The fork server starts while the catalogue is opened.
            load = EncoderLoader(settings.device, settings.threads, limits.pass_limit_s, metrics.restarted)
            opened.callback(load.close)
        if application.state.archive is not None:
            opened.callback(application.state.archive.close)
        encoders = Encoders(load, limits, metrics, threads=settings.threads, give_up=give_up)
        async with _services(application, settings, metrics, decoders, encoders):
            yield


def _queue_limits(settings: Settings) -> QueueLimits:
    return QueueLimits(
        batch_size=settings.encode_batch_size,
        batch_wait_s=settings.encode_batch_wait_ms / 1000,
        capacity=settings.encode_queue_size,
        deadline_s=settings.encode_deadline_s,
    )


@asynccontextmanager
async def _services(
    application: FastAPI,
    settings: Settings,
    metrics: Metrics,
    decoders: ImageDecoders,
    encoders: Encoders,
) -> AsyncIterator[None]:
    threads = Threads()
    metrics.watch_decoders(lambda: decoders.pool.waiting)
    patience = service_patience(settings)
    engine = await threads.background(open_engine, settings, patience, decoders.thumbnail)
    await threads.background(_tidy_up, engine.home)
    signer = await threads.background(SessionSigner.of, settings.home)
    application.state.authenticator = Authenticator(
        settings, engine.home.catalogue, threads, signer, metrics.key_refused
    )
    application.state.collection_behind = _aliases(threads, engine.home)
    application.state.role_of_job = partial(role_of_job, threads, engine.home.catalogue)
    metrics.watch_queues(encoders.waiting)
    readiness = Readiness(
        engine, encoders, threads, timeout_s=settings.readiness_timeout_s, cache_s=settings.readiness_cache_s
    )
    services = Services(
        settings,
        engine,
        encoders,
        decoders,
        readiness,
        metrics,
        threads,
        application.state.stopping,
    )
    application.state.services = services
    recorder = await threads.background(_open_recorder, settings, engine.home, metrics)
    application.state.recorder = recorder
    following = (asyncio.create_task(follow(services)), asyncio.create_task(refresh_views(services)))
    try:
        yield
    finally:
        for task in following:
            task.cancel()
        await asyncio.to_thread(decoders.close)
        await encoders.close()
        if recorder is not None:
            application.state.recorder = None
            await asyncio.to_thread(recorder.close)
        # Work in a thread needs the catalogue; one that is stuck ends with the process.
        if await threads.finish(_FINISH_S):
            await threads.background(engine.close)
        else:
            _log.warning("work is left at the stop")
        threads.close()


def _aliases(threads: Threads, home: Home) -> Callable[[str], Awaitable[str | None]]:
    """Return the function that finds the collection behind an alias."""
    names = CollectionNames(home.catalogue)

    async def behind(name: str) -> str | None:
        return await threads.read(names.behind, name)

    return behind


def _open_recorder(settings: Settings, home: Home, metrics: Metrics) -> Recorder | None:
    if not settings.audit:
        return None
    recorder = Recorder(
        open_trail(settings, home.catalogue),
        metrics.audited,
        metrics.audit_failed,
        DeadLetters(dead_letters_of(settings.home), metrics.audit_letter_kept),
    )
    metrics.watch_audit(recorder.__len__)
    return recorder


def _tidy_up(home: Home) -> None:
    """Remove what a killed process has left; a full disk keeps nobody from searching."""
    try:
        collect_garbage(home)
    except RecoquestError as error:
        _log.warning("garbage is not removed", error=type(error).__name__)


def _add_middleware(
    application: FastAPI, settings: Settings, metrics: Metrics, tracer: Tracer | None
) -> None:
    """Wrap the application, from the inside out."""
    application.add_middleware(Methods)
    application.add_middleware(Ranges)
    application.add_middleware(Admission, stages=application.state.stages)
    application.add_middleware(
        BodyLimit,
        max_form_bytes=settings.max_body_bytes,
        max_other_bytes=settings.max_json_bytes,
        files_in_json=(embeddings.PATH,),
    )
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
                "Deprecation",
                "ETag",
                "Link",
                "Location",
                "Retry-After",
                "Server-Timing",
            ],
        )
    hosts = AllowedHosts(settings.allowed_hosts, settings.host)
    application.add_middleware(SiteCheck, hosts=hosts, origins=settings.cors_origins)
    application.add_middleware(AuditTrail)
    application.add_middleware(RequestContext, metrics=metrics, origins=settings.cors_origins, tracer=tracer)
    application.add_middleware(
        SecurityHeaders, frame_ancestors=settings.frame_ancestors, allowed=settings.cors_origins
    )


def _operation_id(route: APIRoute) -> str:
    return route.name
