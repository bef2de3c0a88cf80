"""The engine of a home folder, and transactions of one step; its import brings no torch."""

from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Executable, Select, func, select
from sqlalchemy.orm import Session

from index.catalogue import Catalogue, open_catalogue
from index.catalogue.collections import hide_collection
from index.catalogue.tables import Table
from index.engine import SearchEngine
from index.home import Home
from index.vectors.gpu import Gpu
from index.writes.deletion import collect_garbage

Given = ParamSpec("Given")
Found = TypeVar("Found")


def open_home(home: Path, url: str | None = None, gpu: Gpu | None = None) -> SearchEngine:
    """Open the engine of a folder, by default on an SQLite catalogue in it."""
    catalogue = open_catalogue(url or f"sqlite:///{home / 'catalogue.db'}")
    return SearchEngine(Home.at(home, catalogue), gpu=gpu)


def remove_collection(engine: SearchEngine, collection: str) -> None:
    """Remove a collection, and what the engine and its home hold of it."""
    in_write(engine, hide_collection, collection)
    engine.forget_removed()
    collect_garbage(engine.home)


def _catalogue(of: SearchEngine | Catalogue) -> Catalogue:
    return of if isinstance(of, Catalogue) else of.home.catalogue


def in_read(
    of: SearchEngine | Catalogue,
    call: Callable[Concatenate[Session, Given], Found],
    *value: Given.args,
    **named: Given.kwargs,
) -> Found:
    """Call a function with a session that reads."""
    with _catalogue(of).read() as session:
        return call(session, *value, **named)


def in_write(
    of: SearchEngine | Catalogue,
    call: Callable[Concatenate[Session, Given], Found],
    *value: Given.args,
    **named: Given.kwargs,
) -> Found:
    """Call a function with a session that writes, and commit."""
    with _catalogue(of).write() as session:
        return call(session, *value, **named)


def execute(of: SearchEngine | Catalogue, statement: Executable) -> None:
    """Execute a statement that writes, and commit."""
    with _catalogue(of).write() as session:
        session.execute(statement)


def scalars(of: SearchEngine | Catalogue, query: Select[Found]) -> list[Found]:
    """Read the first column of all rows."""
    with _catalogue(of).read() as session:
        return list(session.execute(query).scalars())


def count_rows(of: SearchEngine | Catalogue, table: type[Table]) -> int:
    return scalar(of, select(func.count()).select_from(table))


def scalar(of: SearchEngine | Catalogue, query: Select[Found]) -> Found:
    """Read the first column of the only row."""
    (result,) = scalars(of, query)
    return result
