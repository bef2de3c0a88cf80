"""The service on a home folder, and any other server, in processes of their own that end with this one."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

from tests.access import OPEN_ENVIRONMENT
from training.common.host import end_with_parent

_RUN: Final = "from app.cli.main import run; run()"
_STARTED_SECONDS: Final = 300
_ENDED_SECONDS: Final = 30


@contextmanager
def serving(home: Path) -> Iterator[int]:
    """Serve a home folder on loopback until the context ends, and give the port once it is ready."""
    with serving_process(home) as (port, _):
        yield port


@contextmanager
def serving_process(home: Path, processes: int = 1) -> Iterator[tuple[int, int]]:
    """Do the same by one process or several, and give the port and the first process."""
    port = free_port()
    command = [sys.executable, "-c", _RUN, "serve", "--home", str(home), "--port", str(port)]
    command += ["--processes", str(processes)] if processes > 1 else []
    with running(command, environment=OPEN_ENVIRONMENT) as server:
        wait_until(partial(answers, port, "/readyz"), server)
        yield port, server.pid


@contextmanager
def running(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    log: Path = Path(os.devnull),
    user: str | None = None,
    end: signal.Signals = signal.SIGTERM,
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a server until the context ends, or this process does.

    Args:
        command: Program and arguments.
        environment: Variables in addition to those of this process.
        log: File for its output.
        user: Whom to run it as, if not as this process.
        end: Signal that asks it to stop; after 30 seconds it is killed.
    """
    with (
        log.open("ab") as stream,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env={**os.environ, **(environment or {})},
            user=user,
            # Ctrl-C reaches the benchmark alone, which then stops its servers in order.
            start_new_session=True,
            preexec_fn=partial(end_with_parent, os.getpid()),
        ) as server,
    ):
        try:
            yield server
        finally:
            try:
                server.send_signal(end)
                server.wait(_ENDED_SECONDS)
            except BaseException as error:
                server.kill()
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise


def wait_until(
    ready: Callable[[], bool], server: "subprocess.Popen[bytes]", seconds: float = _STARTED_SECONDS
) -> None:
    """Wait until a server is ready.

    Raises:
        TimeoutError: It has ended, or was not ready in time.
    """
    ended = time.monotonic() + seconds
    while time.monotonic() < ended and server.poll() is None:
        if ready():
            return
        time.sleep(0.1)
    raise TimeoutError("the server did not become ready")


def answers(port: int, path: str) -> bool:
    """Return whether a server on loopback answers a GET request with status 200."""
    try:
        with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            connection.request("GET", path)
            return connection.getresponse().status == HTTPStatus.OK
    except OSError:
        return False


def free_port() -> int:
    """Return a port of loopback that nothing listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
