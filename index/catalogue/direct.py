"""Reads that every search makes, given to the driver itself.

What SQLAlchemy does around a statement takes many times as long as finding a few rows by their keys.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import Dialect, Engine, Select
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.sql.compiler import ExpandedState

# Statements differ by how many keys they name.
_REMEMBERED: Final = 256


class DirectRead:
    """A statement that reads the rows of some keys.

    Args:
        statement: Selects by `in_(bindparam("keys", expanding=True))`.
    """

    def __init__(self, statement: Select[*tuple[Any, ...]]) -> None:
        self._statement = statement
        self._compiled = lru_cache(_REMEMBERED)(self._compile)

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
