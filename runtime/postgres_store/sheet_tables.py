"""Tables of the SQL views over sheets."""

from sqlalchemy import Column, Integer, Table, Text

from runtime.postgres_store.tables import metadata

sheet_columns = Table(
    "sheet_columns",
    metadata,
    Column("org_id", Text, primary_key=True),
    Column("play", Text, primary_key=True),
    Column("namespace", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("number", Integer, nullable=False),
    Column("identifier", Text, nullable=False),
)
