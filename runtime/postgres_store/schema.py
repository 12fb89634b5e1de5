"""The whole schema: every module of tables is imported here, so that `metadata` knows them all."""

from runtime.postgres_store import budget_tables as _budget_tables  # noqa: F401
from runtime.postgres_store import sheet_tables as _sheet_tables  # noqa: F401
from runtime.postgres_store import waits_tables as _waits_tables  # noqa: F401
from runtime.postgres_store import watching_tables as _watching_tables  # noqa: F401
from runtime.postgres_store.tables import metadata

__all__ = ["metadata"]
