"""Bringing the tables of a catalogue up to date."""

import logging
from typing import TYPE_CHECKING, Final

from sqlalchemy import BigInteger, Connection, Engine, String, Text, inspect, text
from sqlalchemy.orm import Mapped, mapped_column

from index.catalogue.tables import Table
from index.errors import NewerCatalogueError

if TYPE_CHECKING:
    from alembic.config import Config

# Revision of the newest migration. Alembic, whose import takes as long as a search, is asked for older ones.
HEAD: Final = "0027"
# Any constant that other users of the same PostgreSQL server are unlikely to lock.
_POSTGRESQL_LOCK = 7_236_911_045

logger = logging.getLogger(__name__)


class DerivedRow(Table):
    """The one row on the rules that words and findings follow; see `index.catalogue.migrations.derived`.

    `rules` is their fingerprint, and `version` that of recoquest. While rows are made again, `reached` is the
    key of the last image whose rows are, and the vocabulary counts the images up to it alone; else None.
    """

    __tablename__ = "derived_rules"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    rules: Mapped[str] = mapped_column(String(64))
    version: Mapped[str] = mapped_column(Text)
    reached: Mapped[int | None] = mapped_column(BigInteger)


def upgrade_schema(reader: Engine, writer: Engine, name: str) -> None:
    """Run the migrations that the database lacks, in one transaction.

    Args:
        reader: Begins transactions that wait for nobody: most often nothing is lacking.
        writer: Begins transactions that take the write lock at once.
        name: Name of the database in messages.

    Raises:
        NewerCatalogueError: A newer version of recoquest created the database.
    """
    with reader.connect() as connection:
        if _is_current(connection, name):
            return
    with writer.begin() as connection:
        if connection.dialect.name == "postgresql":
            # A concurrent migration may take long; afterwards this process finds the schema up to date.
            connection.execute(text("SET LOCAL lock_timeout = 0"))
            connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _POSTGRESQL_LOCK})
        if not _is_current(connection, name):
            if inspect(connection).has_table("alembic_version"):
                logger.warning(
                    "The catalogue %s is brought up to date, which takes minutes for many texts.", name
                )
            _migrate(connection)


def _is_current(connection: Connection, name: str) -> bool:
    if not inspect(connection).has_table("alembic_version"):
        return False
    revision = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if revision is not None and revision not in _known_revisions(revision):
        raise NewerCatalogueError(
            f"The catalogue {name} has schema {revision}, which a newer version of recoquest made: "
            "update recoquest, or give the address of another catalogue."
        )
    return bool(revision == HEAD)


def _known_revisions(revision: str) -> set[str]:
    if revision == HEAD:
        return {HEAD}
    from alembic.script import ScriptDirectory

    return {script.revision for script in ScriptDirectory.from_config(_alembic()).walk_revisions()}


def _migrate(connection: Connection) -> None:
    from alembic import command

    config = _alembic()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _alembic() -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "index.catalogue:migrations")
    return config
