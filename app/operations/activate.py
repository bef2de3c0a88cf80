"""Change the generation that is searched, while searches run."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fastapi import BackgroundTasks
from sqlalchemy.orm import Session

from app.operations.services import Services
from app.schemas.generations import ActivatedGeneration
from index.catalogue.collections import Generation
from index.errors import GenerationError, IncompleteGenerationError, UnknownGenerationError
from index.files.bundles import registered_bundle
from index.generations.activation import activate, announce, require_complete
from index.generations.retention import try_drop_old_generations

FindGeneration = Callable[[Session], Generation]


async def swap_to(services: Services, find: FindGeneration, later: BackgroundTasks) -> ActivatedGeneration:
    """Load a generation and its encoder, tell other services, then search in it from one moment on.

    Args:
        services: Of the running application.
        find: Finds the generation in the catalogue.
        later: Where dropping those that are too old is left to.

    Raises:
        IncompleteGenerationError: It lacks images or texts; nothing changes.
        UnknownGenerationError: It was dropped meanwhile; nothing changes.
        BundleError: Its encoder cannot be loaded; nothing changes.
    """
    started = time.monotonic()
    generation, texts = await services.threads.write(_announced, services, find)
    await services.encoders.of(services.engine.describe(generation))
    with _unless_dropped(generation):
        await services.threads.background(services.engine.warm, generation.id)
        # Other services look as often as this one, and load about as fast.
        await asyncio.sleep(services.settings.refresh_s + time.monotonic() - started)
        await services.threads.write(_activated, services, generation, texts)
    collection = generation.collection
    later.add_task(
        services.threads.write,
        try_drop_old_generations,
        services.engine.home,
        collection,
        services.settings.keep_generations,
    )
    return ActivatedGeneration(
        collection=collection, number=generation.id, model=generation.model, digest=generation.digest
    )


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


def _announced(services: Services, find: FindGeneration) -> tuple[Generation, bool]:
    """Check that a generation can be searched, and tell all services of it."""
    engine = services.engine
    with engine.home.catalogue.read() as session:
        generation = find(session)
        texts = registered_bundle(generation, engine.home.bundles_folder).config.text is not None
        require_complete(session, generation, texts=texts)
    with engine.home.catalogue.write() as session:
        announce(session, generation)
    return generation, texts


def _activated(services: Services, generation: Generation, texts: bool) -> None:
    with services.engine.home.catalogue.write() as session:
        activate(session, generation, texts=texts)
