"""Making the tables of a catalogue, and bringing those of an older one up to date."""

import logging
from collections.abc import Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from sqlalchemy import BigInteger, Connection, Engine, String, Text, insert, inspect, text
from sqlalchemy.orm import Mapped, mapped_column

from index.catalogue.tables import Table
from index.errors import CatalogueSchemaError

if TYPE_CHECKING:
    from alembic.config import Config

# Revision of the newest migration. Alembic, whose import takes as long as a search, runs older ones.
HEAD: Final = "0028"
_OLDEST: Final = "0026"
# Number of the rules by which words and findings follow from texts and reports. Raise it with every change of
# what they give, so that each catalogue rebuilds its rows once.
RULES: Final = 6
# Any constant that other users of the same PostgreSQL server are unlikely to lock.
_POSTGRESQL_LOCK = 7_236_911_045
_REFUSED: Final = "the audit trail is append-only"
_SQLITE_TRIGGERS: Final = (
    ("audit_events", "UPDATE", ""),
    # An event that is pruned has been passed by the head before.
    ("audit_events", "DELETE", "OLD.sequence > (SELECT coalesce(max(pruned), 0) FROM audit_head)"),
    # Without it, INSERT OR REPLACE would change an event.
    ("audit_events", "INSERT", "EXISTS (SELECT 1 FROM audit_events WHERE sequence = NEW.sequence)"),
    ("audit_head", "UPDATE", "NEW.sequence < OLD.sequence OR NEW.pruned < OLD.pruned"),
    ("audit_head", "DELETE", ""),
    # An erasure takes the name away.
    ("audit_names", "UPDATE", "NEW.name IS NOT NULL OR NEW.digest <> OLD.digest"),
)
_POSTGRESQL: Final = (
    "CREATE TABLE image_words (image_id BIGINT PRIMARY KEY REFERENCES images (id) ON DELETE CASCADE, "
    "words TSVECTOR NOT NULL, runs TEXT NOT NULL DEFAULT '')",
    "CREATE INDEX ix_image_words ON image_words USING gin (words)",
    f"""
    CREATE FUNCTION audit_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION '{_REFUSED}'; END $$
    """,
    f"""
    CREATE FUNCTION audit_refuse_delete() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF OLD.sequence > (SELECT coalesce(max(pruned), 0) FROM audit_head) THEN
            RAISE EXCEPTION '{_REFUSED}';
        END IF;
        RETURN OLD;
    END $$
    """,
    "CREATE TRIGGER audit_events_update BEFORE UPDATE OR TRUNCATE ON audit_events "
    "EXECUTE FUNCTION audit_refuse()",
    "CREATE TRIGGER audit_events_delete BEFORE DELETE ON audit_events FOR EACH ROW "
    "EXECUTE FUNCTION audit_refuse_delete()",
    "CREATE TRIGGER audit_head_update BEFORE UPDATE ON audit_head FOR EACH ROW "
    "WHEN (NEW.sequence < OLD.sequence OR NEW.pruned < OLD.pruned) EXECUTE FUNCTION audit_refuse()",
    "CREATE TRIGGER audit_head_delete BEFORE DELETE OR TRUNCATE ON audit_head "
    "EXECUTE FUNCTION audit_refuse()",
    "CREATE TRIGGER audit_names_update BEFORE UPDATE ON audit_names FOR EACH ROW "
    "WHEN (NEW.name IS NOT NULL OR NEW.digest <> OLD.digest) EXECUTE FUNCTION audit_refuse()",
)

logger = logging.getLogger(__name__)


class DerivedRow(Table):
    """The one row on the rules that words and findings follow; see `index.catalogue.migrations.derived`.

    `rules` is their number, and `version` that of recoquest. While rows are made again, `reached` is the key
    of the last image whose rows are, and the vocabulary counts the images up to it alone; else None.
    """

    __tablename__ = "derived_rules"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    rules: Mapped[str] = mapped_column(String(64))
    version: Mapped[str] = mapped_column(Text)
    reached: Mapped[int | None] = mapped_column(BigInteger)


def upgrade_schema(reader: Engine, writer: Engine, name: str) -> None:
    """Make the tables of an empty database, or run the migrations that it lacks, in one transaction.

    Args:
        reader: Begins transactions that wait for nobody: most often nothing is lacking.
        writer: Begins transactions that take the write lock at once.
        name: Name of the database in messages.

    Raises:
        CatalogueSchemaError: A newer version of recoquest made the database, or one that is too old.
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
            from alembic import command

            config = _alembic(connection)
            if _revision(connection) is None:
                _make_tables(connection)
                command.stamp(config, "head")
            else:
                logger.warning(
                    "The catalogue %s is brought up to date, which takes minutes for many texts.", name
                )
                command.upgrade(config, "head")


def _is_current(connection: Connection, name: str) -> bool:
    revision = _revision(connection)
    if revision is not None and revision > HEAD:
        raise CatalogueSchemaError(
            f"The catalogue {name} has schema {revision}, which a newer version of recoquest made: "
            "update recoquest, or give the address of another catalogue."
        )
    if revision is not None and revision < _OLDEST:
        raise CatalogueSchemaError(
            f"The catalogue {name} has schema {revision}, and the oldest that this version of recoquest "
            f"opens is {_OLDEST}: index your data again in a new home."
        )
    return revision == HEAD


def _revision(connection: Connection) -> str | None:
    """Return the schema of the database, if it has any."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return revision


def _make_tables(connection: Connection) -> None:
    """Make the tables of a new catalogue, and the triggers that keep the audit trail's events as they are."""
    Table.metadata.create_all(connection, checkfirst=False)
    for statement in _POSTGRESQL if connection.dialect.name == "postgresql" else _sqlite_statements():
        connection.exec_driver_sql(statement)
    connection.execute(insert(DerivedRow).values(id=1, rules=str(RULES), version=version("recoquest")))


def _sqlite_statements() -> Iterator[str]:
    # The words are split already: this tokenizer splits at spaces and leaves other scripts alone.
    yield "CREATE VIRTUAL TABLE image_words USING fts5(words, tokenize = 'ascii')"
    for table, event, when in _SQLITE_TRIGGERS:
        condition = f" WHEN {when}" if when else ""
        yield (
            f"CREATE TRIGGER {table}_{event.lower()} BEFORE {event} ON {table}{condition} "
            f"BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END"
        )


def _alembic(connection: Connection) -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "index.catalogue:migrations")
    config.attributes["connection"] = connection
    return config
