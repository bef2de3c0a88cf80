"""A Redis server for tests, on a Unix socket in a folder of its own."""

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

_START_SECONDS = 30


@contextmanager
def serve_redis(program: str) -> Iterator[str]:
    """Run a server that keeps nothing on the disk, and give its URL, until the block ends."""
    # Not pytest's folder: the path of a Unix socket may have 107 bytes at most.
    folder = Path(tempfile.mkdtemp(prefix="recoquest-redis-"))
    address = folder / "socket"
    options = ("--port", "0", "--unixsocket", str(address), "--save", "", "--appendonly", "no")
    server = subprocess.Popen([program, *options], cwd=folder, stdout=subprocess.DEVNULL)
    try:
        _wait_until_up(address, server)
        yield f"unix://{address}"
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_until_up(address: Path, server: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        assert server.poll() is None, "the Redis server ended at its start"
        assert time.monotonic() < deadline, "the Redis server did not start"
        with closing(socket.socket(socket.AF_UNIX)) as client:
            try:
                client.connect(str(address))
                return
            except OSError:
                time.sleep(0.05)
