"""What holds for all tests."""

import gc
import os
import signal
from collections.abc import Generator, Iterator

import anyio
import pytest
import torch
from hypothesis import settings

from tests.needed import needed, needed_module
from tests.orthanc import INSTALL, OrthancPrograms, OrthancServer, find_orthanc, serve_orthanc
from tests.postgresql import PostgresqlServer, find_binaries, serve_postgresql
from training.common.host import keep_order_of_sums

_LONG = (
    "tests/app/encoding",
    "tests/app/edge/test_server",
    "tests/browser",
    "tests/e2e",
    "tests/faults",
    "tests/hostile",
    "tests/index/vectors",
    "tests/index/views",
)
# The same examples in every run and no limit of time, as a busy machine may take a second for any of them.
settings.load_profile("ci")
# As the command does, before anything computes.
keep_order_of_sums()
if "PYTEST_XDIST_WORKER_COUNT" in os.environ:
    # Tests that run side by side share the cores; the processes that they start compute as they do.
    threads = max(1, len(os.sched_getaffinity(0)) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))
    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch.set_num_threads(threads)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare garbage collections a million objects that stay, while tests are collected and while they run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the folders whose files take longest, so that no worker ends long after another."""
    items.sort(key=lambda item: not item.nodeid.startswith(_LONG))


@pytest.fixture
def stops_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that a test stops are not replaced: they stand for those that hang in another way."""
    monkeypatch.setattr("training.common.workers._LOOK_S", 3_600.0)


@pytest.fixture(scope="session", autouse=True)
def files_of_anyio() -> None:
    """Import what anyio imports with the first file that a service sends.

    Pytest rewrites it, and Python 3.11 may fail to parse in a service's thread while another thread parses.
    """
    assert callable(anyio.open_file)


@pytest.fixture(scope="session", autouse=True)
def heed_interrupts() -> Iterator[None]:
    """Let processes that tests start heed SIGINT; a shell's background job passes on that it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlServer]:
    """A server for the tests that need one; it starts with the first of them."""
    install = "`apt-get install postgresql` brings initdb and postgres"
    binaries = needed(find_binaries(), "PostgreSQL", install)
    needed_module("psycopg", "`pip install psycopg[binary]`")
    with serve_postgresql(binaries) as server:
        yield server


@pytest.fixture
def postgresql_url(postgresql: PostgresqlServer) -> Iterator[str]:
    """An empty database of its own."""
    url = postgresql.new_database()
    yield url
    postgresql.drop(url)


@pytest.fixture(scope="session")
def orthanc_programs() -> OrthancPrograms:
    """Orthanc and its plugins, for tests that need a server with settings of its own."""
    return needed(find_orthanc(), "Orthanc", INSTALL)


@pytest.fixture(scope="session")
def orthanc_server(orthanc_programs: OrthancPrograms) -> Iterator[OrthancServer]:
    """An archive for the tests that need one; it starts with the first of them."""
    with serve_orthanc(orthanc_programs) as server:
        yield server


@pytest.fixture
def orthanc(orthanc_server: OrthancServer) -> Iterator[OrthancServer]:
    """An empty archive."""
    yield orthanc_server
    orthanc_server.clear()
