-- name: dataset
-- The sheet of a dataset and the columns that this run wrote.
select r.org_id, r.play, d.namespace, d.input_columns, d.columns from datasets d join runs r on r.run_id = d.run_id
where d.dataset_id = %(dataset_id)s

-- name: lock
-- One process at a time makes a view.
select pg_advisory_xact_lock(%(key)s)

-- name: known
-- The columns that the view has.
select name, identifier from sheet_columns
where org_id = %(org_id)s and play = %(play)s and namespace = %(namespace)s order by number

-- name: add
-- Columns that it gets.
insert into sheet_columns (org_id, play, namespace, name, number, identifier)
select %(org_id)s, %(play)s, %(namespace)s, v.name, %(first)s::int + v.n, v.identifier
from unnest(%(names)s::text[], %(identifiers)s::text[]) with ordinality v(name, identifier, n)

-- name: exists
-- Whether the view is there.
select to_regclass(quote_ident(%(view)s)) is not null
