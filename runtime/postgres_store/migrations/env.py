"""Alembic environment: runs on the connection that `migrate.upgrade` opened."""

from alembic import context

from runtime.postgres_store.schema import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, transaction_per_migration=True)
with context.begin_transaction():
    context.run_migrations()
