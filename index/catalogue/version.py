"""Whether anything was written to a catalogue."""

import math
import threading
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from sqlalchemy import Engine, PoolProxiedConnection
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.orm import Session

from index.catalogue.commits import CommitCount

# What other programs write to an SQLite catalogue is found so much later at most.
_TRUSTED_SECONDS: Final = 0.1


class _Look(NamedTuple):
    """What SQLite said after a number of commits had been looked at, and when that was."""

    commits: int | None
    at: float
    version: Hashable


_NONE: Final = _Look(None, -math.inf, None)


class Watch:
    """Tells states of a database apart; threads may share it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        file = engine.url.database if engine.dialect.name == "sqlite" else None
        self._commits = None if file is None else CommitCount(Path(file))
        self._lock = threading.Lock()
        self._connection: PoolProxiedConnection | None = None
        self._cursor: DBAPICursor | None = None
        self._opened = 0
        self._last = _NONE

    def version(self) -> Hashable:
        """Return a value that is never again what it was before a commit of any process."""
        if self._commits is None:
            with self._engine.connect() as connection:
                # It names the writing transactions that have begun and ended.
                return str(connection.exec_driver_sql("SELECT pg_current_snapshot()::text").scalar_one())
        commits, now, last = self._commits.settled(), time.monotonic(), self._last
        if commits is not None and commits == last.commits and now - last.at < _TRUSTED_SECONDS:
            return last.version
        version = self._data_version()
        # It is of these commits or of more: whoever makes one more changes the number before it can be seen.
        self._last = _Look(commits, now, version)
        return version

    @contextmanager
    def commit(self, session: Session) -> Iterator[None]:
        """Make the commit of a session, which is to end with the block, known to all that look."""
        if self._commits is None:
            yield
            return
        # One that wrote nothing may not have the database's lock yet.
        session.connection()
        with self._commits.commit():
            yield

    def close(self) -> None:
        """Let go of the connection; the next look takes another."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = self._cursor = None
            if self._commits is not None:
                self._commits.close()

    def _data_version(self) -> Hashable:
        with self._lock:
            if self._cursor is None:
                # SQLite counts for each connection what all others commit, so this one never writes.
                self._connection = self._engine.raw_connection()
                self._cursor = self._connection.cursor()
                self._opened += 1
            self._cursor.execute("PRAGMA data_version")
            return self._opened, self._cursor.fetchone()
