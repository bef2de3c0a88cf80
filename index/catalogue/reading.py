"""Reads of the catalogue: sessions that open when needed, and statements given to the driver itself."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from types import TracebackType
from typing import Any, Final

from sqlalchemy import Dialect, Engine, Select
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.orm import Session
from sqlalchemy.sql.compiler import ExpandedState

# Statements differ by how many keys they name.
_CACHE_STATEMENTS: Final = 256


class Reading:
    """Opens a session when that is first asked for: to open one takes longer than a search that needs none.

    Args:
        read: Opens the session.

    Attributes:
        opened: Whether the session was asked for.
    """

    def __init__(self, read: Callable[[], AbstractContextManager[Session]]) -> None:
        self._read = read
        self._open: AbstractContextManager[Session] | None = None
        self._session: Session | None = None
        self.opened = False

    @property
    def session(self) -> Session:
        """The session, whose queries all see one state of the catalogue."""
        if self._session is None:
            opened = self._read()
            self._session = opened.__enter__()
            self._open, self.opened = opened, True
        return self._session

    def __enter__(self) -> "Reading":
        """Begin nothing yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the session, if there is one; its errors come out as those of the catalogue."""
        if self._open is not None:
            self._open.__exit__(kind, error, trace)


class DirectRead:
    """A statement that reads the rows of some keys, past SQLAlchemy.

    SQLAlchemy's work around a statement takes many times as long as finding a few rows by their keys.

    Args:
        statement: Selects by `in_(bindparam("keys", expanding=True))`.
    """

    def __init__(self, statement: Select[*tuple[Any, ...]]) -> None:
        self._statement = statement
        self._compiled = lru_cache(_CACHE_STATEMENTS)(self._compile)

    def rows(self, engine: Engine, keys: Sequence[int]) -> list[Any]:
        """Return the rows of these keys, all of one state; values are as the driver gives them."""
        if not keys:
            return []
        compiled = self._compiled(engine.dialect, len(keys))
        connection = engine.raw_connection()
        try:
            cursor: DBAPICursor = connection.cursor()
            if engine.dialect.positional:
                cursor.execute(compiled.statement, [keys[place] for place in compiled.positional_parameters])
            else:
                named = {name: keys[place] for name, place in compiled.parameters.items()}
                cursor.execute(compiled.statement, named)
            return list(cursor.fetchall())
        finally:
            connection.close()

    def _compile(self, dialect: Dialect, count: int) -> ExpandedState:
        """Return the statement for so many keys; its parameters are their places."""
        return self._statement.compile(dialect=dialect).construct_expanded_state({"keys": [*range(count)]})
