"""The fork server's process: every order is a socket, which a forked process serves.

The process that has started it sets how threads of the libraries wait, in the environment.
"""

import os
import signal
import socket
import sys
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Final

from app.encoding.processes.fork_server import WITH_TORCH
from app.encoding.processes.worker import serve
from training.common.host import end_with_parent

# Every encoder of transformers is made of it; it imports torch as well, and takes seconds.
_ENCODERS_IMPORT: Final = "transformers.modeling_utils"


def main(parent: int, descriptor: int) -> None:
    """Fork a process for each order until the other side closes its end.

    Args:
        parent: The process that has started this one.
        descriptor: File descriptor of the socket.
    """
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Ended children leave no zombies.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    orders = socket.socket(fileno=descriptor)
    while True:
        try:
            order, given, _, _ = socket.recv_fds(orders, 1, 1)
        except OSError:
            return
        if not given:
            return
        if order == WITH_TORCH:
            import_module(_ENCODERS_IMPORT)
        _fork(orders, given[0])


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
        with Connection(descriptor) as connection:
            serve(connection)
    finally:
        os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
