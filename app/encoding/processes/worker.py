"""An encoder's process: it loads a bundle, makes a first pass, and then answers orders until its end."""

import gc
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from app.encoding.passes import warm_up
from app.encoding.processes.process import Order
from app.encoding.threads import use_torch_threads
from training.errors import BundleError
from training.models.encoder import Encoder, load_encoder


def serve(connection: Connection) -> None:
    """Load the bundle whose path comes first, then answer orders until the other side closes its end."""
    try:
        bundle: Path = connection.recv()
    except (EOFError, OSError):
        return
    try:
        encoder = _loaded(bundle)
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
        if order.threads != threads:
            use_torch_threads(order.threads)
            threads = order.threads
        connection.send(_answer(encoder, order))


def _loaded(bundle: Path) -> Encoder:
    torch.set_num_threads(1)
    encoder = load_encoder(bundle, "cpu")
    warm_up(encoder)
    # Garbage collections leave out all that lives as long as the process.
    gc.collect()
    gc.freeze()
    return encoder


def _answer(encoder: Encoder, order: Order) -> Any:
    try:
        if isinstance(order.batch, list):
            return encoder.embed_texts(order.batch)
        return encoder.embed_images(order.batch)
    except MemoryError as error:
        return MemoryError(str(error))
    except Exception as error:  # noqa: BLE001 - it belongs to the callers of this batch
        # Other exceptions may not unpickle, and their frames hold the batch.
        return RuntimeError(f"{type(error).__name__}: {error}")
