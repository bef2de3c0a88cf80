"""Runs migrations inside the transaction that `index.catalogue.schema` has begun."""

from alembic import context

from index.catalogue.tables import Table

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Table.metadata,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
