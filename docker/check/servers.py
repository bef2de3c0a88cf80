"""PostgreSQL of this machine on a loopback port, in place of the compose file's."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from check.containers import CheckError, free_port

_START_SECONDS = 60
# PostgreSQL refuses to run as root.
_USER = "nobody"


def find_postgresql() -> Path | None:
    """Returns the folder of PostgreSQL's programs, the newest release of those that are installed."""
    if (on_path := shutil.which("initdb")) is not None:
        return Path(on_path).resolve().parent
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


@contextlib.contextmanager
def postgresql(programs: Path, user: str, password: str) -> Iterator[int]:
    """Runs a server with a database of the user's name until the block ends; gives its port."""
    # Not TMPDIR: a server that is not root may not reach it.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder, port = Path(name), free_port()
        (folder / "password").write_text(password)
        for path in (folder, folder / "password"):
            shutil.chown(path, _USER)
        made = ["--pgdata=data", f"--username={user}", "--auth=scram-sha-256", "--pwfile=password"]
        subprocess.run([programs / "initdb", *made], cwd=folder, user=_USER, check=True, capture_output=True)
        options = ("-D", "data", "-k", name, "-p", str(port), "-c", "listen_addresses=127.0.0.1")
        with _running([str(programs / "postgres"), *options], folder, _USER):
            address = ("--host=127.0.0.1", f"--port={port}", f"--username={user}")
            _wait_for([str(programs / "pg_isready"), *address])
            environment = {**os.environ, "PGPASSWORD": password}
            subprocess.run([programs / "createdb", *address, user], env=environment, check=True)
            yield port


@contextlib.contextmanager
def _running(command: Sequence[str], folder: Path, user: str) -> Iterator[None]:
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=folder, user=user, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        server.terminate()
        try:
            server.wait(30)
        finally:
            server.kill()


def _wait_for(command: Sequence[str]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while subprocess.run(command, capture_output=True, check=False).returncode != 0:
        if time.monotonic() > deadline:
            raise CheckError(f"`{' '.join(command)}` failed for {_START_SECONDS} s")
        time.sleep(0.1)
