"""Put the service together: settings in, an ASGI application out."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

import anyio
import structlog
import torch
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles
from starlette.middleware.cors import CORSMiddleware

from app.context import REQUEST_ID_HEADER, RequestContext
from app.decoding.images import ImageDecoders
from app.encoders import Encoders, LoadEncoder
from app.encoding import QueueLimits
from app.engine import open_engine
from app.health import Readiness, followed_generations
from app.jobs.queue import JobQueue
from app.limits import BodyLimit
from app.metrics import Metrics
from app.openapi import DESCRIPTION, TAGS, describe
from app.problems import install_problems
from app.routes import collections, feedback, generations, health, images, jobs, models, pages, search, writes
from app.security import SecurityHeaders
from app.settings import Settings
from app.state import Services
from index.engine import SearchEngine
from index.leftovers import remove_leftovers
from training.errors import RecoquestError
from training.models.encoder import load_encoder

_log = structlog.stdlib.get_logger(__name__)


class RecoquestService(FastAPI):
    """The application, with problem documents in its OpenAPI description."""

    def openapi(self) -> dict[str, Any]:
        """The description, made once."""
        if self.openapi_schema is None:
            self.openapi_schema = describe(super().openapi())
        return self.openapi_schema


def create_app(settings: Settings | None = None, *, load: LoadEncoder | None = None) -> FastAPI:
    """Build the application; nothing is opened before it starts.

    Args:
        settings: None reads them from the environment.
        load: Opens a bundle; None loads it onto the device of the settings.
    """
    settings = settings or Settings()
    metrics = Metrics()
    application = RecoquestService(
        title="recoquest",
        summary="Search over images by what they show.",
        description=DESCRIPTION,
        version=version("recoquest"),
        openapi_tags=TAGS,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=_operation_id,
        lifespan=partial(_run, settings=settings, metrics=metrics, load=load),
    )
    application.state.admin_key = settings.admin_key
    application.state.open_feedback = settings.open_feedback
    install_problems(application)
    for module in (
        search,
        feedback,
        images,
        writes,
        collections,
        generations,
        models,
        jobs,
        health,
        pages,
    ):
        application.include_router(module.router)
    application.mount("/docs/assets", StaticFiles(directory=pages.swagger_ui_folder()), name="swagger-ui")
    application.mount("/page", StaticFiles(directory=pages.PAGE_FOLDER, check_dir=False), name="page")
    _add_middleware(application, settings, metrics)
    return application


@asynccontextmanager
async def _run(
    application: FastAPI, *, settings: Settings, metrics: Metrics, load: LoadEncoder | None
) -> AsyncIterator[None]:
    _log.debug("settings", **settings.printable())
    torch.set_num_threads(settings.threads or len(os.sched_getaffinity(0)))
    engine = await anyio.to_thread.run_sync(open_engine, settings, lambda path: decoders.thumbnail(path))
    queue = await anyio.to_thread.run_sync(JobQueue, settings)
    await anyio.to_thread.run_sync(_tidy_up, engine)
    limits = QueueLimits(
        batch_size=settings.encode_batch_size,
        batch_wait_s=settings.encode_batch_wait_ms / 1000,
        capacity=settings.encode_queue_size,
        deadline_s=settings.encode_deadline_s,
    )
    encoders = Encoders(load or partial(load_encoder, device=settings.device), limits, metrics)
    metrics.watch_queues(encoders.waiting)
    readiness = Readiness(
        engine, encoders, timeout_s=settings.readiness_timeout_s, cache_s=settings.readiness_cache_s
    )
    # Last, for its processes have to be ended: nothing below fails before `finally` does so.
    decoders: ImageDecoders = ImageDecoders(settings, metrics)
    metrics.watch_decoders(lambda: decoders.pool.waiting)
    application.state.services = Services(settings, engine, encoders, decoders, readiness, metrics, queue)
    try:
        async with anyio.create_task_group() as following:
            following.start_soon(_follow, engine, encoders, settings.refresh_s)
            following.start_soon(_keep_warm, engine, readiness, settings.refresh_s)
            yield
            # What is at work in a thread is waited for: it needs the catalogue.
            following.cancel_scope.cancel()
    finally:
        await anyio.to_thread.run_sync(decoders.close)
        await encoders.close()
        await anyio.to_thread.run_sync(queue.close)
        await anyio.to_thread.run_sync(engine.close)


def _tidy_up(engine: SearchEngine) -> None:
    """Remove what a killed process has left; a disk that is full keeps nobody from searching."""
    try:
        remove_leftovers(engine)
    except RecoquestError as error:
        _log.warning("leftovers are not removed", error=type(error).__name__)


async def _follow(engine: SearchEngine, encoders: Encoders, every_s: float) -> None:
    """Keep the encoders of the generations that are active, or were announced by any process, loaded."""
    while True:
        try:
            encoders.follow(await anyio.to_thread.run_sync(followed_generations, engine))
        except Exception as error:  # noqa: BLE001 - a failed look is repeated; readiness tells of it
            _log.error("active generations cannot be read", error=type(error).__name__)
        await anyio.sleep(every_s)


async def _keep_warm(engine: SearchEngine, readiness: Readiness, every_s: float) -> None:
    """Keep the views of these generations current, so that no search has to load one or catch much up.

    What other processes have removed is freed. The service is ready once every view has been tried.
    """
    while True:
        try:
            await anyio.to_thread.run_sync(engine.forget_removed)
            followed = await anyio.to_thread.run_sync(followed_generations, engine)
        except Exception as error:  # noqa: BLE001 - a failed look is repeated; readiness tells of it
            _log.error("generations to load ahead cannot be read", error=type(error).__name__)
        else:
            for active in followed:
                await _warm(engine, active.generation)
            readiness.views_were_tried()
        await anyio.sleep(every_s)


async def _warm(engine: SearchEngine, generation: int) -> None:
    try:
        await anyio.to_thread.run_sync(engine.warm, generation)
    except Exception as error:  # noqa: BLE001 - a search that needs the view will tell what is wrong
        _log.warning("a view cannot be loaded ahead", generation=generation, error=type(error).__name__)


def _add_middleware(application: FastAPI, settings: Settings, metrics: Metrics) -> None:
    """Wrap the application, from the inside out."""
    application.add_middleware(
        BodyLimit, max_form_bytes=settings.max_body_bytes, max_other_bytes=settings.max_json_bytes
    )
    if settings.cors_origins:
        application.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Content-Type", REQUEST_ID_HEADER],
            expose_headers=[REQUEST_ID_HEADER, "ETag", "Retry-After"],
        )
    application.add_middleware(RequestContext, metrics=metrics)
    application.add_middleware(
        SecurityHeaders, frame_ancestors=settings.frame_ancestors, shared=bool(settings.cors_origins)
    )


def _operation_id(route: APIRoute) -> str:
    return route.name
