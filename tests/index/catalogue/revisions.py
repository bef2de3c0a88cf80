"""Catalogues as older versions made them."""

from collections.abc import Iterator
from contextlib import contextmanager

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, create_engine


@contextmanager
def schema_of(url: str, revision: str) -> Iterator[Connection]:
    """A catalogue with the tables of a revision, empty, in a transaction."""
    config = Config()
    config.set_main_option("script_location", "index.catalogue:migrations")
    engine = create_engine(url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        yield connection
    engine.dispose()
