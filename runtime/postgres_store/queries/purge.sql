-- name: count
-- Runs that ended long enough ago, and their rows.
select count(distinct r.run_id)::bigint, coalesce(sum(d.rows_seeded), 0)::bigint
from runs r left join datasets d on d.run_id = r.run_id
where r.ended_at < now() - %(older_s)s::float8 * interval '1 second'

-- name: ended
-- Some of the runs that ended long enough ago.
select run_id from runs
where ended_at < now() - %(older_s)s::float8 * interval '1 second' order by ended_at limit %(limit)s

-- name: datasets
-- The datasets of runs.
select dataset_id from datasets where run_id = any(%(run_ids)s::text[])

-- name: receipt_blocks
-- How many blocks the table of receipts has, and when a receipt is old enough.
select (pg_relation_size('receipts') / current_setting('block_size')::int)::bigint,
  now() - %(older_s)s::float8 * interval '1 second'

-- name: receipts
-- Receipts of some blocks that were stored before then: each block is read once, and no index is needed by age.
delete from receipts
where ctid >= format('(%%s,0)', %(first)s::bigint)::tid and ctid < format('(%%s,0)', %(end)s::bigint)::tid
  and updated_at < %(before)s::timestamptz

-- name: count_receipts
-- Receipts that were stored long enough ago.
select count(*) from receipts where updated_at < now() - %(older_s)s::float8 * interval '1 second'

-- name: closed_accounts
-- Accounts that only these runs were counted against.
select account from budget_runs
where account in (select account from budget_runs where run_id = any(%(run_ids)s::text[]))
group by account having bool_and(run_id = any(%(run_ids)s::text[]))
