"""What is remembered of a catalogue is never older than its last write."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.orm import Session

from index.catalogue import Catalogue, DirectRead, ReadThroughCache, VersionedCache, open_catalogue
from index.catalogue.tables import CollectionRow
from index.errors import CatalogueError

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
def catalogue(catalogue_url: str) -> Iterator[Catalogue]:
    opened = open_catalogue(catalogue_url)
    with opened.write() as session:
        session.execute(insert(CollectionRow), [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    yield opened
    opened.close()


def _sequence(session: Session, name: str) -> int:
    found = session.execute(select(CollectionRow.sequence).where(CollectionRow.name == name)).scalar_one()
    assert isinstance(found, int)
    return found


def test_the_version_stands_still_until_something_is_committed(catalogue: Catalogue) -> None:
    before = catalogue.version()
    with catalogue.read() as session:
        assert _sequence(session, "a") == 0
    assert catalogue.version() == before
    with catalogue.write() as session:
        session.execute(update(CollectionRow).values(sequence=1))
        session.flush()
    after = catalogue.version()
    assert after != before
    assert catalogue.version() == after


def test_values_are_read_once_between_two_writes(catalogue: Catalogue) -> None:
    read: list[str] = []

    def sequence(session: Session, name: str) -> int:
        read.append(name)
        return _sequence(session, name)

    remembered = ReadThroughCache(catalogue, sequence)
    assert [remembered.get(name) for name in "abab"] == [0, 0, 0, 0]
    assert read == ["a", "b"]
    with catalogue.write() as session:
        session.execute(update(CollectionRow).values(sequence=7))
    assert [remembered.get(name) for name in "aa"] == [7, 7]
    assert read == ["a", "b", "a"]


def test_what_began_before_a_write_does_not_drop_what_was_kept_since(catalogue: Catalogue) -> None:
    kept: VersionedCache[str, int] = VersionedCache(catalogue)
    before = catalogue.version()
    kept.at(before)["a"] = 1
    with catalogue.write() as session:
        session.execute(update(CollectionRow).values(sequence=7))
    kept.at()["a"] = 2
    assert kept.at(before) == {}
    kept.at(before)["a"] = 3
    assert kept.at() == {"a": 2}


def test_another_process_is_noticed(catalogue: Catalogue, catalogue_url: str) -> None:
    remembered = ReadThroughCache(catalogue, _sequence)
    assert remembered.get("a") == 0
    subprocess.run([sys.executable, "-c", _WRITE, catalogue_url], check=True, timeout=60)
    assert remembered.get("a") == 8


def test_what_is_written_while_a_value_is_read_is_not_missed(catalogue: Catalogue) -> None:
    """The value may be of before the write or of after it; the next look is of after it."""

    def overtaken(session: Session, name: str) -> int:
        found = _sequence(session, name)
        with catalogue.write() as other:
            other.execute(update(CollectionRow).values(sequence=CollectionRow.sequence + 1))
        return found

    remembered = ReadThroughCache(catalogue, overtaken)
    assert [remembered.get("a") for _ in range(3)] == [0, 1, 2]


def test_a_failed_read_is_not_remembered(catalogue: Catalogue) -> None:
    fails = True

    def read(session: Session, name: str) -> int:
        if fails:
            raise CatalogueError("Nothing can be read.")
        return _sequence(session, name)

    remembered = ReadThroughCache(catalogue, read)
    with pytest.raises(CatalogueError):
        remembered.get("a")
    fails = False
    assert remembered.get("a") == 0


def test_a_direct_read_finds_the_rows_of_its_keys(catalogue: Catalogue) -> None:
    statement = select(CollectionRow.id, CollectionRow.name).order_by(CollectionRow.id)
    read = DirectRead(statement.where(CollectionRow.id.in_(bindparam("keys", expanding=True))))
    assert [tuple(row) for row in catalogue.rows(read, [2, 3, 1])] == [(1, "a"), (2, "b")]
    assert [tuple(row) for row in catalogue.rows(read, [2])] == [(2, "b")]
    assert catalogue.rows(read, []) == []
    with catalogue.write() as session:
        session.connection().exec_driver_sql("ALTER TABLE collections RENAME TO elsewhere")
    with pytest.raises(CatalogueError, match="cannot be used"):
        catalogue.rows(read, [1])
