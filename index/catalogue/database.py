"""The catalogue: transactions, reads, and caches of reads until something is written."""

import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import URL, Dialect, PoolProxiedConnection, Select, select
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DatabaseError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session
from sqlalchemy.sql.compiler import ExpandedState

from index.catalogue.connections import (
    PATIENT,
    Patience,
    engine_of,
    is_disk_full,
    use_write_ahead_log,
    without_password,
)
from index.catalogue.schema import RULES, DerivedRow, upgrade_schema
from index.errors import (
    CatalogueBusyError,
    CatalogueError,
    CatalogueTimeoutError,
    DamagedCatalogueError,
    DiskFullError,
)

# Pause between two batches of a long write, so that other writers get a turn.
PAUSE_SECONDS: Final = 0.01
_SQLITE_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
# SQLSTATE of a lock timeout and of a deadlock.
_POSTGRESQL_BUSY: Final = ("55P03", "40P01")
_POSTGRESQL_CUT: Final = "57014"
# PostgreSQL ended the transaction of a writer that was idle for too long.
_POSTGRESQL_IDLE: Final = "25P03"
_SQLITE_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

_log = logging.getLogger(__name__)
# Statements differ by how many keys they name.
_CACHE_STATEMENTS: Final = 256
_PAST: Final = 8
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Reading(ExitStack):
    """Opens a session on first use: opening one takes longer than a search that needs none.

    `read` opens the session, and `opened` is whether it was.
    """

    def __init__(self, read: Callable[[], AbstractContextManager[Session]]) -> None:
        super().__init__()
        self._read = read
        self.opened = False

    @cached_property
    def session(self) -> Session:
        """The session, whose queries all see one state of the catalogue."""
        session = self.enter_context(self._read())
        self.opened = True
        return session


@lru_cache(_CACHE_STATEMENTS)
def _expanded(statement: Select[*tuple[Any, ...]], dialect: Dialect, count: int) -> ExpandedState:
    """Return a statement for so many keys; its parameters are their indices."""
    return statement.compile(dialect=dialect).construct_expanded_state({"keys": [*range(count)]})


