"""How long a process waits for a catalogue that others write to, that is slow, or that does not answer."""

import errno
import socket
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import insert, select, text, update

from index.catalogue import Catalogue, Patience, open_catalogue
from index.catalogue.connections import is_disk_full, without_password
from index.catalogue.tables import CollectionRow
from index.errors import CatalogueBusyError, CatalogueError, CatalogueTimeoutError
from tests.frozen import frozen_writer
from tests.index.homes import execute, scalars

HASTY = Patience(statement_s=0.3, lock_s=0.3)
BUSY = r"Another process has been writing to the catalogue .* for 0\.3 seconds: nothing was written"


@pytest.fixture
def hasty(catalogue_url: str) -> Iterator[Catalogue]:
    opened = open_catalogue(catalogue_url, HASTY)
    execute(opened, insert(CollectionRow).values(name="c", sequence=1))
    yield opened
    opened.close()


def rename(catalogue: Catalogue, name: str) -> None:
    execute(catalogue, update(CollectionRow).values(name=name))


def names(catalogue: Catalogue) -> list[str]:
    return scalars(catalogue, select(CollectionRow.name))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:se:cr@et@h:5432/db", "postgresql://u:***@h:5432/db"),
        ("postgresql://h/db?user=u&password=x&p%61ss=y", "postgresql://h/db?user=u&password=***&p%61ss=***"),
        ("sqlite:////data/a:b@c/catalogue.db", "sqlite:////data/a:b@c/catalogue.db"),
    ],
)
def test_an_address_is_shown_without_its_passwords(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_errors_of_a_full_disk_are_told_from_others() -> None:
    results = [is_disk_full(OSError(code, "")) for code in (errno.ENOSPC, errno.EDQUOT, errno.EIO)]
    for code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR):
        error = sqlite3.OperationalError()
        error.sqlite_errorcode = code
        results.append(is_disk_full(error))
    assert results == [True, True, False, True, True, False]
    assert not is_disk_full(None)


def test_a_write_gives_up_while_another_one_goes_on_and_reads_do_not_wait(
    hasty: Catalogue, catalogue_url: str
) -> None:
    other = open_catalogue(catalogue_url)
    with other.write() as session, ThreadPoolExecutor(1) as thread:
        session.execute(update(CollectionRow).values(name="theirs"))
        with pytest.raises(CatalogueBusyError, match=BUSY):
            thread.submit(rename, hasty, "ours").result()
        assert names(hasty) == ["c"]
        before = hasty.version()
        open_catalogue(catalogue_url, HASTY).close()
    assert names(hasty) == ["theirs"]
    assert hasty.version() != before
    rename(hasty, "ours")
    assert names(other) == ["ours"]
    other.close()


def test_a_process_that_is_stopped_while_it_writes_holds_up_writes_alone(tmp_path: Path) -> None:
    database = tmp_path / "catalogue.db"
    catalogue = open_catalogue(f"sqlite:///{database}", HASTY)
    execute(catalogue, insert(CollectionRow).values(name="c", sequence=1))
    with frozen_writer(database):
        for _ in range(2):
            with pytest.raises(CatalogueBusyError, match=BUSY):
                rename(catalogue, "ours")
            assert names(catalogue) == ["c"]
            catalogue.version()
        late = open_catalogue(f"sqlite:///{database}", HASTY)
        assert names(late) == ["c"]
        late.close()
    rename(catalogue, "ours")
    assert names(catalogue) == ["ours"]
    catalogue.close()


@pytest.mark.slow
def test_a_statement_that_reads_for_too_long_is_cut_off_and_one_that_writes_is_not(
    postgresql_url: str,
) -> None:
    catalogue = open_catalogue(postgresql_url, HASTY)
    with (
        pytest.raises(CatalogueTimeoutError, match="took too long and was cut off"),
        catalogue.read() as session,
    ):
        session.execute(text("SELECT pg_sleep(60)"))
    with catalogue.write() as session:
        session.execute(text("SELECT pg_sleep(0.6)"))
        session.add(CollectionRow(name="c", sequence=1))
    assert names(catalogue) == ["c"]
    catalogue.close()
    patient = open_catalogue(postgresql_url)
    with patient.read() as session:
        session.execute(text("SELECT pg_sleep(0.6)"))
    patient.close()


@pytest.mark.slow
def test_a_writer_that_says_nothing_lets_others_go_on(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue = open_catalogue(postgresql_url)
    execute(catalogue, insert(CollectionRow).values(name="c", sequence=1))
    monkeypatch.setattr("index.catalogue.connections._IDLE_MS", 200)
    with pytest.raises(CatalogueError), catalogue.write() as session:
        session.execute(update(CollectionRow).values(name="idle"))
        rename(catalogue, "theirs")
        session.execute(select(CollectionRow.name))
    assert names(catalogue) == ["theirs"]
    catalogue.close()


@pytest.mark.slow
def test_connections_find_out_that_a_server_is_gone_as_their_address_says(postgresql_url: str) -> None:
    catalogue = open_catalogue(f"{postgresql_url}&keepalives_idle=7")
    with catalogue.read() as session:
        driver = session.connection().connection.driver_connection
        assert driver is not None
        parameters = driver.info.get_parameters()
    catalogue.close()
    assert parameters["connect_timeout"] == "10"
    assert parameters["keepalives_idle"] == "7"
    assert parameters["tcp_user_timeout"] == "60000"


@pytest.mark.slow
def test_a_server_that_takes_connections_and_says_nothing_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setattr("index.catalogue.connections._LIBPQ", {"connect_timeout": 2})
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(CatalogueError, match="timeout"):
            open_catalogue(f"postgresql+psycopg://someone@127.0.0.1:{port}/catalogue")
