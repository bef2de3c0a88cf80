"""Every commit is seen by the next look of every process, and what is remembered is never older."""

import select as readiness
import sqlite3
import subprocess
import sys
import time
from collections.abc import Hashable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import bindparam, func, insert, select, update
from sqlalchemy.orm import Session

from index.catalogue import Catalogue, ReadThroughCache, VersionedCache, open_catalogue
from index.catalogue.tables import CollectionRow
from index.errors import CatalogueError

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
def in_file(url: str) -> Iterator[Catalogue]:
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


def test_every_write_is_seen_at_once(in_file: Catalogue, url: str) -> None:
    with closing(open_catalogue(url)) as other:
        versions = [in_file.version()]
        for number in range(20):
            writer = (in_file, other)[number % 2]
            _put(writer, str(number))
            versions += [in_file.version() for _ in range(50)]
    assert len(set(versions)) == 21


def test_one_version_is_one_state_while_processes_write(in_file: Catalogue, url: str) -> None:
    counts: dict[Hashable, int] = {}

    def look() -> None:
        version, count = in_file.version(), _count(in_file)
        if in_file.version() == version:
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
            assert counts[in_file.version()] == (round_ + 1) * WRITERS * COMMITS
    assert len(counts) >= ROUNDS


def test_a_write_of_another_program_is_seen_at_once(in_file: Catalogue, tmp_path: Path) -> None:
    before = in_file.version()
    with closing(sqlite3.connect(tmp_path / "catalogue.db")) as connection, connection:
        connection.execute("CREATE TABLE other (value)")
    assert in_file.version() != before


def test_a_closed_watch_looks_again_by_another_connection(in_file: Catalogue) -> None:
    before = in_file.version()
    in_file.close()
    _put(in_file, "later")
    assert in_file.version() != before


_WRITE = """
import sys
from sqlalchemy import update
from index.catalogue import open_catalogue
from index.catalogue.tables import CollectionRow
catalogue = open_catalogue(sys.argv[1])
with catalogue.write() as session:
    session.execute(update(CollectionRow).values(sequence=8))
catalogue.close()
"""


@pytest.fixture
def named(catalogue: Catalogue) -> Catalogue:
    """A catalogue with the collections a and b."""
    with catalogue.write() as session:
        session.execute(insert(CollectionRow), [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    return catalogue


def _sequence(session: Session, name: str) -> int:
    found = session.execute(select(CollectionRow.sequence).where(CollectionRow.name == name)).scalar_one()
    assert isinstance(found, int)
    return found


def test_values_are_read_once_between_two_writes(named: Catalogue) -> None:
    read: list[str] = []

    def sequence(session: Session, name: str) -> int:
        read.append(name)
        return _sequence(session, name)

    remembered = ReadThroughCache(named, sequence)
    assert [remembered.get(name) for name in "abab"] == [0, 0, 0, 0]
    assert read == ["a", "b"]
    with named.write() as session:
        session.execute(update(CollectionRow).values(sequence=7))
    assert [remembered.get(name) for name in "aa"] == [7, 7]
    assert read == ["a", "b", "a"]


def test_what_began_before_a_write_does_not_drop_what_was_kept_since(named: Catalogue) -> None:
    kept: VersionedCache[str, int] = VersionedCache(named)
    before = named.version()
    kept.at(before)["a"] = 1
    with named.write() as session:
        session.execute(update(CollectionRow).values(sequence=7))
    kept.at()["a"] = 2
    assert kept.at(before) == {}
    kept.at(before)["a"] = 3
    assert kept.at() == {"a": 2}


def test_another_process_is_noticed(named: Catalogue, catalogue_url: str) -> None:
    remembered = ReadThroughCache(named, _sequence)
    assert remembered.get("a") == 0
    subprocess.run([sys.executable, "-c", _WRITE, catalogue_url], check=True, timeout=60)
    assert remembered.get("a") == 8


def test_what_is_written_while_a_value_is_read_is_not_missed(named: Catalogue) -> None:
    """The value may be of before the write or of after it; the next look is of after it."""

    def overtaken(session: Session, name: str) -> int:
        found = _sequence(session, name)
        with named.write() as other:
            other.execute(update(CollectionRow).values(sequence=CollectionRow.sequence + 1))
        return found

    remembered = ReadThroughCache(named, overtaken)
    assert [remembered.get("a") for _ in range(3)] == [0, 1, 2]


def test_a_failed_read_is_not_remembered(named: Catalogue) -> None:
    fails = True

    def read(session: Session, name: str) -> int:
        if fails:
            raise CatalogueError("Nothing can be read.")
        return _sequence(session, name)

    remembered = ReadThroughCache(named, read)
    with pytest.raises(CatalogueError):
        remembered.get("a")
    fails = False
    assert remembered.get("a") == 0


def test_a_statement_finds_the_rows_of_its_keys(named: Catalogue) -> None:
    statement = select(CollectionRow.id, CollectionRow.name).order_by(CollectionRow.id)
    read = statement.where(CollectionRow.id.in_(bindparam("keys", expanding=True)))
    assert [tuple(row) for row in named.rows(read, [2, 3, 1])] == [(1, "a"), (2, "b")]
    assert [tuple(row) for row in named.rows(read, [2])] == [(2, "b")]
    assert named.rows(read, []) == []
    with named.write() as session:
        session.connection().exec_driver_sql("ALTER TABLE collections RENAME TO elsewhere")
    with pytest.raises(CatalogueError, match="cannot be used"):
        named.rows(read, [1])
