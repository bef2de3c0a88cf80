import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from index.catalogue import Catalogue, open_catalogue
from index.catalogue.schema import HEAD
from index.catalogue.tables import CollectionRow, EmbeddingRow, Table
from index.errors import CatalogueError, CatalogueSchemaError, DamagedCatalogueError
from tests.index.catalogue.revisions import oldest_schema

_DEFINITIONS = {
    "sqlite": "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL",
    "postgresql": """
    SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
    UNION SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
    UNION SELECT proname, prosrc FROM pg_proc WHERE proname LIKE 'audit%%'
    UNION SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace AND contype IN ('f', 'p', 'u')
    UNION SELECT table_name || '.' || column_name, concat_ws(' ', data_type, collation_name, is_nullable,
        character_maximum_length) FROM information_schema.columns WHERE table_schema = 'public'
    """,
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "new" / "catalogue.db"


@pytest.fixture
def url(file: Path) -> str:
    return f"sqlite:///{file}"


@pytest.fixture
def catalogue(url: str) -> Iterator[Catalogue]:
    with closing(open_catalogue(url)) as opened:
        yield opened


def test_a_new_catalogue_and_one_of_the_oldest_schema_end_with_the_same_tables(
    catalogue_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "home" / "catalogue.db"
    new = _definitions(catalogue_url)
    if catalogue_url.startswith("sqlite"):
        file.unlink()
    else:
        with create_engine(catalogue_url).begin() as connection:
            connection.exec_driver_sql("DROP SCHEMA public CASCADE")
            connection.exec_driver_sql("CREATE SCHEMA public")
    with oldest_schema(catalogue_url):
        pass
    assert _definitions(catalogue_url) == new
    assert {"audit_names_update", "ix_images_split"} <= set(new)


def _definitions(url: str) -> dict[str, list[str]]:
    """Open a catalogue, compare it with the models, and return how its parts are defined, by their names."""
    open_catalogue(url).close()
    engine = create_engine(url)
    with engine.connect() as connection:
        options = {"compare_type": True, "compare_server_default": True, "include_name": _ours}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, Table.metadata) == []
        assert context.get_current_revision() == HEAD
        found = connection.exec_driver_sql(_DEFINITIONS[connection.dialect.name]).all()
    engine.dispose()
    # The columns of an older catalogue are in another order.
    return {name: sorted(re.findall(r'[^\s(),"]+', sql)) for name, sql in found}


def _ours(name: str | None, *_: object) -> bool:
    """Full-text tables are not among SQLAlchemy's."""
    return name is None or not name.startswith("image_words")


def test_sqlite_is_set_to_lose_nothing(catalogue: Catalogue) -> None:
    with catalogue.read() as session:
        settings = [
            session.connection().exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        ]
    assert settings == ["wal", 2, 1, 60_000]


def test_a_failed_write_changes_nothing(catalogue: Catalogue) -> None:
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


def test_reads_see_one_state_many_at_once_and_do_not_wait_for_a_writer(catalogue: Catalogue) -> None:
    with ExitStack() as readers:
        reading = [readers.enter_context(catalogue.read()) for _ in range(40)]
        assert all(reader.execute(select(CollectionRow.id)).all() == [] for reader in reading)
        with catalogue.write() as writer:
            writer.add(CollectionRow(name="c", sequence=0))
        assert all(reader.execute(select(CollectionRow.id)).all() == [] for reader in reading)
    with catalogue.read() as reader:
        assert len(reader.execute(select(CollectionRow.id)).all()) == 1


def test_the_head_of_the_migrations_is_known() -> None:
    config = Config()
    config.set_main_option("script_location", "index.catalogue:migrations")
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD


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


def test_connections_that_are_all_in_use_are_a_clear_error(catalogue: Catalogue) -> None:
    with pytest.raises(CatalogueError, match="are in use"), catalogue.read():
        raise PoolTimeoutError("QueuePool limit reached")
