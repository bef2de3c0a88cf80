"""Bringing the tables of a catalogue up to date."""

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from index.errors import NewerCatalogueError

# Any constant that other users of the same PostgreSQL server are unlikely to lock.
_POSTGRESQL_LOCK = 7_236_911_045


def upgrade_schema(reader: Engine, writer: Engine, name: str) -> None:
    """Run the migrations that the database lacks, in one transaction.

    Args:
        reader: Begins transactions that wait for nobody: most often nothing is lacking.
        writer: Begins transactions that take the write lock at once.
        name: Name of the database in messages.

    Raises:
        NewerCatalogueError: A newer version of recoquest created the database.
    """
    config = Config()
    config.set_main_option("script_location", "index.catalogue:migrations")
    scripts = ScriptDirectory.from_config(config)
    with reader.connect() as connection:
        if _is_current(connection, scripts, name):
            return
    with writer.begin() as connection:
        if connection.dialect.name == "postgresql":
            # A concurrent migration may take long; afterwards this process finds the schema up to date.
            connection.execute(text("SET LOCAL lock_timeout = 0"))
            connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _POSTGRESQL_LOCK})
        if not _is_current(connection, scripts, name):
            config.attributes["connection"] = connection
            command.upgrade(config, "head")


def _is_current(connection: Connection, scripts: ScriptDirectory, name: str) -> bool:
    revision = MigrationContext.configure(connection).get_current_revision()
    known = {script.revision for script in scripts.walk_revisions()}
    if revision is not None and revision not in known:
        raise NewerCatalogueError(
            f"The catalogue {name} has schema {revision}, which a newer version of recoquest made: "
            "update recoquest, or give the address of another catalogue."
        )
    return revision == scripts.get_current_head()
