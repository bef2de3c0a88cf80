"""Every commit is seen by the next look of every process."""

import select as readiness
import sqlite3
import subprocess
import sys
import time
from collections.abc import Hashable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import func, insert, select

from index.catalogue import Catalogue, open_catalogue
from index.catalogue.tables import CollectionRow

WRITERS, ROUNDS, COMMITS = 3, 6, 10
# Writes a round whenever it is given a line, and says so.
WRITER = """
import sys
from sqlalchemy import insert
from index.catalogue import open_catalogue
from index.catalogue.tables import CollectionRow

catalogue = open_catalogue(sys.argv[1])
for round in sys.stdin:
    for number in range(int(sys.argv[3])):
        with catalogue.write() as session:
            session.execute(insert(CollectionRow).values(name=f"{sys.argv[2]}-{round.strip()}-{number}"))
    print("written", flush=True)
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'catalogue.db'}"


@pytest.fixture
def catalogue(url: str) -> Iterator[Catalogue]:
    with closing(open_catalogue(url)) as catalogue:
        yield catalogue


def _put(catalogue: Catalogue, name: str) -> None:
    with catalogue.write() as session:
        session.execute(insert(CollectionRow).values(name=name))


def _count(catalogue: Catalogue) -> int:
    with catalogue.read() as session:
        return session.execute(select(func.count()).select_from(CollectionRow)).scalar_one()


@contextmanager
def _writers(url: str) -> Iterator[list["subprocess.Popen[str]"]]:
    """Processes that write at the same time, each round when it is told to."""
    with ExitStack() as started:
        processes = []
        for number in range(WRITERS):
            process = subprocess.Popen(
                [sys.executable, "-c", WRITER, url, str(number), str(COMMITS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            processes.append(started.enter_context(process))
            started.callback(process.kill)
        yield processes


def _has_written(process: "subprocess.Popen[str]") -> bool:
    assert process.stdout is not None
    if not readiness.select([process.stdout], [], [], 0)[0]:
        return False
    assert process.stdout.readline() == "written\n", "a writer has failed"
    return True


def test_every_write_is_seen_at_once(catalogue: Catalogue, url: str) -> None:
    with closing(open_catalogue(url)) as other:
        versions = [catalogue.version()]
        for number in range(20):
            writer = (catalogue, other)[number % 2]
            _put(writer, str(number))
            versions += [catalogue.version() for _ in range(50)]
    assert len(set(versions)) == 21


def test_one_version_is_one_state_while_processes_write(catalogue: Catalogue, url: str) -> None:
    counts: dict[Hashable, int] = {}

    def look() -> None:
        version, count = catalogue.version(), _count(catalogue)
        if catalogue.version() == version:
            assert counts.setdefault(version, count) == count

    deadline = time.monotonic() + 120
    with _writers(url) as writers:
        for round_ in range(ROUNDS):
            for writer in writers:
                assert writer.stdin is not None
                print(round_, file=writer.stdin, flush=True)
            at_work = list(writers)
            while at_work:
                assert time.monotonic() < deadline
                look()
                at_work = [writer for writer in at_work if not _has_written(writer)]
            # Nobody writes now: the state between two rounds is seen for certain.
            look()
            assert counts[catalogue.version()] == (round_ + 1) * WRITERS * COMMITS
    assert len(counts) >= ROUNDS


def test_a_write_of_another_program_is_seen_at_once(catalogue: Catalogue, tmp_path: Path) -> None:
    before = catalogue.version()
    with closing(sqlite3.connect(tmp_path / "catalogue.db")) as connection, connection:
        connection.execute("CREATE TABLE other (value)")
    assert catalogue.version() != before


def test_a_closed_watch_looks_again_by_another_connection(catalogue: Catalogue) -> None:
    before = catalogue.version()
    catalogue.close()
    _put(catalogue, "later")
    assert catalogue.version() != before
