"""Change of the active generation: missing vectors, preloading by all services, activation."""

import time
from typing import Final

from index.catalogue.collections import Generation
from index.engine import SearchEngine
from index.errors import IncompleteGenerationError
from index.generations.activation import activate, mark_preloading
from index.generations.reindex import embed_missing, reindex
from index.writes.embedder import ImageEncoder

# Retries against concurrent writes; a few suffice.
_TRIES: Final = 100


def swap(
    engine: SearchEngine,
    generation: Generation,
    encoder: ImageEncoder,
    *,
    preload_s: float,
    batch_size: int = 64,
    show_progress: bool = True,
    instead_of: str | None = None,
) -> int:
    """Give a generation what it lacks and make it the one that is searched, in one step.

    A generation that was active before lacks the images that were written since: nobody keeps it current,
    which would cost every write a second pass and every service a second encoder, but it never comes back
    without them either. Services are told before, so that none has to load anything when it happens.

    Args:
        engine: Home of the collection.
        generation: Generation to activate.
        encoder: Loaded from its bundle.
        preload_s: Seconds that services may take to notice and load the generation.
        batch_size: Images a forward pass.
        show_progress: Show a bar on standard error.
        instead_of: Digest of the only model that it may take the place of; None: of any.

    Returns:
        How many images had to be embedded.

    Raises:
        ActiveChangedError: A generation of another model became active meanwhile; it stays.
        IncompleteGenerationError: Writes outpace embedding; the active generation stays.
        GenerationError: The generation is gone, or files in the store cannot be read; the one before stays.
    """
    embedded = reindex(engine, generation, encoder, batch_size=batch_size, show_progress=show_progress)
    with engine.home.catalogue.write() as session:
        mark_preloading(session, generation)
    engine.warm(generation.id)
    time.sleep(preload_s)
    for tries_left in reversed(range(_TRIES)):
        # Writes of the meantime, and writes during their embedding. A snapshot would take
        # so long that more was written each time.
        embedded += embed_missing(
            engine, generation, encoder, batch_size=batch_size, show_progress=show_progress
        )
        try:
            with engine.home.catalogue.write() as session:
                activate(session, generation, texts="text" in encoder.modalities, instead_of=instead_of)
            break
        except IncompleteGenerationError:
            if not tries_left:
                raise
    return embedded
