"""The fork server's process: every order is a socket, which a forked process serves.

The process that has started it sets how threads of the libraries wait, in the environment.
"""

import gc
import os
import pickle
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from app.encoding.processes import MOST_BYTES, WITH_TORCH, import_torch
from app.encoding.threads import Call, LocalEncoder, use_torch_threads, warm_up
from training.common.host import end_with_parent
from training.common.workers import BrokenMessageError, receive, send
from training.models.onnx import load_query_encoder

# What a header surely holds.
_MAX_REASON: Final = 4_000


def main(parent: int, descriptor: int) -> None:
    """Fork a process for each order that comes by a socket, until `parent` closes its end or ends."""
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Ended children leave no zombies.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    orders = socket.socket(fileno=descriptor)
    while True:
        try:
            order, descriptors, _, _ = socket.recv_fds(orders, 1, 1)
        except OSError:
            return
        if not descriptors:
            return
        if order == WITH_TORCH:
            import_torch()
        _fork(orders, descriptors[0])


def _fork(orders: socket.socket, descriptor: int) -> None:
    server = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        os.close(descriptor)
        orders.send(os.strerror(error.errno or 0).encode()[:32])
        return
    if pid == 0:
        _run_forked(orders, descriptor, server)
    os.close(descriptor)
    handle = os.pidfd_open(pid)
    socket.send_fds(orders, [str(pid).encode()], [handle])
    os.close(handle)


def _run_forked(orders: socket.socket, descriptor: int, server: int) -> None:
    """Serve in the forked process, which never returns from here."""
    try:
        end_with_parent(server)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        orders.close()
        with socket.socket(fileno=descriptor) as connection, suppress(BrokenMessageError, OSError):
            _serve(connection)
    finally:
        os._exit(0)


def _serve(connection: socket.socket) -> None:
    """Load the bundle that comes first, then answer orders until the other side closes its end."""
    load, _ = receive(connection, 0)
    try:
        encoder = _loaded(Path(load["bundle"]), load["threads"])
    except Exception as error:  # noqa: BLE001 - the service reports it
        send(connection, {"outcome": "refused", "reason": str(error)[:_MAX_REASON]})
        return
    send(connection, {"outcome": "ready"})
    threads = 1
    while True:
        order, content = receive(connection, MOST_BYTES)
        if order["threads"] != threads and not encoder.fixed_threads:
            threads = order["threads"]
            use_torch_threads(threads)
        answer = _answer(encoder, order["call"], pickle.loads(content))
        send(connection, {}, pickle.dumps(answer, pickle.HIGHEST_PROTOCOL))


def _loaded(bundle: Path, threads: int) -> LocalEncoder:
    encoder = load_query_encoder(bundle, "cpu", threads=threads)
    if not encoder.fixed_threads:
        use_torch_threads(1)
    warm_up(encoder)
    # Garbage collections leave out all that lives as long as the process.
    gc.collect()
    gc.freeze()
    return encoder


def _answer(encoder: LocalEncoder, call: Call, batch: Any) -> Any:
    try:
        return getattr(encoder, call)(batch)
    except MemoryError as error:
        return MemoryError(str(error))
    except Exception as error:  # noqa: BLE001 - it belongs to the callers of this batch
        # Other exceptions may not unpickle, and their frames hold the batch.
        return RuntimeError(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
