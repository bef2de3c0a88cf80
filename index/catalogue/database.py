"""Connections and transactions of the catalogue."""

import sqlite3
import time
from collections.abc import Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from pydantic_core import from_json
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session

from index.catalogue.direct import DirectRead
from index.catalogue.kept_log import kept_log
from index.catalogue.reading import Reading
from index.catalogue.schema import upgrade_schema
from index.catalogue.version import Watch
from index.errors import CatalogueError, DamagedCatalogueError, DiskFullError
from index.full_disk import is_disk_full
from index.passwords import without_password

BUSY_SECONDS = 60
# Whoever writes batch after batch waits so long between two, for others to get their turn.
PAUSE_SECONDS: Final = 0.01
_SQLITE_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class Catalogue:
    """A catalogue's database; open it with `open_catalogue`, which brings its tables up to date.

    Any number of threads and processes may share one.
    """

    def __init__(self, url: str) -> None:
        self._engine = _create_engine(url)
        self._watch = Watch(self._engine)

    @property
    def url(self) -> str:
        """Where the database is, without its password."""
        return without_password(self._engine.url.render_as_string(hide_password=True))

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Give a session whose queries all see one state of the catalogue."""
        with self._errors(), Session(self._reader, autoflush=False) as session:
            yield session

    def reading(self) -> Reading:
        """Give what gives a session as `read` does, once something is asked of it."""
        return Reading(self.read)

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Give a session that commits to the disk when the block ends well, and else changes nothing."""
        with self._write_errors(), Session(self._writer) as session, ExitStack() as commit, session.begin():
            yield session
            commit.enter_context(self._watch.commit(session))

    def rows(self, read: DirectRead, keys: Sequence[int]) -> list[Any]:
        """Return what a read finds of some keys, past SQLAlchemy; see `DirectRead`."""
        with self._errors():
            return read.rows(self._engine, keys)

    def version(self) -> Hashable:
        """Return a value that is never again what it was before a commit of any process."""
        try:
            return self._watch.version()
        except Exception:
            # Every search looks: what tells errors apart is set up only for one.
            with self._errors():
                raise

    def upgrade(self) -> None:
        """Bring the tables up to date, while other processes may be doing the same.

        Raises:
            CatalogueError: A newer version of recoquest made the catalogue.
        """
        with self._errors():
            if self._engine.dialect.name == "sqlite":
                _use_write_ahead_log(self._engine)
            upgrade_schema(self._writer, self.url)

    def close(self) -> None:
        """Close all connections."""
        with kept_log(self._engine.url):
            self._watch.close()
            self._engine.dispose()

    @property
    def _reader(self) -> Engine:
        if self._engine.dialect.name == "sqlite":
            return self._engine
        return self._engine.execution_options(isolation_level="REPEATABLE READ")

    @property
    def _writer(self) -> Engine:
        return self._engine.execution_options(recoquest_writes=True)

    @contextmanager
    def _write_errors(self) -> Iterator[None]:
        """Let errors say that the catalogue was to be written."""
        try:
            with self._errors():
                yield
        except (CatalogueError, DiskFullError) as error:
            error.writing = True
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except DatabaseError as error:
            # Its other kinds, such as a broken constraint, are defects of ours.
            if type(error) not in (DatabaseError, OperationalError) and not _is_of_address(error):
                raise
            raise self._unusable(error.orig) from error
        except PoolTimeoutError as error:
            raise CatalogueError(f"All connections to the catalogue {self.url} are in use.") from error
        except self._engine.dialect.loaded_dbapi.Error as error:
            # What fails while a connection is set up, or past SQLAlchemy, comes without its wrapping.
            raise self._unusable(error) from error

    def _unusable(self, error: BaseException | None) -> CatalogueError | DiskFullError:
        if is_disk_full(error):
            full = DiskFullError(
                f"The catalogue {self.url} cannot be used: the disk is full; free some space there."
            )
            full.writing = False
            return full
        kind = DamagedCatalogueError if _is_damage(error) else CatalogueError
        return kind(f"The catalogue {self.url} cannot be used: {str(error).strip()}.")


def _is_of_address(error: DatabaseError) -> bool:
    """Tell whether a driver refuses the parameters of an address, before any statement."""
    return isinstance(error, ProgrammingError) and error.statement is None


def _is_damage(error: BaseException | None) -> bool:
    """Tell whether SQLite cannot read its file; the lowest byte of its number is the kind of error."""
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _SQLITE_DAMAGED


def open_catalogue(url: str) -> Catalogue:
    """Open the catalogue at an SQLAlchemy URL, made or brought up to date as needed.

    Raises:
        CatalogueError: The URL or the database cannot be used, or a newer version of recoquest made it.
        DiskFullError: The disk has no space for what SQLite needs to read.
    """
    catalogue = Catalogue(url)
    try:
        catalogue.upgrade()
    except BaseException:
        catalogue.close()
        raise
    return catalogue


def _create_engine(url: str) -> Engine:
    try:
        parsed = _parsed(url)
        if parsed.get_backend_name() != "sqlite":
            return create_engine(parsed, pool_pre_ping=True, json_deserializer=from_json)
        if not parsed.database or parsed.database == ":memory:":
            raise CatalogueError("The catalogue needs a file: give sqlite:///FOLDER/catalogue.db.")
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
        # Readers that wait for a view to be loaded hold their connections; nobody else may wait for those.
        engine = create_engine(
            parsed, connect_args={"timeout": BUSY_SECONDS}, max_overflow=-1, json_deserializer=from_json
        )
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        raise CatalogueError(f"The address of the catalogue cannot be used: {error}.") from error
    except (TypeError, ValueError) as error:
        shown = without_password(url)
        raise CatalogueError(f"The address of the catalogue, {shown}, cannot be used: {error}.") from None
    except OSError as error:
        raise CatalogueError(f"The catalogue's folder cannot be made: {error}.") from error
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _parsed(url: str) -> URL:
    """Return the parts of an address.

    Raises:
        ValueError: A part cannot be used; the message shows nothing of the password.
    """
    try:
        parsed = make_url(url)
    except ValueError:
        # Its message may show a password, which goes as far as the port where it has an @.
        raise ValueError("the port is not a number") from None
    if "@" in (parsed.host or ""):
        raise ValueError("write an @ in the password as %40")
    return parsed


def _prepare_sqlite(connection: Any, _record: object) -> None:
    # Transactions are begun by _begin_sqlite; the driver's own rules would leave reads without one.
    connection.isolation_level = None
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: Connection) -> None:
    # A reader that later wants to write could find itself behind; writers take the lock at once.
    writes = connection.get_execution_options().get("recoquest_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _use_write_ahead_log(engine: Engine) -> None:
    deadline = time.monotonic() + BUSY_SECONDS
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
