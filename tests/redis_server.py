"""Redis servers for tests: on a Unix socket in a folder of its own, or on a loopback port."""

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from tests.needed import needed

_START_SECONDS = 30


def find_redis(program: str) -> str:
    """Return where the server is; without it the test that needs it does not run."""
    return needed(shutil.which(program), "Redis", "`apt-get install redis-server` brings redis-server")


@contextmanager
def serve_redis(program: str) -> Iterator[str]:
    """Run a server that keeps nothing on the disk, and give its URL, until the block ends."""
    # Not pytest's folder: the path of a Unix socket may have 107 bytes at most.
    folder = Path(tempfile.mkdtemp(prefix="recoquest-redis-"))
    address = folder / "socket"
    command = (program, "--port", "0", "--unixsocket", str(address), "--save", "", "--appendonly", "no")
    try:
        with _running(command, folder, socket.AF_UNIX, str(address)):
            yield f"unix://{address}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def redis_on_loopback(command: Sequence[str], folder: Path) -> Iterator[str]:
    """Run the command of a server on a free port in a folder, and give HOST:PORT, until the block ends."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        host, port = free.getsockname()
    with _running((*command, "--bind", host, "--port", str(port)), folder, socket.AF_INET, (host, port)):
        yield f"{host}:{port}"


@contextmanager
def _running(
    command: Sequence[str], folder: Path, family: socket.AddressFamily, address: str | tuple[str, int]
) -> Iterator[None]:
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    try:
        _wait_until_up(family, address, server)
        yield
    finally:
        server.kill()
        server.wait()


def _wait_until_up(
    family: socket.AddressFamily, address: str | tuple[str, int], server: "subprocess.Popen[bytes]"
) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        assert server.poll() is None, "the Redis server ended at its start"
        assert time.monotonic() < deadline, "the Redis server did not start"
        with closing(socket.socket(family)) as client:
            try:
                client.connect(address)
                return
            except OSError:
                time.sleep(0.05)
