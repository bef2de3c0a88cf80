"""Whether anything was written to a catalogue."""

import threading
from collections.abc import Hashable

from sqlalchemy import Engine, PoolProxiedConnection
from sqlalchemy.engine.interfaces import DBAPICursor


class Watch:
    """Tells states of a database apart; threads may share it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._connection: PoolProxiedConnection | None = None
        self._cursor: DBAPICursor | None = None
        self._opened = 0

    def version(self) -> Hashable:
        """Return a value that is never again what it was before a commit of any process."""
        if self._engine.dialect.name != "sqlite":
            with self._engine.connect() as connection:
                # The snapshot changes with every writing transaction that begins or ends.
                return str(connection.exec_driver_sql("SELECT pg_current_snapshot()::text").scalar_one())
        with self._lock:
            if self._cursor is None:
                # SQLite counts for each connection the commits of all others, so this one never writes.
                self._connection = self._engine.raw_connection()
                self._cursor = self._connection.cursor()
                self._opened += 1
            self._cursor.execute("PRAGMA data_version")
            return self._opened, self._cursor.fetchone()

    def close(self) -> None:
        """Let go of the connection; the next look takes another."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = self._cursor = None
