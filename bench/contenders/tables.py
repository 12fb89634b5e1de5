"""Tables of the contenders that aren't playlane: its sheet and its receipts, without the history."""

import psycopg

CREATE = """
drop table if exists bench_rows, bench_receipts;
create table bench_rows (
  org_id text, namespace text, row_key text, data jsonb not null, cell_meta jsonb not null,
  run_id text not null, updated_at timestamptz not null default now(),
  primary key (org_id, namespace, row_key)
);
create table bench_receipts (
  key text primary key, org_id text not null, tool text not null, run_id text not null,
  state text not null, output bytea, updated_at timestamptz not null default now()
)
"""


def make_tables(database_url: str) -> None:
    """Both tables, empty."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(CREATE)
