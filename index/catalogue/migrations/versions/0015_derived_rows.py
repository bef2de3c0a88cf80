"""Words with digits behind them, and words of other alphabets, among the long words of each collection.

Rows that follow from texts are made anew behind this migration, as the rules have changed.
"""

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change no table; see `index.catalogue.migrations.derived`."""


def downgrade() -> None:
    """Leave the rows, which older versions read as well."""
