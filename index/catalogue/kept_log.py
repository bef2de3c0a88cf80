"""The files of SQLite's write-ahead log, which stay behind when a catalogue is closed."""

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from sqlalchemy import URL


@contextmanager
def kept_log(url: URL) -> Iterator[None]:
    """Keep the log's files, empty, though the block closes the last connection of any process.

    A start on a full disk reads with those that are there; it could make none.
    """
    if url.get_backend_name() != "sqlite" or url.database is None:
        yield
        return
    address = Path(url.database).absolute().as_uri()
    with ExitStack() as last:
        # What cannot be read has no log that would be of use.
        with suppress(sqlite3.Error):
            last.enter_context(_reader(address))
        yield
        with suppress(sqlite3.Error):
            _empty(address)


@contextmanager
def _reader(address: str) -> Iterator[None]:
    """Hold a connection open that may not write: SQLite leaves the files where one is closed last."""
    with closing(sqlite3.connect(f"{address}?mode=ro", uri=True)) as connection:
        connection.execute("PRAGMA schema_version")
        yield


def _empty(address: str) -> None:
    """Move what is in the log to the database, unless others are at work, who do so in their turn.

    Whoever replaces the database's file by another must find nothing that would be written over it.
    """
    with closing(sqlite3.connect(f"{address}?mode=rw", uri=True, timeout=0)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
