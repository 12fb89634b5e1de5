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

-- name: receipts
-- Some of the receipts that were stored long enough ago.
delete from receipts where key = any(array(
  select key from receipts
  where updated_at < now() - %(older_s)s::float8 * interval '1 second' limit %(limit)s))

-- name: closed_accounts
-- Accounts that only these runs were counted against.
select account from budget_runs
where account in (select account from budget_runs where run_id = any(%(run_ids)s::text[]))
group by account having bool_and(run_id = any(%(run_ids)s::text[]))
