import shutil
import sqlite3
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, insert, make_url, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.schema import CreateIndex, CreateTable

from index.catalogue import Catalogue, open_catalogue
from index.catalogue.schema import HEAD
from index.catalogue.tables import CollectionRow, EmbeddingRow, Table
from index.errors import CatalogueError, DamagedCatalogueError, NewerCatalogueError


def _url(folder: Path) -> str:
    return f"sqlite:///{folder / 'new' / 'catalogue.db'}"


def test_migrations_make_exactly_the_tables(tmp_path: Path) -> None:
    open_catalogue(_url(tmp_path)).close()
    with create_engine(_url(tmp_path)).connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "include_name": _ours})
        assert compare_metadata(context, Table.metadata) == []
    with sqlite3.connect(tmp_path / "new" / "catalogue.db") as migrated:
        rows = migrated.execute(
            "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND type != 'trigger'"
        ).fetchall()
    direct = create_engine("sqlite://")
    Table.metadata.create_all(direct)
    with direct.connect() as connection:
        wanted = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").all()
    found = {name: _words(sql) for name, sql in rows}
    assert {name: _words(sql) for name, sql in wanted} == {
        name: sql for name, sql in found.items() if name != "alembic_version" and _ours(name)
    }


def _ours(name: str | None, *_: object) -> bool:
    """Full-text tables are not among SQLAlchemy's."""
    return name is None or not name.startswith("image_words")


def _words(sql: str) -> list[str]:
    return sorted(sql.replace("(", " ").replace(")", " ").replace(",", " ").replace('"', "").split())


def test_the_tables_can_be_made_on_postgresql() -> None:
    dialect = make_url("postgresql://").get_dialect()()
    sql = "".join(str(CreateTable(table).compile(dialect=dialect)) for table in Table.metadata.sorted_tables)
    sql += "".join(
        str(CreateIndex(index).compile(dialect=dialect))
        for table in Table.metadata.sorted_tables
        for index in table.indexes
    )
    assert "id BIGSERIAL" in sql
    assert 'text_value TEXT COLLATE "C"' in sql


def test_a_second_opening_keeps_everything(tmp_path: Path) -> None:
    catalogue = open_catalogue(_url(tmp_path))
    with catalogue.write() as session:
        session.add(CollectionRow(name="c", sequence=3))
    catalogue.close()
    again = open_catalogue(_url(tmp_path))
    with again.read() as session:
        assert session.execute(select(CollectionRow.name, CollectionRow.sequence)).all() == [("c", 3)]
    again.close()


def test_sqlite_is_set_to_lose_nothing(tmp_path: Path) -> None:
    catalogue = open_catalogue(_url(tmp_path))
    with catalogue.read() as session:
        settings = [
            session.connection().exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        ]
    assert settings == ["wal", 2, 1, 60_000]
    catalogue.close()


def test_a_failed_write_changes_nothing(tmp_path: Path) -> None:
    catalogue = open_catalogue(_url(tmp_path))
    with pytest.raises(KeyError), catalogue.write() as session:
        session.add(CollectionRow(name="c", sequence=0))
        session.flush()
        raise KeyError
    with pytest.raises(IntegrityError), catalogue.write() as session:
        row = {"generation_id": 1, "image_id": 1, "sequence": 1, "vector": b""}
        session.execute(insert(EmbeddingRow), [row])
    with catalogue.read() as session:
        assert session.execute(select(CollectionRow.id)).all() == []
        assert session.execute(select(EmbeddingRow.image_id)).all() == []
    catalogue.close()


def test_a_read_sees_one_state_and_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    catalogue = open_catalogue(_url(tmp_path))
    with catalogue.read() as reader:
        assert reader.execute(select(CollectionRow.id)).all() == []
        with catalogue.write() as writer:
            writer.add(CollectionRow(name="c", sequence=0))
        assert reader.execute(select(CollectionRow.id)).all() == []
    with catalogue.read() as reader:
        assert len(reader.execute(select(CollectionRow.id)).all()) == 1
    catalogue.close()


def test_the_head_of_the_migrations_is_known() -> None:
    config = Config()
    config.set_main_option("script_location", "index.catalogue:migrations")
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    open_catalogue(_url(tmp_path)).close()
    with sqlite3.connect(tmp_path / "new" / "catalogue.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    with pytest.raises(NewerCatalogueError, match=r"schema 9999, which a newer version .* update recoquest"):
        open_catalogue(_url(tmp_path))


def test_what_is_no_catalogue_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(CatalogueError, match="not a database"):
        open_catalogue(f"sqlite:///{tmp_path / 'file.db'}")
    for url in ("sqlite://", "nonsense", "nosuch://host/name"):
        with pytest.raises(CatalogueError):
            Catalogue(url)
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(CatalogueError):
        open_catalogue(f"sqlite:///{tmp_path / 'folder.db'}")


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


def test_a_damaged_file_is_told_from_one_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "file.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(DamagedCatalogueError):
        open_catalogue(f"sqlite:///{tmp_path / 'file.db'}")
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(CatalogueError) as unreadable:
        open_catalogue(f"sqlite:///{tmp_path / 'folder.db'}")
    assert not isinstance(unreadable.value, DamagedCatalogueError)


def test_processes_that_open_at_once_all_succeed(tmp_path: Path) -> None:
    code = f"from index.catalogue import open_catalogue; open_catalogue({_url(tmp_path)!r}).close()"
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]
    for process in processes:
        assert process.wait(60) == 0, process.communicate()[1]


def test_a_closed_catalogue_leaves_its_log_empty_and_its_file_whole(tmp_path: Path) -> None:
    file = tmp_path / "catalogue.db"
    catalogue, other = (open_catalogue(f"sqlite:///{file}") for _ in range(2))
    for name, closed in (("a", catalogue), ("b", other)):
        with other.write() as session:
            session.execute(insert(CollectionRow).values(name=name))
        closed.close()
    assert {path.name: path.stat().st_size for path in tmp_path.glob("*-*")} == {
        "catalogue.db-shm": 32_768,
        "catalogue.db-wal": 0,
    }
    # The file alone is whole, and what is beside it adds nothing to another one that is put there.
    alone = tmp_path / "alone.db"
    shutil.copy(file, alone)
    with other.write() as session:
        session.execute(insert(CollectionRow).values(name="c"))
    other.close()
    shutil.copy(alone, file)
    again = open_catalogue(f"sqlite:///{file}")
    with again.read() as session:
        assert session.execute(select(CollectionRow.name).order_by("name")).scalars().all() == ["a", "b"]
    again.close()


def test_many_may_read_at_once(tmp_path: Path) -> None:
    catalogue = open_catalogue(_url(tmp_path))
    with ExitStack() as readers:
        for _ in range(40):
            session = readers.enter_context(catalogue.read())
            assert session.execute(select(CollectionRow.id)).all() == []
    catalogue.close()


def test_connections_that_are_all_in_use_are_a_clear_error(tmp_path: Path) -> None:
    catalogue = Catalogue(_url(tmp_path))
    with pytest.raises(CatalogueError, match="are in use"), catalogue.read():
        raise PoolTimeoutError("QueuePool limit reached")
