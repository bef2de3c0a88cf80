"""Alembic's migrations of the catalogue; `open_catalogue` runs them."""
