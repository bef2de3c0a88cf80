"""Every commit is seen by the next look of every process, though SQLite is hardly ever asked."""

import gc
import math
import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Hashable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import func, insert, select

from index.catalogue import Catalogue, open_catalogue
from index.catalogue import version as version_module
from index.catalogue.commits import CommitCount
from index.catalogue.tables import CollectionRow
from index.catalogue.version import Watch

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
# Ends at its first write into the file of commits, or right after its second one would begin.
KILLED = """
import os, sys
from sqlalchemy import insert
from index.catalogue import open_catalogue
from index.catalogue.tables import CollectionRow

write, last = os.pwrite, int(sys.argv[2])

def killed(file, data, place):
    if last:
        os._exit(9) if place else write(file, data, place)
    else:
        write(file, data, place)
        os._exit(9)

os.pwrite = killed
with open_catalogue(sys.argv[1]).write() as session:
    session.execute(insert(CollectionRow).values(name="killed"))
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'catalogue.db'}"


@pytest.fixture
def catalogue(url: str) -> Iterator[Catalogue]:
    with closing(open_catalogue(url)) as catalogue:
        yield catalogue


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Hashable]:
    """What SQLite answered; it is asked again only where the number of commits says so."""
    answers: list[Hashable] = []
    ask = Watch._data_version

    def noted(self: Watch) -> Hashable:
        answers.append(ask(self))
        return answers[-1]

    monkeypatch.setattr(Watch, "_data_version", noted)
    monkeypatch.setattr(version_module, "_TRUSTED_SECONDS", math.inf)
    return answers


def _put(catalogue: Catalogue, name: str) -> None:
    with catalogue.write() as session:
        session.execute(insert(CollectionRow).values(name=name))


def _count(catalogue: Catalogue) -> int:
    with catalogue.read() as session:
        return session.execute(select(func.count()).select_from(CollectionRow)).scalar_one()


def _run(code: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, text=True)


def test_every_write_is_seen_at_once_and_sqlite_asked_only_then(
    catalogue: Catalogue, url: str, asked: list[Hashable]
) -> None:
    with closing(open_catalogue(url)) as other:
        versions = [catalogue.version()]
        for number in range(20):
            writer = (catalogue, other)[number % 2]
            _put(writer, str(number))
            versions += [catalogue.version() for _ in range(50)]
    assert len(set(versions)) == 21
    assert len(asked) <= 21


def test_one_version_is_one_state_while_processes_write(
    catalogue: Catalogue, url: str, asked: list[Hashable]
) -> None:
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


@pytest.mark.parametrize("committed", [True, False])
def test_a_writer_that_is_killed_at_its_commit_leaves_nothing_unseen(
    catalogue: Catalogue, url: str, asked: list[Hashable], *, committed: bool
) -> None:
    _put(catalogue, "first")
    before = catalogue.version()
    assert _run(KILLED, url, str(int(committed))).wait(60) == 9
    assert _count(catalogue) == 1 + committed
    assert (catalogue.version() != before) == committed
    # Whether anybody is still about to commit cannot be told.
    looks = len(asked)
    assert catalogue.version() == catalogue.version()
    assert len(asked) == looks + 2
    before = catalogue.version()
    _put(catalogue, "next")
    looks = len(asked)
    assert catalogue.version() == catalogue.version() != before
    assert len(asked) == looks + 1


def test_a_write_that_fails_or_does_nothing_does_not_keep_others_asking(
    catalogue: Catalogue, asked: list[Hashable]
) -> None:
    with catalogue.write():
        pass
    with pytest.raises(ZeroDivisionError), catalogue.write() as session:
        session.execute(insert(CollectionRow).values(name=str(1 / 0)))
    catalogue.version()
    looks = len(asked)
    assert catalogue.version() == catalogue.version()
    assert len(asked) == looks


def test_what_another_program_writes_is_seen_before_long(catalogue: Catalogue, tmp_path: Path) -> None:
    before = catalogue.version()
    with closing(sqlite3.connect(tmp_path / "catalogue.db")) as connection, connection:
        connection.execute("CREATE TABLE other (value)")
    deadline = time.monotonic() + 10
    while catalogue.version() == before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("damage", [b"\xff" * 16, b"\xff" * 8 + b"\1" + bytes(7), b"", b"\1" * 5])
def test_damaged_numbers_hide_no_write(
    catalogue: Catalogue, url: str, tmp_path: Path, asked: list[Hashable], damage: bytes
) -> None:
    _put(catalogue, "first")
    with closing(open_catalogue(url)) as other:
        catalogue.version()
        (tmp_path / "catalogue.db-commits").write_bytes(damage)
        for number in range(4):
            before = catalogue.version()
            _put(other, str(number))
            assert catalogue.version() != before


def test_without_the_file_every_write_is_seen_all_the_same(
    tmp_path: Path, asked: list[Hashable], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "catalogue.db-commits").mkdir()
    url = f"sqlite:///{tmp_path / 'catalogue.db'}"
    with closing(open_catalogue(url)) as catalogue, closing(open_catalogue(url)) as other:
        for number in range(4):
            before = catalogue.version()
            _put((catalogue, other)[number % 2], str(number))
            assert catalogue.version() != before
        (tmp_path / "catalogue.db-commits").rmdir()
        _put(catalogue, "the file can be made")
        _put(other, "and is used")
        looks = (catalogue.version(), len(asked))
        assert (catalogue.version(), len(asked)) == looks
    # Each of the two says so once.
    assert [record.message.split(" (")[0] for record in caplog.records] == [
        f"{tmp_path / 'catalogue.db-commits'} cannot be written"
    ] * 2


def test_who_may_write_to_the_database_may_write_to_the_file(catalogue: Catalogue, tmp_path: Path) -> None:
    (tmp_path / "catalogue.db").chmod(0o660)
    _put(catalogue, "first")
    assert stat.S_IMODE((tmp_path / "catalogue.db-commits").stat().st_mode) == 0o660


def test_a_closed_count_is_opened_again_and_leaves_no_file_open(tmp_path: Path) -> None:
    database = tmp_path / "some.db"
    database.touch()
    # Files of tests before are closed with their objects.
    gc.collect()
    count, opened = CommitCount(database), _open_files()
    for number in range(3):
        with count.commit():
            assert count.settled() is None
        assert count.settled() == number + 1
        count.close()
        assert _open_files() == opened
    assert count.settled() == 3
    del count
    gc.collect()
    assert _open_files() == opened


@pytest.mark.parametrize("at", [0, 8])
def test_a_file_that_is_being_written_is_not_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Else the number could get into another file, which was opened under the same descriptor."""
    database, write = tmp_path / "some.db", os.pwrite
    database.touch()
    count = CommitCount(database)
    closing_it = threading.Thread(target=count.close)
    waited: list[bool] = []

    def slow(file: int, data: bytes, place: int) -> int:
        if place == at:
            closing_it.start()
            closing_it.join(0.2)
            waited.append(closing_it.is_alive())
        return write(file, data, place)

    monkeypatch.setattr(os, "pwrite", slow)
    with count.commit():
        pass
    closing_it.join(30)
    assert waited == [True]
    assert count.settled() == 1


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
