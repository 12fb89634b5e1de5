-- name: insert_net_new
-- A page's rows whose key no run brought to an end and no other live run works on; the sheet row says whose they are.
with given as materialized (
  select v.position, v.row_key, v.input, v.n from unnest(%(positions)b::bigint[], %(row_keys)b::text[], %(inputs)b::text[])
    with ordinality v(position, row_key, input, n)
  where not exists (
    select 1 from run_rows w where w.dataset_id = %(dataset_id)s::bigint and w.row_key = v.row_key)),
taken as (
  insert into sheet_rows as s (org_id, play, namespace, row_key, data, cell_meta, write_version, run_id, state)
  select distinct on (g.row_key) r.org_id, r.play, d.namespace, g.row_key, '{}'::jsonb, '{}'::jsonb, 0, r.run_id, 'pending'
  from given g join datasets d on d.dataset_id = %(dataset_id)s::bigint join runs r on r.run_id = d.run_id
  order by g.row_key
  on conflict (org_id, play, namespace, row_key) do update set run_id = excluded.run_id, updated_at = now()
  where s.state = 'pending' and (s.run_id = excluded.run_id or not exists (
    select 1 from runs o where o.run_id = s.run_id and o.state in ('queued', 'running', 'waiting')))
  returning s.row_key),
added as (
  insert into run_rows (dataset_id, position, page, row_key, input, state)
  select %(dataset_id)s::bigint, g.position, %(page)s::int, g.row_key, g.input::jsonb, 'pending'
  from given g join taken t on t.row_key = g.row_key
  order by g.n
  on conflict do nothing
  returning 1),
counted as (
  select (select count(*) from added) as rows, (select count(distinct row_key) from given) as fresh)
update datasets d set rows_seeded = d.rows_seeded + c.rows, left_out = d.left_out + c.fresh - c.rows,
  duplicates = d.duplicates + %(given)s - c.fresh
from counted c where d.dataset_id = %(dataset_id)s
returning c.rows

-- name: insert_rerun
-- A page's rows of a rerun: those that `only` names are to run, the others count as they stand in the sheet.
with given as materialized (
  select v.position, v.row_key, v.input, v.n from unnest(%(positions)b::bigint[], %(row_keys)b::text[], %(inputs)b::text[])
    with ordinality v(position, row_key, input, n)
  where not exists (
    select 1 from run_rows w where w.dataset_id = %(dataset_id)s::bigint and w.row_key = v.row_key)),
judged as materialized (
  select g.position, g.row_key, g.input, g.n, s.state, s.cell_meta, coalesce(case %(only)s::text
      when 'failed' then s.state = 'failed'
      when 'missing' then s.row_key is null or s.state = 'pending' or not s.cell_meta ?& d.columns_kept
      else exists (
        select 1 from unnest(d.columns_kept) c
        where (s.cell_meta -> c ->> 'stale_at')::numeric <= extract(epoch from r.created_at) * 1000) end, false) as wanted
  from given g
  cross join lateral (
    select x.run_id, x.namespace, array(select c from unnest(x.columns) c where c not like '\_%%') as columns_kept
    from datasets x where x.dataset_id = %(dataset_id)s::bigint) d
  join runs r on r.run_id = d.run_id
  left join sheet_rows s
    on s.org_id = r.org_id and s.play = r.play and s.namespace = d.namespace and s.row_key = g.row_key),
added as (
  insert into run_rows (dataset_id, position, page, row_key, input, state, error)
  select %(dataset_id)s::bigint, j.position, %(page)s::int, j.row_key, j.input::jsonb,
    case when j.wanted then 'pending' else j.state end,
    case when not j.wanted and j.state = 'failed' then (
      select m.value -> 'error' from jsonb_each(j.cell_meta) m where m.value ->> 'state' = 'failed' limit 1) end
  from judged j
  where j.wanted or j.state in ('completed', 'failed')
  order by j.n
  on conflict do nothing
  returning state),
counted as (
  select (select count(*) from added) as rows, (select count(distinct row_key) from given) as fresh,
    (select count(*) from added where state = 'completed') as completed,
    (select count(*) from added where state = 'failed') as failed),
kept as (
  insert into dataset_counts as k (dataset_id, session_id, completed, failed)
  select %(dataset_id)s::bigint, '', completed, failed from counted where completed + failed > 0
  on conflict (dataset_id, session_id) do update
  set completed = k.completed + excluded.completed, failed = k.failed + excluded.failed)
update datasets d set rows_seeded = d.rows_seeded + c.rows, kept = d.kept + c.completed + c.failed,
  left_out = d.left_out + c.fresh - c.rows, duplicates = d.duplicates + %(given)s - c.fresh
from counted c where d.dataset_id = %(dataset_id)s
returning c.rows
