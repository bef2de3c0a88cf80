"""Every commit is seen by the next look of every process."""

import sqlite3
import subprocess
import sys
import time
from collections.abc import Hashable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import func, insert, select

from index.catalogue import Catalogue, open_catalogue
from index.catalogue.tables import CollectionRow

WRITERS, COMMITS = 3, 60
WRITER = """
import sys
from sqlalchemy import insert
from index.catalogue import open_catalogue
from index.catalogue.tables import CollectionRow

catalogue = open_catalogue(sys.argv[1])
for number in range(int(sys.argv[3])):
    with catalogue.write() as session:
        session.execute(insert(CollectionRow).values(name=f"{sys.argv[2]}-{number}"))
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


def _run(code: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, text=True)


def test_every_write_is_seen_at_once(catalogue: Catalogue, url: str) -> None:
    with closing(open_catalogue(url)) as other:
        versions = [catalogue.version()]
        for number in range(20):
            writer = (catalogue, other)[number % 2]
            _put(writer, str(number))
            versions += [catalogue.version() for _ in range(50)]
    assert len(set(versions)) == 21


def test_one_version_is_one_state_while_processes_write(catalogue: Catalogue, url: str) -> None:
    writers = [_run(WRITER, url, str(number), str(COMMITS)) for number in range(WRITERS)]
    counts: dict[Hashable, int] = {}
    deadline = time.monotonic() + 120
    while any(writer.poll() is None for writer in writers):
        assert time.monotonic() < deadline
        version, count = catalogue.version(), _count(catalogue)
        if catalogue.version() == version:
            assert counts.setdefault(version, count) == count
    for writer in writers:
        assert writer.wait() == 0, writer.communicate()[1]
    counts[catalogue.version()] = _count(catalogue)
    assert max(counts.values()) == WRITERS * COMMITS
    assert len(counts) > WRITERS


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
