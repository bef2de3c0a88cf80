"""Who is about to write a file has a note of its own."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Recreate the table, since its key grows; existing notes are of files that nobody is writing."""
    former = sa.table("loose_files", sa.column("sha256", sa.String()))
    digests = op.get_bind().execute(sa.select(former.c.sha256)).scalars().all()
    op.drop_table("loose_files")
    notes = op.create_table(
        "loose_files",
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("begun", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.PrimaryKeyConstraint("sha256", "begun"),
        sqlite_with_rowid=False,
    )
    op.bulk_insert(notes, [{"sha256": digest, "begun": 0} for digest in digests])
