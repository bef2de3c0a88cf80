"""A PostgreSQL server for tests, on a Unix socket in a folder of its own."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import create_engine, text

_START_SECONDS = 60
# A server that is thrown away need not survive a power cut.
_OPTIONS = ("fsync=off", "full_page_writes=off", "synchronous_commit=off", "max_connections=200")


@dataclass(frozen=True)
class PostgresqlServer:
    """A running server."""

    folder: Path

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://postgres@/{database}?host={self.folder}"

    def new_database(self) -> str:
        """Make an empty database and return its URL."""
        name = f"test_{uuid.uuid4().hex}"
        self._execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def drop(self, url: str) -> None:
        """Drop a database, whoever is still connected."""
        self._execute(f"DROP DATABASE {url.partition('@/')[2].partition('?')[0]} WITH (FORCE)")

    @contextmanager
    def owned(self, user: str, password: str, database: str) -> Iterator[None]:
        """Have a user with a database of its own, as the official image makes them, until the block ends."""
        self._execute(f"CREATE ROLE {user} SUPERUSER LOGIN PASSWORD '{password}'")
        self._execute(f"CREATE DATABASE {database} OWNER {user}")
        try:
            yield
        finally:
            self.drop(self.url(database))
            self._execute(f"DROP ROLE {user}")

    def _execute(self, statement: str) -> None:
        engine = create_engine(self.url("postgres"), isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as connection:
                connection.execute(text(statement))
        finally:
            engine.dispose()


def find_binaries() -> Path | None:
    """Return the folder of the server's programs, the newest release of those that are installed."""
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).resolve().parent
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


@contextmanager
def serve_postgresql(binaries: Path) -> Iterator[PostgresqlServer]:
    """Run a server that nobody but this machine's users can reach, until the block ends."""
    # Not pytest's folder: the path of a Unix socket may have 107 bytes at most.
    folder = Path(tempfile.mkdtemp(prefix="recoquest-pg-"))
    user = unprivileged_user()
    if user is not None:
        os.chown(folder, *ids_of(user))
    data = folder / "data"
    try:
        subprocess.run(
            [binaries / "initdb", "--pgdata", data, "--username=postgres", "--auth=trust", "--no-sync"],
            check=True,
            capture_output=True,
            cwd=folder,
            user=user,
        )
        options = [part for option in _OPTIONS for part in ("-c", option)]
        server = subprocess.Popen(
            [binaries / "postgres", "-D", data, "-k", folder, "-c", "listen_addresses=", *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            user=user,
        )
        try:
            _wait_until_up(binaries, folder, server)
            yield PostgresqlServer(folder)
        finally:
            # Unlike SIGTERM, this does not wait for those who are still connected.
            server.send_signal(signal.SIGINT)
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def unprivileged_user() -> str | None:
    """Return whom to become: the server refuses to run as root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def ids_of(user: str) -> tuple[int, int]:
    """Return the ids of a user and of its group."""
    entry = pwd.getpwnam(user)
    return entry.pw_uid, entry.pw_gid


def _wait_until_up(binaries: Path, folder: Path, server: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _START_SECONDS
    while subprocess.run([binaries / "pg_isready", "-q", "-h", folder], check=False).returncode != 0:
        assert server.poll() is None, "the PostgreSQL server ended at its start"
        assert time.monotonic() < deadline, "the PostgreSQL server did not start"
        time.sleep(0.1)
