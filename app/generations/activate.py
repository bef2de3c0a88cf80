"""Change the generation that is searched, while searches run."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import BackgroundTasks, Header, Request
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from app.audit.noted import Noted, note
from app.generations import schemas as described
from app.jobs.queue import REINDEX, activation_arguments, refuse_second_embedding
from app.jobs.queue_job import location_of, queue_job
from app.jobs.schemas import JobEntry
from app.services import Services
from index.catalogue.collections import Generation
from index.errors import GenerationError, IncompleteGenerationError, UnknownGenerationError
from index.files.bundles import registered_bundle
from index.generations.activation import require_nearly_complete, try_drop_old_generations
from index.generations.models import GenerationInfo, describe_generation
from index.generations.reindex import swap

FindGeneration = Callable[[Session], Generation]
_ASYNC: Final = "respond-async"


async def swap_to(
    request: Request, services: Services, find: FindGeneration, later: BackgroundTasks
) -> described.Generation:
    """Load a generation and its encoder, tell other services, then search in it from one moment on.

    What was written lately and has no vector in it is embedded first.

    Args:
        request: The request, whose event names the generation.
        services: Services of the running application.
        find: Finds the generation in the catalogue.
        later: Background tasks, for the removal of old generations.

    Raises:
        IncompleteGenerationError: The generation lacks many images or texts; nothing changes.
        UnknownGenerationError: The generation was dropped meanwhile; nothing changes.
        BundleError: The generation's encoder cannot be loaded; nothing changes.
    """
    started = time.monotonic()
    generation = await services.threads.read(_found, services, find)
    loaded = await services.encoders.of(services.engine.describe(generation))
    with _unless_dropped(generation):
        take = partial(
            swap,
            services.engine,
            generation,
            loaded.encoder,
            # Other services refresh as often as this one, and load about as fast.
            preload_s=services.settings.refresh_s + time.monotonic() - started,
            show_progress=False,
        )
        await services.threads.background(take)
    collection = generation.collection
    note(request, Noted(collection=collection, model=generation.digest, generation=generation.id))
    later.add_task(
        services.threads.write,
        try_drop_old_generations,
        services.engine.home,
        collection,
        services.settings.keep_generations,
    )
    return described.Generation.of(await services.threads.read(_described, services, generation.id))


async def prefers_async(
    prefer: Annotated[
        str | None,
        Header(
            description="`respond-async`: a job does it, and the answer is 202 with its address (RFC 7240)."
        ),
    ] = None,
) -> bool:
    """Whether the caller would rather have a job than wait."""
    return any(part.partition(";")[0].strip().lower() == _ASYNC for part in (prefer or "").split(","))


async def queue_swap(request: Request, services: Services, find: FindGeneration) -> JSONResponse:
    """Queue the job that gives a generation all that it lacks and activates it; answer 202.

    Args:
        request: The request.
        services: Services of the running application.
        find: Finds the generation in the catalogue.

    Raises:
        UnknownCollectionError: There is no such collection.
        UnknownGenerationError: There is no such generation.
        JobExistsError: Another job embeds the collection already.
    """

    def look() -> Generation:
        with services.engine.home.catalogue.read() as session:
            return find(session)

    generation = await services.threads.read(look)
    collection = generation.collection
    arguments = activation_arguments(collection, generation.id)
    only = partial(refuse_second_embedding, collection=collection)
    job = await queue_job(request, services, REINDEX, arguments, check=only)
    # The command's own event tells of the activation.
    note(
        request,
        Noted(action="create", collection=collection, generation=generation.id, details={"job": job.id}),
    )
    headers = {"Location": location_of(request, job), "Preference-Applied": _ASYNC}
    return JSONResponse(JobEntry.of(job).model_dump(mode="json"), HTTPStatus.ACCEPTED, headers)


@contextmanager
def _unless_dropped(generation: Generation) -> Iterator[None]:
    try:
        yield
    except IncompleteGenerationError:
        raise
    except GenerationError:
        raise UnknownGenerationError(
            f"Generation {generation.id} of {generation.collection!r} was dropped meanwhile, and nothing was "
            "changed."
        ) from None


def _described(services: Services, number: int) -> GenerationInfo:
    with services.engine.home.catalogue.read() as session:
        return describe_generation(session, number)


def _found(services: Services, find: FindGeneration) -> Generation:
    """Return a generation that can be searched but for what was written lately."""
    home = services.engine.home
    with home.catalogue.read() as session:
        generation = find(session)
        texts = registered_bundle(generation, home.bundles_folder).config.text is not None
        require_nearly_complete(session, generation, texts=texts)
    return generation
