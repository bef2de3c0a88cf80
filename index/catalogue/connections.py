"""Connections to a catalogue's database, and how long a process waits for it."""

import errno
import math
import re
import sqlite3
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from pydantic_core import from_json
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from index.errors import CatalogueError

# Timeouts by which libpq detects a lost server, at the connection and afterwards.
_LIBPQ: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
_LIBPQ_DRIVERS: Final = ("psycopg", "psycopg2")
# Shorter than the pause of who writes batch after batch.
_ASK_AGAIN_SECONDS: Final = 0.003
# A writer that is idle for so long, such as a suspended process, loses its transaction.
_IDLE_MS: Final = 300_000
# A parameter of a URL.
_PARAMETER: Final = re.compile(r"(?<=[?&])(?P<name>[^=&?]*)=[^&]*")
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
# The second: there is no space for the index of a write-ahead log, which readers need as well.
_SQLITE: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)
_POSTGRESQL: Final = "53100"


@dataclass(frozen=True, slots=True)
class Patience:
    """Wait limits of a process for a catalogue's database.

    Attributes:
        statement_s: Limit of a reading statement on PostgreSQL, in seconds; None: no limit.
        lock_s: Limit for a write lock and for a connection, in seconds.
    """

    statement_s: float | None = None
    lock_s: float = 60.0


# Limits of a command, whose caller waits for that one result.
PATIENT: Final = Patience()


def engine_of(url: str, patience: Patience) -> Engine:
    """Return the SQLAlchemy engine of a URL.

    Raises:
        CatalogueError: The URL cannot be used.
    """
    try:
        parsed = _parsed(url)
        if parsed.get_backend_name() != "sqlite":
            return _server_engine(parsed, patience)
        if not parsed.database or parsed.database == ":memory:":
            raise CatalogueError("The catalogue needs a file: give sqlite:///FOLDER/catalogue.db.")
        Path(parsed.database).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Readers that wait for a view to be loaded hold their connections; nobody else may wait for those.
        engine = create_engine(
            parsed, connect_args={"timeout": patience.lock_s}, max_overflow=-1, json_deserializer=from_json
        )
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        raise CatalogueError(f"The address of the catalogue cannot be used: {error}.") from error
    except (TypeError, ValueError) as error:
        shown = without_password(url)
        raise CatalogueError(f"The address of the catalogue, {shown}, cannot be used: {error}.") from None
    except OSError as error:
        raise CatalogueError(f"The catalogue's folder cannot be made: {error}.") from error
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _SqliteTurns(patience).begin)
    return engine


def _server_engine(url: URL, patience: Patience) -> Engine:
    libpq_args = {}
    if url.get_driver_name() in _LIBPQ_DRIVERS:
        libpq_args = {name: value for name, value in _LIBPQ.items() if name not in url.query}
    engine = create_engine(
        url,
        pool_pre_ping=True,
        pool_timeout=patience.lock_s,
        connect_args=libpq_args,
        json_deserializer=from_json,
    )
    if engine.dialect.name == "postgresql":
        event.listen(engine, "connect", partial(_prepare_postgresql, patience))
        event.listen(engine, "begin", partial(_begin_postgresql, patience))
    return engine


def _prepare_postgresql(patience: Patience, connection: Any, _record: object) -> None:
    if patience.statement_s is not None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET statement_timeout = {_milliseconds(patience.statement_s)}")
        connection.commit()


def _begin_postgresql(patience: Patience, connection: Connection) -> None:
    if connection.get_execution_options().get("recoquest_writes"):
        # A write is never cut off, since others wait for none of its statements but the locks.
        limits = {
            "statement_timeout": 0,
            "lock_timeout": _milliseconds(patience.lock_s),
            "idle_in_transaction_session_timeout": _IDLE_MS,
        }
        settings = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in limits.items())
        connection.exec_driver_sql(f"SELECT {settings}")


def _milliseconds(seconds: float) -> int:
    # PostgreSQL takes 0 for no limit.
    return max(1, round(seconds * 1000))


def _parsed(url: str) -> URL:
    """Return the parts of an address.

    Raises:
        ValueError: A part cannot be used; the message shows nothing of the password.
    """
    try:
        parsed = make_url(url)
    except ValueError:
        # The parser's message may show a part of a password that contains an @.
        raise ValueError("the port is not a number") from None
    if "@" in (parsed.host or ""):
        raise ValueError("write an @ in the password as %40")
    return parsed


def _prepare_sqlite(connection: Any, _record: object) -> None:
    # Transactions are begun by _SqliteTurns; the driver's own rules would leave reads without one.
    connection.isolation_level = None
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    # Not every build of SQLite has it.
    connection.create_function("ln", 1, math.log, deterministic=True)


class _SqliteTurns:
    """Begins transactions; only one thread of a process requests the write lock at a time.

    SQLite itself asks again after up to a tenth of a second, and misses the moments between the transactions
    of somebody who writes batch after batch.
    """

    def __init__(self, patience: Patience) -> None:
        self._lock_s = patience.lock_s
        self._set_timeout = f"PRAGMA busy_timeout = {_milliseconds(patience.lock_s)}"
        self._turn = threading.Lock()

    def begin(self, connection: Connection) -> None:
        """Begin a read, or a write with its lock: a read that later writes could find itself behind."""
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        if not connection.get_execution_options().get("recoquest_writes"):
            driver.execute("BEGIN")
            return
        deadline = time.monotonic() + self._lock_s
        mine = self._turn.acquire(timeout=self._lock_s)
        driver.execute("PRAGMA busy_timeout = 0")
        try:
            while True:
                try:
                    driver.execute("BEGIN IMMEDIATE")
                    return
                except sqlite3.OperationalError as error:
                    if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                        raise
                    time.sleep(_ASK_AGAIN_SECONDS)
        finally:
            if mine:
                self._turn.release()
            driver.execute(self._set_timeout)


def use_write_ahead_log(engine: Engine, patience: Patience) -> None:
    """Let readers of an SQLite database proceed while others write."""
    deadline = time.monotonic() + patience.lock_s
    connection = engine.raw_connection()
    try:
        while True:
            try:
                connection.cursor().execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                # The switch does not wait for other processes by itself.
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
    finally:
        connection.close()


def without_password(url: str) -> str:
    """A database's URL to be shown; it takes passwords before the host and as parameters."""
    scheme, separator, rest = url.partition("://")
    credentials, at, address = rest.rpartition("@")
    # A path begins with a slash, and may have an @ as well.
    if at and not rest.startswith("/"):
        rest = f"{credentials.partition(':')[0]}:***@{address}"
    return scheme + separator + _PARAMETER.sub(_hidden, rest)


def _hidden(parameter: re.Match[str]) -> str:
    name = parameter["name"]
    return f"{name}=***" if "pass" in unquote(name).lower() else parameter[0]


def is_disk_full(error: BaseException | None) -> bool:
    """Return whether an error of the system or of a database's driver is that of a full disk."""
    if isinstance(error, OSError):
        return error.errno in _NO_SPACE
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", None) in _SQLITE
    return getattr(error, "sqlstate", None) == _POSTGRESQL
