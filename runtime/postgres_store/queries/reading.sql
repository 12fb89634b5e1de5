-- name: dataset
-- Where a dataset's values lie.
select r.org_id, r.play, d.namespace, d.run_id from datasets d join runs r on r.run_id = d.run_id
where d.dataset_id = %(dataset_id)s

-- name: rows
-- Ended rows in input order with values of this run, or of one before it where a rerun kept the row (no slice fenced it).
select r.position, r.row_key, r.state, s.data::text, s.cell_meta::text
from run_rows r
cross join lateral (
  select x.data, x.cell_meta from sheet_rows x
  where x.org_id = %(org_id)s and x.play = %(play)s and x.namespace = %(namespace)s and x.row_key = r.row_key
    and (x.run_id = %(run_id)s or r.fence = 0 and x.write_version < (select number from runs where run_id = %(run_id)s))
  offset 0) s
where r.dataset_id = %(dataset_id)s and r.position > %(after)s and r.state = any(%(states)s::text[])
order by r.position offset %(skip)s limit %(limit)s

-- name: last_rows
-- The same from the end.
select r.position, r.row_key, r.state, s.data::text, s.cell_meta::text
from run_rows r
cross join lateral (
  select x.data, x.cell_meta from sheet_rows x
  where x.org_id = %(org_id)s and x.play = %(play)s and x.namespace = %(namespace)s and x.row_key = r.row_key
    and (x.run_id = %(run_id)s or r.fence = 0 and x.write_version < (select number from runs where run_id = %(run_id)s))
  offset 0) s
where r.dataset_id = %(dataset_id)s and r.state = any(%(states)s::text[])
order by r.position desc offset %(skip)s limit %(limit)s

-- name: columns
-- What a dataset's rows hold.
select input_columns, columns from datasets where dataset_id = %(dataset_id)s
