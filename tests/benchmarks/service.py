"""The service on a home folder, in a process of its own."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

from tests.access import OPEN_ENVIRONMENT

_RUN: Final = "from app.cli.main import run; run()"
_STARTED_SECONDS: Final = 300


@contextmanager
def serving(home: Path) -> Iterator[int]:
    """Serve a home folder on loopback until the context ends, and give the port once it is ready."""
    port = _free_port()
    command = [sys.executable, "-c", _RUN, "serve", "--home", str(home), "--port", str(port)]
    with subprocess.Popen(
        command, stderr=subprocess.DEVNULL, env={**os.environ, **OPEN_ENVIRONMENT}
    ) as server:
        try:
            _wait_until_ready(port)
            yield port
        finally:
            server.terminate()


def _wait_until_ready(port: int) -> None:
    ended = time.monotonic() + _STARTED_SECONDS
    while time.monotonic() < ended:
        try:
            with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
                connection.request("GET", "/readyz")
                if connection.getresponse().status == HTTPStatus.OK:
                    return
        except OSError:
            pass
        time.sleep(0.1)
    raise TimeoutError("the service did not become ready")


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
