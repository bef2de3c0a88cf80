"""The catalogue on both databases: what is refused, what is kept, and who sees which commit."""

import select as readiness
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Hashable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session

from index.catalogue import Catalogue, ReadThroughCache, VersionedCache, open_catalogue
from index.catalogue.tables import CollectionRow, EmbeddingRow
from index.errors import CatalogueError, CatalogueSchemaError, DamagedCatalogueError
from tests.index.homes import count_rows, execute, scalars


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "new" / "catalogue.db"


@pytest.fixture
def url(file: Path) -> str:
    return f"sqlite:///{file}"


@pytest.fixture
def on_sqlite(url: str) -> Iterator[Catalogue]:
    with closing(open_catalogue(url)) as opened:
        yield opened


def test_sqlite_is_set_to_lose_nothing(on_sqlite: Catalogue) -> None:
    with on_sqlite.read() as session:
        settings = [
            session.connection().exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        ]
    assert settings == ["wal", 2, 1, 60_000]


def test_a_failed_write_changes_nothing(on_sqlite: Catalogue) -> None:
    with pytest.raises(KeyError), on_sqlite.write() as session:
        session.add(CollectionRow(name="c", sequence=0))
        session.flush()
        raise KeyError
    with pytest.raises(IntegrityError), on_sqlite.write() as session:
        row = {"generation_id": 1, "image_id": 1, "sequence": 1, "vector": b""}
        session.execute(insert(EmbeddingRow), [row])
    with on_sqlite.read() as session:
        assert session.execute(select(CollectionRow.id)).all() == []
        assert session.execute(select(EmbeddingRow.image_id)).all() == []


def test_reads_see_one_state_many_at_once_and_do_not_wait_for_a_writer(on_sqlite: Catalogue) -> None:
    with ExitStack() as readers:
        reading = [readers.enter_context(on_sqlite.read()) for _ in range(40)]
        assert all(reader.execute(select(CollectionRow.id)).all() == [] for reader in reading)
        with on_sqlite.write() as writer:
            writer.add(CollectionRow(name="c", sequence=0))
        assert all(reader.execute(select(CollectionRow.id)).all() == [] for reader in reading)
    with on_sqlite.read() as reader:
        assert len(reader.execute(select(CollectionRow.id)).all()) == 1


@pytest.mark.parametrize(
    ("revision", "reason"),
    [
        ("9999", "schema 9999, which a newer version .* update recoquest"),
        ("0029", "schema 0029, which a newer version .* update recoquest"),
        ("0025", "schema 0025, and the oldest .* opens is 0026: index your data again in a new home"),
        ("0001", "schema 0001, and the oldest .* opens is 0026: index your data again in a new home"),
    ],
)
def test_other_schemas_are_refused_and_left_alone(file: Path, url: str, revision: str, reason: str) -> None:
    open_catalogue(url).close()
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    before = file.read_bytes()
    with pytest.raises(CatalogueSchemaError, match=reason):
        open_catalogue(url)
    assert file.read_bytes() == before


def test_what_is_no_catalogue_is_refused_and_a_damaged_one_told_from_others(tmp_path: Path) -> None:
    (tmp_path / "file.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(DamagedCatalogueError, match="not a database"):
        open_catalogue(f"sqlite:///{tmp_path / 'file.db'}")
    for url in ("sqlite://", "nonsense", "nosuch://host/name"):
        with pytest.raises(CatalogueError):
            Catalogue(url)
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(CatalogueError) as unreadable:
        open_catalogue(f"sqlite:///{tmp_path / 'folder.db'}")
    assert not isinstance(unreadable.value, DamagedCatalogueError)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql+psycopg://u:secret@h:port/db", "the port is not a number"),
        ("postgresql+psycopg://u:@host:secret@h:5432/db", "the port is not a number"),
        ("postgresql+psycopg://u:p@secret@h:5432/db", "write an @ in the password as %40"),
        ("sqlite:///{folder}/new.db?timeout=soon", "could not convert string to float: 'soon'"),
        ("sqlite:///{folder}/new.db?timeout=1&timeout=2", "float\\(\\) argument must be"),
        (
            "postgresql+psycopg://u:secret@127.0.0.1:1/db?nonsense=1",
            'invalid connection option "nonsense"\\.',
        ),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_its_password(
    tmp_path: Path, url: str, reason: str
) -> None:
    if url.startswith("postgresql"):
        pytest.importorskip("psycopg")
    with pytest.raises(CatalogueError, match=f"cannot be used: {reason}") as refused:
        open_catalogue(url.format(folder=tmp_path))
    assert "secret" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_processes_that_open_at_once_all_succeed(url: str) -> None:
    code = f"from index.catalogue import open_catalogue; open_catalogue({url!r}).close()"
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]
    for process in processes:
        assert process.wait(60) == 0, process.communicate()[1]


