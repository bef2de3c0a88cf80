"""Catalogues of the oldest schema that is opened."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, create_engine

_WORDS = {
    "sqlite": {
        "BYTES": "BLOB",
        "COMPARED": "TEXT",
        "COUNTED": "INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT",
        "FALSE": "0",
        "KEY8": "INTEGER",
        "REAL8": "DOUBLE",
        "SERIAL4": "INTEGER",
        "SERIAL8": "INTEGER",
        "UNORDERED": "WITHOUT ROWID",
    },
    "postgresql": {
        "BYTES": "BYTEA",
        "COMPARED": 'TEXT COLLATE "C"',
        "COUNTED": "BIGSERIAL NOT NULL PRIMARY KEY",
        "KEY8": "BIGINT",
        "REAL8": "DOUBLE PRECISION",
        "SERIAL4": "SERIAL",
        "SERIAL8": "BIGSERIAL",
        "UNORDERED": "",
    },
}


@contextmanager
def oldest_schema(url: str) -> Iterator[Connection]:
    """An empty catalogue with the tables of schema 0026, in a transaction."""
    written = Path(__file__).with_name("schema_0026.sql").read_text(encoding="utf-8")
    engine = create_engine(url)
    dialect = engine.dialect.name
    words = _WORDS[dialect]
    with engine.begin() as connection:
        section = dialect
        for line in written.splitlines():
            if line.startswith("--"):
                section = line[3:-1] if line.endswith(":") else dialect
            elif section == dialect:
                statement = re.sub(
                    r"\b[A-Z]+[48]?\b", lambda expected: words.get(expected[0], expected[0]), line
                )
                connection.exec_driver_sql(statement)
        connection.exec_driver_sql(
            "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
            "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
        )
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES ('0026')")
        connection.exec_driver_sql("INSERT INTO derived_rules (id, rules, version) VALUES (1, 'old', '0')")
        yield connection
    engine.dispose()