class Catalogue:
    """A catalogue's database; open it with `open_catalogue`, which brings its tables up to date.

    Any number of threads and processes may share one.

    Attributes:
        guard: Called before every write, and when the database cannot be used; what it raises refuses the
            write, and replaces the database's error.
    """

    def __init__(self, url: str, patience: Patience = PATIENT) -> None:
        self._patience = patience
        self._engine = self._reader = engine_of(url, patience)
        if self._engine.dialect.name != "sqlite":
            self._reader = self._engine.execution_options(isolation_level="REPEATABLE READ")
        self._writer = self._engine.execution_options(recoquest_writes=True)
        # Distinguishes states of an SQLite database; see `version`.
        self._watching = threading.Lock()
        self._watch: tuple[PoolProxiedConnection, DBAPICursor] | None = None
        self._watched = 0
        self.guard: Callable[[], None] = lambda: None

    @property
    def url(self) -> str:
        """URL of the database, without its password."""
        return without_password(self._engine.url.render_as_string(hide_password=True))

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Give a session whose queries all see one state of the catalogue."""
        try:
            with Session(self._reader, autoflush=False) as session:
                yield session
        except Exception as error:
            self._translate(error)
            raise

    def reading(self) -> Reading:
        """Give a `Reading`, which opens a session of `read` when one is first needed."""
        return Reading(self.read)

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Give a session that commits to the disk when the block ends well, and else changes nothing."""
        self.guard()
        try:
            with Session(self._writer) as session, session.begin():
                yield session
        except Exception as error:
            self._translate(error, writing=True)
            raise

    def rows(self, statement: Select[*tuple[Any, ...]], keys: Sequence[int]) -> list[Any]:
        """Return the rows of some keys, all of one state; values are as the driver gives them.

        A session would take twice as long for the few rows of a page (measured).

        Args:
            statement: Selects by `in_(bindparam("keys", expanding=True))`.
            keys: The keys.
        """
        if not keys:
            return []
        compiled = _expanded(statement, self._engine.dialect, len(keys))
        try:
            with closing(self._engine.raw_connection()) as connection:
                cursor: DBAPICursor = connection.cursor()
                if self._engine.dialect.positional:
                    names = compiled.positional_parameters
                    cursor.execute(compiled.statement, [keys[index] for index in names])
                else:
                    named = {name: keys[index] for name, index in compiled.parameters.items()}
                    cursor.execute(compiled.statement, named)
                return list(cursor.fetchall())
        except Exception as error:
            self._translate(error)
            raise

    def version(self) -> Hashable:
        """Return a value that is never again what it was before a commit of any process."""
        try:
            if self._engine.dialect.name != "sqlite":
                with self._engine.connect() as server:
                    # The snapshot changes with every writing transaction that begins or ends.
                    return str(server.exec_driver_sql("SELECT pg_current_snapshot()::text").scalar_one())
            with self._watching:
                if self._watch is None:
                    # SQLite counts for each connection the commits of all others, so this one never writes.
                    connection = self._engine.raw_connection()
                    self._watch = connection, connection.cursor()
                    self._watched += 1
                cursor = self._watch[1]
                cursor.execute("PRAGMA data_version")
                return self._watched, cursor.fetchone()
        except Exception as error:
            self._translate(error)
            raise

    def version_at_once(self) -> Hashable | None:
        """Return `version` if that takes microseconds; None: it must be read in a thread."""
        if self._engine.dialect.name != "sqlite" or self._watch is None or self._watching.locked():
            return None
        return self.version()

    def upgrade(self) -> None:
        """Bring tables, words and findings up to date, while other processes may be doing the same.

        Raises:
            CatalogueError: A newer version of recoquest made the catalogue, or one that is too old.
        """
        try:
            if self._engine.dialect.name == "sqlite":
                use_write_ahead_log(self._engine, self._patience)
            upgrade_schema(self._reader, self._writer, self.url)
        except Exception as error:
            self._translate(error)
            raise
        try:
            self._follow_rules()
        except (CatalogueError, DiskFullError) as error:
            # Rows of older rules answer as well, and who starts on a full disk can read.
            _log.warning("Words and findings follow older rules until a later start. %s", error)

    def compact(self) -> bool:
        """Rewrite the database without what was deleted, which its file would keep until it is overwritten.

        Returns:
            Whether the write-ahead log is empty; it isn't while a reader needs it.

        Raises:
            CatalogueError: The catalogue cannot be used.
            DiskFullError: The disk has no room for a second copy of an SQLite database.
        """
        self.guard()
        try:
            if self._engine.dialect.name != "sqlite":
                options = {"isolation_level": "AUTOCOMMIT"}
                with self._engine.connect().execution_options(**options) as connection:
                    connection.exec_driver_sql("SET statement_timeout = 0")
                    connection.exec_driver_sql("VACUUM")
                    # Its limit of time goes with it.
                    connection.invalidate()
                return True
            with closing(self._engine.raw_connection()) as driver:
                cursor = driver.cursor()
                cursor.execute("VACUUM")
                busy, _, _ = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return not busy
        except Exception as error:
            self._translate(error, writing=True)
            raise

    def files(self) -> list[Path]:
        """Return the files of the database; none if it is on a server."""
        database = self._engine.url.database
        return [Path(database)] if database and self._engine.dialect.name == "sqlite" else []

    def close(self) -> None:
        """Close all connections."""
        with _kept_log(self._engine.url):
            with self._watching:
                if self._watch is not None:
                    self._watch[0].close()
                    self._watch = None
            self._engine.dispose()

    def _follow_rules(self) -> None:
        """Have words and findings follow the rules of today."""
        with self.read() as session:
            state = session.execute(select(DerivedRow)).scalar_one()
        if state.rules != str(RULES) or state.reached is not None:
            # Its imports take as long as a search.
            from index.catalogue.migrations.derived import rebuild_derived

            rebuild_derived(self.write, self.url)

    def _translate(self, error: Exception, *, writing: bool = False) -> None:
        """Raise what an error of the database means; errors say whether the catalogue was to be written."""
        translated = self._translated(error)
        if writing and isinstance(translated, CatalogueError | DiskFullError):
            translated.writing = True
        if translated is not error:
            raise translated from error

    def _translated(self, error: Exception) -> Exception:
        if isinstance(error, DatabaseError):
            # Other subclasses, such as IntegrityError, are defects of the program.
            if type(error) not in (DatabaseError, OperationalError) and not _is_of_use(error):
                return error
            return self._unusable(error.orig)
        if isinstance(error, PoolTimeoutError):
            return CatalogueError(f"All connections to the catalogue {self.url} are in use.")
        # SQLAlchemy does not wrap errors of a connection's set-up or of the driver itself.
        return self._unusable(error) if isinstance(error, self._engine.dialect.loaded_dbapi.Error) else error

    def _unusable(self, error: BaseException | None) -> CatalogueError | DiskFullError:
        if is_disk_full(error):
            full = DiskFullError(
                f"The catalogue {self.url} cannot be used: the disk is full; free some space there."
            )
            full.writing = False
            return full
        # The lowest byte of SQLite's number is the kind of error.
        kind, state = getattr(error, "sqlite_errorcode", 0) & 0xFF, getattr(error, "sqlstate", None)
        if kind in _SQLITE_BUSY or state in _POSTGRESQL_BUSY:
            return CatalogueBusyError(
                f"Another process has been writing to the catalogue {self.url} for {self._patience.lock_s:g} "
                "seconds: nothing was written, try again."
            )
        if state == _POSTGRESQL_CUT:
            return CatalogueTimeoutError(
                f"A read of the catalogue {self.url} took too long and was cut off: ask for less, or raise "
                "RECOQUEST_DATABASE_TIMEOUT_S."
            )
        # If the home is gone, its guard reports that instead.
        self.guard()
        error_type = DamagedCatalogueError if kind in _SQLITE_DAMAGED else CatalogueError
        return error_type(f"The catalogue {self.url} cannot be used: {str(error).strip()}.")


