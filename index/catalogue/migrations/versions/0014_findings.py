"""Findings that reports state: taken in from the texts and reports of all images."""

import sqlalchemy as sa
from alembic import op

from index.writes.findings import finding_rows

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_IMAGES_AT_ONCE = 1000
_IMAGES = sa.text(
    f"SELECT id, collection_id, report FROM images WHERE id > :after ORDER BY id LIMIT {_IMAGES_AT_ONCE}"
)
_TEXTS = sa.text("SELECT image_id, position, text FROM texts WHERE image_id > :after AND image_id <= :last")


def upgrade() -> None:
    """Add the table, and read the findings of all images."""
    connection = op.get_bind()
    key = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    compared = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    findings = op.create_table(
        "findings",
        sa.Column("image_id", key, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("start", sa.Integer(), nullable=False),
        sa.Column("finding", compared, nullable=False),
        sa.Column("stop", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("collection_id", key, nullable=False),
        sa.Column("image_finding", compared, nullable=False),
        sa.ForeignKeyConstraint(["collection_id"], ["collections.id"]),
        sa.ForeignKeyConstraint(["image_id"], ["images.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("image_id", "position", "start", "finding"),
        sqlite_with_rowid=False,
    )
    after = 0
    while images := connection.execute(_IMAGES, {"after": after}).all():
        texts: dict[int, dict[int, str]] = {}
        for image, position, text in connection.execute(_TEXTS, {"after": after, "last": images[-1].id}):
            texts.setdefault(image, {})[position] = text
        rows = [
            row
            for image, collection, report in images
            for row in finding_rows(collection, image, texts.get(image, {}), report)
        ]
        if rows:
            connection.execute(sa.insert(findings), rows)
        after = images[-1].id
    op.create_index("ix_findings_image_finding", "findings", ["collection_id", "image_finding", "image_id"])


def downgrade() -> None:
    """Forget the findings."""
    op.drop_table("findings")
