-- name: run
-- A run as a whole.
select run_id, org_id, play, input, state, attempt, result, error, created_at, started_at, ended_at, now(), options
from runs where run_id = %(run_id)s

-- name: datasets
-- Its datasets with their counts.
select d.dataset_id, d.key, d.namespace, d.state, d.columns, d.rows_seeded, d.duplicates,
  coalesce(sum(c.completed), 0)::bigint, coalesce(sum(c.failed), 0)::bigint, coalesce(sum(c.cancelled), 0)::bigint,
  coalesce(sum(c.superseded), 0)::bigint, d.pages_seeded, d.pages_total, d.pages_settled, d.created_at, d.ended_at,
  d.kept, d.left_out
from datasets d left join dataset_counts c on c.dataset_id = d.dataset_id
where d.run_id = %(run_id)s group by d.dataset_id order by d.dataset_id

-- name: usage
-- What it had sent, by tool.
select tool, sum(items)::bigint, sum(batches)::bigint, sum(capacity)::bigint, sum(cached)::bigint,
  sum(followed)::bigint, sum(credits)::float8
from run_usage where run_id = %(run_id)s group by tool order by tool

-- name: recent
-- The newest runs.
select run_id from runs order by number desc limit %(limit)s

-- name: sheet
-- A stretch of a sheet in key order.
select row_key, data, cell_meta, run_id, write_version, updated_at from sheet_rows
where org_id = %(org_id)s and play = %(play)s and namespace = %(namespace)s and row_key > %(after)s
  and state <> 'pending'
order by row_key limit %(limit)s

-- name: failures
-- The first failed rows of a dataset.
select position, row_key, error from run_rows
where dataset_id = %(dataset_id)s and state = 'failed' and position > %(after)s order by position limit %(limit)s

-- name: logs
-- A run's log lines in the order in which they were stored.
select scope, n, level, message, fields, at from run_logs where run_id = %(run_id)s order by at, scope, n limit %(limit)s
