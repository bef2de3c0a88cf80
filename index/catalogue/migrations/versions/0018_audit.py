"""The audit trail, which only grows; who judged; and the backups that were written."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_REFUSED = "the audit trail is append-only"
# An event that is pruned has been passed by the head before.
_SQLITE = (
    ("audit_events", "UPDATE", ""),
    ("audit_events", "DELETE", "OLD.sequence > (SELECT coalesce(max(pruned), 0) FROM audit_head)"),
    # Without it, INSERT OR REPLACE would change an event.
    ("audit_events", "INSERT", "EXISTS (SELECT 1 FROM audit_events WHERE sequence = NEW.sequence)"),
    ("audit_head", "UPDATE", "NEW.sequence < OLD.sequence OR NEW.pruned < OLD.pruned"),
    ("audit_head", "DELETE", ""),
    # An erasure takes the name away.
    ("audit_names", "UPDATE", "NEW.name IS NOT NULL OR NEW.digest <> OLD.digest"),
)
_POSTGRESQL = (
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


def upgrade() -> None:
    """Add the empty tables, with triggers that keep events as they are, and the judge of a judgement."""
    compared = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "audit_events",
        sa.Column("sequence", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("time", compared, nullable=False),
        sa.Column("action", sa.String(length=20), nullable=False),
        sa.Column("collection", compared, nullable=True),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("sequence"),
    )
    op.create_index("ix_audit_events_time", "audit_events", ["time"])
    op.create_table(
        "audit_head",
        sa.Column("id", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("pruned", sa.BigInteger(), nullable=False),
        sa.Column("pruned_hash", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "audit_names",
        sa.Column("digest", sa.String(length=32), nullable=False),
        sa.Column("collection", compared, nullable=False),
        sa.Column("name", compared, nullable=True),
        sa.PrimaryKeyConstraint("digest"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_audit_names_name", "audit_names", ["name", "collection"])
    op.create_table(
        "backups",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.Column("last_image", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.add_column("feedback", sa.Column("user_id", sa.Text(), nullable=True))
    op.add_column("feedback", sa.Column("user_name", sa.Text(), nullable=True))
    op.add_column(
        "feedback", sa.Column("supplemented", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    if op.get_bind().dialect.name == "postgresql":
        for statement in _POSTGRESQL:
            op.execute(statement)
    else:
        for table, event, when in _SQLITE:
            condition = f" WHEN {when}" if when else ""
            op.execute(
                f"CREATE TRIGGER {table}_{event.lower()} BEFORE {event} ON {table}{condition} "
                f"BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END"
            )


def downgrade() -> None:
    """Forget the trail, the backups, and who judged."""
    for column in ("supplemented", "user_name", "user_id"):
        op.drop_column("feedback", column)
    for table in ("backups", "audit_names", "audit_head", "audit_events"):
        op.drop_table(table)
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION audit_refuse()")
        op.execute("DROP FUNCTION audit_refuse_delete()")
