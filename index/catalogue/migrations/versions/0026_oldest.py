"""The oldest schema that is opened; `index.catalogue.schema` makes new catalogues from the models."""

revision = "0026"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change nothing: a catalogue has this schema, or a newer one."""