def test_a_closed_catalogue_leaves_its_log_empty_and_its_file_whole(tmp_path: Path) -> None:
    file = tmp_path / "catalogue.db"
    catalogue, other = (open_catalogue(f"sqlite:///{file}") for _ in range(2))
    for name, closed in (("a", catalogue), ("b", other)):
        execute(other, insert(CollectionRow).values(name=name))
        closed.close()
    assert {path.name: path.stat().st_size for path in tmp_path.glob("*-*")} == {
        "catalogue.db-shm": 32_768,
        "catalogue.db-wal": 0,
    }
    # The file alone is complete; files that came with it add nothing to another one that takes its place.
    alone = tmp_path / "alone.db"
    shutil.copy(file, alone)
    execute(other, insert(CollectionRow).values(name="c"))
    other.close()
    shutil.copy(alone, file)
    again = open_catalogue(f"sqlite:///{file}")
    assert scalars(again, select(CollectionRow.name).order_by("name")) == ["a", "b"]
    again.close()


def test_connections_that_are_all_in_use_are_a_clear_error(on_sqlite: Catalogue) -> None:
    with pytest.raises(CatalogueError, match="are in use"), on_sqlite.read():
        raise PoolTimeoutError("QueuePool limit reached")


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


def _put(catalogue: Catalogue, name: str) -> None:
    execute(catalogue, insert(CollectionRow).values(name=name))


@contextmanager
def _writers(url: str) -> Iterator[list["subprocess.Popen[str]"]]:
    """Processes that write at the same time, each round when it is signalled."""
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


def test_every_write_is_seen_at_once(on_sqlite: Catalogue, url: str) -> None:
    with closing(open_catalogue(url)) as other:
        versions = [on_sqlite.version()]
        for number in range(20):
            writer = (on_sqlite, other)[number % 2]
            _put(writer, str(number))
            versions += [on_sqlite.version() for _ in range(50)]
    assert len(set(versions)) == 21


@pytest.mark.slow
def test_one_version_is_one_state_while_processes_write(on_sqlite: Catalogue, url: str) -> None:
    counts: dict[Hashable, int] = {}

    def look() -> None:
        version, count = on_sqlite.version(), count_rows(on_sqlite, CollectionRow)
        if on_sqlite.version() == version:
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
            assert counts[on_sqlite.version()] == (round_ + 1) * WRITERS * COMMITS
    assert len(counts) >= ROUNDS


def test_a_write_of_another_program_is_seen_at_once(on_sqlite: Catalogue, file: Path) -> None:
    before = on_sqlite.version()
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE other (value)")
    assert on_sqlite.version() != before


def test_a_closed_watch_looks_again_by_another_connection(on_sqlite: Catalogue) -> None:
    before = on_sqlite.version()
    on_sqlite.close()
    _put(on_sqlite, "later")
    assert on_sqlite.version() != before


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
    result = session.execute(select(CollectionRow.sequence).where(CollectionRow.name == name)).scalar_one()
    assert isinstance(result, int)
    return result


def test_values_are_read_once_between_two_writes(named: Catalogue) -> None:
    read: list[str] = []

    def sequence(session: Session, name: str) -> int:
        read.append(name)
        return _sequence(session, name)

    remembered = ReadThroughCache(named, sequence)
    assert [remembered.get(name) for name in "abab"] == [0, 0, 0, 0]
    assert read == ["a", "b"]
    execute(named, update(CollectionRow).values(sequence=7))
    assert [remembered.get(name) for name in "aa"] == [7, 7]
    assert read == ["a", "b", "a"]


def test_what_began_before_a_write_does_not_drop_what_was_kept_since(named: Catalogue) -> None:
    kept: VersionedCache[str, int] = VersionedCache(named)
    before = named.version()
    kept.at(before)["a"] = 1
    execute(named, update(CollectionRow).values(sequence=7))
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
        result = _sequence(session, name)
        with named.write() as other:
            other.execute(update(CollectionRow).values(sequence=CollectionRow.sequence + 1))
        return result

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
