"""An encoder's process: it loads a bundle, makes a first pass, and then answers orders until its end."""

import gc
from multiprocessing.connection import Connection
from typing import Any

from app.encoding.jobs import ServedEncoder
from app.encoding.passes import warm_up
from app.encoding.processes.process import Load, Order
from app.encoding.threads import use_torch_threads
from training.common.errors import BundleError
from training.models.onnx.loading import load_query_encoder


def serve(connection: Connection) -> None:
    """Load the bundle that comes first, then answer orders until the other side closes its end."""
    try:
        load: Load = connection.recv()
    except (EOFError, OSError):
        return
    try:
        encoder = _loaded(load)
    except Exception as error:  # noqa: BLE001 - the service tells of it
        connection.send(BundleError(str(error)))
        return
    connection.send("ready")
    threads = 1
    while True:
        try:
            order: Order = connection.recv()
        except (EOFError, OSError):
            return
        if order.threads != threads and not encoder.fixed_threads:
            use_torch_threads(order.threads)
            threads = order.threads
        connection.send(_answer(encoder, order))


def _loaded(load: Load) -> ServedEncoder:
    encoder = load_query_encoder(load.bundle, "cpu", threads=load.threads)
    if not encoder.fixed_threads:
        use_torch_threads(1)
    warm_up(encoder)
    # Garbage collections leave out all that lives as long as the process.
    gc.collect()
    gc.freeze()
    return encoder


def _answer(encoder: ServedEncoder, order: Order) -> Any:
    try:
        if isinstance(order.batch, list):
            return encoder.embed_texts(order.batch)
        return encoder.embed_regions(order.batch) if order.regions else encoder.embed_images(order.batch)
    except MemoryError as error:
        return MemoryError(str(error))
    except Exception as error:  # noqa: BLE001 - it belongs to the callers of this batch
        # Other exceptions may not unpickle, and their frames hold the batch.
        return RuntimeError(f"{type(error).__name__}: {error}")
