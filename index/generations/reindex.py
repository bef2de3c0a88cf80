"""Embed a collection with another bundle in a new generation, and switch searches over to it."""

import time
from collections.abc import Collection, Iterator
from typing import Final

import numpy as np

from index.catalogue.collections import (
    Generation,
    add_generation,
    find_any,
    get_generation,
    lock_collection,
    next_sequence,
    require_collection,
)
from index.catalogue.lookup import count_images
from index.engine import SearchEngine
from index.errors import GenerationError, IncompleteGenerationError, StoreError
from index.files.bundles import installed_bundle, register_bundle
from index.files.renditions import STORED_LIMITS
from index.generations.activation import activate, mark_preloading
from index.home import Home
from index.writes.intake import prefetch
from index.writes.vectors import (
    Embedder,
    ImageEncoder,
    MissingImage,
    add_missing_images,
    count_lacking,
    embed_missing_texts,
    images_without_vectors,
    still_missing,
)
from training.common.errors import BundleError, ImageError
from training.common.progress import progress_bar
from training.imaging.processes.file_decoder import FileDecoder
from training.models.image_input import Pixels

_ROWS_AT_ONCE: Final = 1024
_NAMED: Final = 3
# Retries of a swap against concurrent writes; a few suffice.
_TRIES: Final = 100


def generation_for(home: Home, collection: str, encoder: ImageEncoder) -> Generation:
    """Return the generation of a collection by an encoder's bundle, begun if there is none yet.

    An unfinished one is reused; no state changes.

    Raises:
        BundleError: The encoder comes from no bundle, or the bundle cannot be copied.
    """
    if encoder.info is None:
        raise BundleError("Only an encoder loaded from a bundle can index a collection: save it first.")
    with home.catalogue.read() as session:
        require_collection(session, collection)
    with (
        installed_bundle(encoder.info, home.bundles_folder) as info,
        home.catalogue.write() as session,
    ):
        collection_id = require_collection(session, collection).id
        model = register_bundle(session, info)
        # Another process may be beginning one.
        lock_collection(session, collection_id)
        existing = find_any(session, collection_id, model.digest)
        return existing or add_generation(session, collection_id, model.id)


def reindex(
    engine: SearchEngine,
    generation: Generation,
    encoder: ImageEncoder,
    *,
    batch_size: int = 64,
    show_progress: bool = True,
) -> int:
    """Embed the images that a generation lacks, write its snapshot, measure which scores count; count images.

    Each batch is one transaction, so an interrupted run continues when it is repeated. Images that are
    written, replaced or removed meanwhile are included or left out: it ends when nothing is missing.

    Raises:
        GenerationError: The generation is gone, the encoder is of another bundle, or files in the store are
            missing or damaged; what was embedded stays.
    """
    embedded = _embed_missing(engine, generation, encoder, batch_size, show_progress)
    if embedded:
        engine.save_snapshot_of(generation)
    engine.measure_confidence(generation.id, encoder)
    return embedded


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
    """Embed what a generation is missing and make it the active one; return how many images that were.

    A generation that was active before lacks the images that were written since: nobody keeps it current,
    which would cost every write a second pass and every service a second encoder, but it never comes back
    without them either. Services are notified `preload_s` seconds before, so that none has to load anything
    at that moment.

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
        embedded += _embed_missing(engine, generation, encoder, batch_size, show_progress)
        try:
            with engine.home.catalogue.write() as session:
                activate(session, generation, texts="text" in encoder.modalities, instead_of=instead_of)
            break
        except IncompleteGenerationError:
            if not tries_left:
                raise
    return embedded


def _embed_missing(
    engine: SearchEngine, generation: Generation, encoder: ImageEncoder, batch_size: int, show_progress: bool
) -> int:
    """Give a generation the vectors that it lacks, and return how many images that were."""
    embedder, embedded, broken = Embedder(generation, encoder), 0, dict[MissingImage, str]()

    def prepare(image: MissingImage) -> Pixels | str:
        try:
            path = engine.home.store.path(image.sha256)
            return encoder.prepare_image(files.decode(path, STORED_LIMITS, encoder.min_image_side).pixels)
        except (StoreError, ImageError) as error:
            return str(error)

    with FileDecoder() as files:
        while True:
            with engine.home.catalogue.read() as session:
                # Images with an unreadable file may have been removed or replaced since.
                there = still_missing(session, generation, list(broken)) if broken else set()
                broken = {image: reason for image, reason in broken.items() if image in there}
                missing = count_lacking(session, generation) - len(broken)
                total = count_images(session, generation.collection_id)
            if missing <= 0:
                break
            name, untried = f"Embedding {generation.collection}", _missing(engine.home, generation, broken)
            with progress_bar(name, total, done=total - missing, shown=show_progress) as bar:
                for batch in prefetch(untried, prepare, batch_size, give_up=files.close):
                    readable = {image: result for image, result in batch if isinstance(result, np.ndarray)}
                    broken |= {image: result for image, result in batch if isinstance(result, str)}
                    if readable:
                        vectors = embedder.images(list(readable.values()))
                        with engine.home.catalogue.write() as session:
                            sequence = next_sequence(session, generation.collection_id)
                            get_generation(session, generation.id)
                            added = add_missing_images(session, generation, sequence, list(readable), vectors)
                        embedded += added
                    bar.advance(len(batch), f"{len(broken):,} unreadable" if broken else "")
    embed_missing_texts(engine.home, embedder, shown=show_progress)
    if broken:
        raise GenerationError(_broken(generation, broken))
    return embedded


def _missing(home: Home, generation: Generation, broken: Collection[MissingImage]) -> Iterator[MissingImage]:
    after = 0
    while True:
        with home.catalogue.read() as session:
            rows = images_without_vectors(session, generation, after=after, limit=_ROWS_AT_ONCE)
        if not rows:
            return
        for row in rows:
            if row not in broken:
                yield row
        after = rows[-1].key


def _broken(generation: Generation, broken: dict[MissingImage, str]) -> str:
    named = [f"{image.id}: {reason}" for image, reason in list(broken.items())[:_NAMED]]
    more = f" And {len(broken) - len(named):,} more." if len(broken) > len(named) else ""
    return (
        f"{len(broken):,} images of {generation.collection!r} cannot be read from the store. "
        f"{' '.join(named)}{more} Index their data again or delete them, then run this again; all others are "
        "embedded."
    )