def _is_of_use(error: DatabaseError) -> bool:
    """Return whether a driver refuses the parameters of an address, or the server has ended a transaction."""
    address_is_wrong = isinstance(error, ProgrammingError) and error.statement is None
    return address_is_wrong or getattr(error.orig, "sqlstate", None) == _POSTGRESQL_IDLE


def open_catalogue(url: str, patience: Patience = PATIENT) -> Catalogue:
    """Open the catalogue at an SQLAlchemy URL, made or brought up to date as needed.

    Raises:
        CatalogueError: The URL or the database cannot be used, or a newer version of recoquest made it, or
            one that is too old.
        DiskFullError: The disk has no space for what SQLite needs to read.
    """
    catalogue = Catalogue(url, patience)
    try:
        catalogue.upgrade()
    except BaseException:
        catalogue.close()
        raise
    return catalogue


@contextmanager
def _kept_log(url: URL) -> Iterator[None]:
    """Keep the log's files, empty, though the block closes the last connection of any process.

    A start on a full disk reads with those that are there; it could make none.
    """
    if url.get_backend_name() != "sqlite" or url.database is None:
        yield
        return
    address = Path(url.database).absolute().as_uri()
    with ExitStack() as last:
        # SQLite leaves the files where the last connection may not write. An unreadable database has no log
        # worth keeping.
        with suppress(sqlite3.Error):
            reader = last.enter_context(closing(sqlite3.connect(f"{address}?mode=ro", uri=True)))
            reader.execute("PRAGMA schema_version")
        yield
        # What is in the log moves to the database, unless others are at work, who do so in their turn: it
        # must not be written over a file that replaces the database.
        with suppress(sqlite3.Error):
            writer = sqlite3.connect(f"{address}?mode=rw", uri=True, timeout=0)
            with closing(writer):
                writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")


class VersionedCache(Generic[Key, Value]):
    """Values by key, dropped with the next write of any process; threads may share it."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._lock = threading.Lock()
        # Replaced as one: reads need no lock.
        self._latest: tuple[Hashable, dict[Key, Value]] = (None, {})
        # Readers on an older version must not evict newer entries.
        self._past: deque[Hashable] = deque(maxlen=_PAST)

    def clear(self) -> None:
        """Drop all, and with it what threads put in that have looked already."""
        with self._lock:
            self._latest = (None, {})

    def at(self, version: Hashable = None) -> dict[Key, Value]:
        """Return the values cached at a version that was just read; None reads it now.

        What is read after that look may be put in: if something was written in between, it is dropped with
        the rest.
        """
        if version is None:
            version = self._catalogue.version()
        latest, values = self._latest
        if version == latest:
            return values
        with self._lock:
            latest, values = self._latest
            if version == latest:
                return values
            if version in self._past:
                return {}
            self._past.append(latest)
            self._latest = version, {}
            return self._latest[1]


class ReadThroughCache(VersionedCache[Key, Value]):
    """Values by key that are read again after every write of any process; threads may share it.

    Errors of `read`, which reads the value of a key, are passed on and not remembered.
    """

    def __init__(self, catalogue: Catalogue, read: Callable[[Session, Key], Value]) -> None:
        super().__init__(catalogue)
        self._read = read

    def cached(self, key: Key) -> Value | None:
        """Return the current value of a key if it is available without waiting; otherwise None."""
        version = self._catalogue.version_at_once()
        latest, values = self._latest
        return values.get(key) if version is not None and version == latest else None

    def get(self, key: Key, version: Hashable = None) -> Value:
        """Return the value of a key as it is now, or not older than a version of a moment ago."""
        values = self.at(version)
        if key not in values:
            with self._catalogue.read() as session:
                values[key] = self._read(session, key)
        return values[key]
