-- name: lock_slices
-- Where the written slices stand, kept still until commit.
select v.n, s.fence, s.state, s.session_id, d.state, r.state
from unnest(%(dataset_ids)b::bigint[], %(pages)b::int[], %(slices)b::int[]) with ordinality v(dataset_id, page, slice, n)
join slices s on s.dataset_id = v.dataset_id and s.page = v.page and s.slice = v.slice
join datasets d on d.dataset_id = s.dataset_id
join runs r on r.run_id = d.run_id
order by s.dataset_id, s.page, s.slice
for no key update of s

-- name: update_rows
-- Ends rows that are still open, or lets them wait, under their slice's fence; answers which.
update run_rows r set state = v.state, fence = h.fence, error = v.error::jsonb
from unnest(%(row_slices)b::int[], %(positions)b::bigint[], %(states)b::text[], %(errors)b::text[])
  v(n, position, state, error)
join unnest(%(dataset_ids)b::bigint[], %(pages)b::int[], %(slices)b::int[], %(fences)b::int[])
  with ordinality h(dataset_id, page, slice, fence, n) on h.n = v.n
join slices s on s.dataset_id = h.dataset_id and s.page = h.page and s.slice = h.slice and s.fence = h.fence
  and s.state = 'open' and s.session_id = %(session_id)s
  and v.position >= s.first_position and v.position < s.end_position
where r.dataset_id = h.dataset_id and r.position = v.position and r.state in ('pending', 'running')
returning v.n, r.position

-- name: add_waits
-- What the rows that were just let wait are waiting for.
insert into row_waits as w (dataset_id, position, kind, due_at, detail)
select h.dataset_id, v.position, v.kind, now() + v.due_ms * interval '1 millisecond', v.detail
from unnest(%(row_slices)b::int[], %(positions)b::bigint[], %(kinds)b::text[], %(due_ms)s::float8[], %(details)b::text[])
  v(n, position, kind, due_ms, detail)
join unnest(%(dataset_ids)b::bigint[]) with ordinality h(dataset_id, n) on h.n = v.n
order by h.dataset_id, v.position
on conflict (dataset_id, position) do update
set kind = excluded.kind, due_at = excluded.due_at, detail = excluded.detail,
  since = case when (w.kind, w.detail) = (excluded.kind, excluded.detail) then w.since else now() end

-- name: add_boundaries
-- Waits of rows that are armed now; an event wait is ended at once by the oldest stored event that its row hasn't seen.
with v as (
  select h.dataset_id, v.*, r.org_id, r.created_at,
    row_number() over (partition by h.dataset_id, v.position, v.event_key order by v.key) - 1 as skipped
  from unnest(%(wait_slices)b::int[], %(wait_positions)b::bigint[], %(wait_keys)b::text[], %(wait_kinds)b::text[],
    %(wait_due_ms)b::float8[], %(event_keys)b::text[], %(timeout_outcomes)b::text[])
    v(n, position, key, kind, due_ms, event_key, timeout_outcome)
  join unnest(%(dataset_ids)b::bigint[]) with ordinality h(dataset_id, n) on h.n = v.n
  join datasets d on d.dataset_id = h.dataset_id
  join runs r on r.run_id = d.run_id
  where not exists (
    select 1 from row_boundaries b where b.dataset_id = h.dataset_id and b.position = v.position and b.key = v.key))
insert into row_boundaries
  (dataset_id, position, key, kind, state, due_at, org_id, event_key, event_id, timeout_outcome, outcome)
select v.dataset_id, v.position, v.key, v.kind, case when e.event_id is null then 'armed' else 'resolved' end,
  now() + v.due_ms * interval '1 millisecond', v.org_id, v.event_key, e.event_id, v.timeout_outcome::jsonb,
  case when e.event_id is not null then jsonb_build_object('ok', e.payload) end
from v left join lateral (
  select e.event_id, e.payload from delivered_events e
  where e.org_id = v.org_id and e.event_key = v.event_key and e.created_at >= v.created_at
    and not exists (
      select 1 from row_boundaries b
      where b.dataset_id = v.dataset_id and b.position = v.position and b.event_id = e.event_id)
  order by e.number offset v.skipped limit 1) e on v.event_key is not null
on conflict (dataset_id, position, key) do nothing

-- name: hasten_waits
-- Rows go on when the first of their boundaries ends, at once if one has.
update row_waits w set due_at = least(w.due_at, x.due_at)
from (
  select b.dataset_id, b.position, min(case when b.state in ('arming', 'armed') then b.due_at else now() end) as due_at
  from unnest(%(wait_slices)b::int[], %(wait_positions)b::bigint[], %(wait_keys)b::text[]) v(n, position, key)
  join unnest(%(dataset_ids)b::bigint[]) with ordinality h(dataset_id, n) on h.n = v.n
  join row_boundaries b on b.dataset_id = h.dataset_id and b.position = v.position and b.key = v.key
  group by b.dataset_id, b.position) x
where w.dataset_id = x.dataset_id and w.position = x.position

-- name: woken_rows
-- Open rows of slices that have waited: woken, unless their holder runs them already.
select v.n, r.position, r.row_key,
  case when pg_column_size(r.input) < 1000 then pg_column_size(r.input) else octet_length(r.input::text) end
from unnest(%(dataset_ids)b::bigint[], %(pages)b::int[], %(slices)b::int[], %(fences)b::int[])
  with ordinality v(dataset_id, page, slice, fence, n)
join slices s on s.dataset_id = v.dataset_id and s.page = v.page and s.slice = v.slice and s.fence = v.fence
  and s.state = 'open' and s.session_id = %(session_id)s
cross join lateral (
  select w.position, w.row_key, w.input, w.state, w.fence from run_rows w
  where w.dataset_id = s.dataset_id and w.position >= s.first_position and w.position < s.end_position
  order by w.position offset 0) r
where r.state in ('pending', 'running') and r.fence > 0
order by v.n, r.position

-- name: end_boundaries
-- Waits that rows had when they ended.
update row_boundaries b set state = case when b.kind = 'sleep' and b.due_at <= now() then 'resolved' else 'cancelled' end
from unnest(%(ended_slices)b::int[], %(ended_positions)b::bigint[]) v(n, position)
join unnest(%(dataset_ids)b::bigint[]) with ordinality h(dataset_id, n) on h.n = v.n
where b.dataset_id = h.dataset_id and b.position = v.position and b.state in ('arming', 'armed')

-- name: write_sheet
-- Values of rows just ended: a newer run's write wins, an older one's row is marked superseded; counted, if it completed.
with h as (
  select * from unnest(%(dataset_ids)b::bigint[], %(org_ids)b::text[], %(plays)b::text[], %(namespaces)b::text[],
    %(versions)b::bigint[], %(run_ids)b::text[])
    with ordinality h(dataset_id, org_id, play, namespace, write_version, run_id, n)),
v as materialized (
  select h.*, v.position, v.row_key, v.data, v.cell_meta, v.state, v.i
  from unnest(%(row_slices)b::int[], %(positions)b::bigint[], %(row_keys)b::text[], %(data)b::text[],
    %(cell_metas)b::text[], %(states)b::text[])
    with ordinality v(n, position, row_key, data, cell_meta, state, i)
  join h on h.n = v.n),
written as (
  insert into sheet_rows as s (org_id, play, namespace, row_key, data, cell_meta, write_version, run_id, state)
  select distinct on (org_id, play, namespace, row_key)
    org_id, play, namespace, row_key, data::jsonb, cell_meta::jsonb, write_version, run_id, state
  from v where state <> 'cancelled'
  order by org_id, play, namespace, row_key, write_version desc, i desc
  on conflict (org_id, play, namespace, row_key) do update
  set data = excluded.data, cell_meta = excluded.cell_meta, write_version = excluded.write_version,
    run_id = excluded.run_id, state = excluded.state, updated_at = now()
  where s.write_version <= excluded.write_version
  returning s.org_id, s.play, s.namespace, s.row_key, s.write_version),
older as (
  select v.dataset_id, v.position, v.state from v
  where v.state <> 'cancelled' and not exists (
    select 1 from written w
    where w.row_key = v.row_key and w.namespace = v.namespace and w.play = v.play and w.org_id = v.org_id
      and w.write_version = v.write_version)),
marked as (
  update run_rows r set superseded = true from older o
  where r.dataset_id = o.dataset_id and r.position = o.position)
insert into dataset_counts as c (dataset_id, session_id, completed, failed, cancelled, superseded)
select v.dataset_id, %(session_id)s, count(*) filter (where v.state = 'completed'),
  count(*) filter (where v.state = 'failed'), count(*) filter (where v.state = 'cancelled'),
  (select count(*) from older o where o.dataset_id = v.dataset_id and o.state = 'completed')
from v group by v.dataset_id
on conflict (dataset_id, session_id) do update
set completed = c.completed + excluded.completed, failed = c.failed + excluded.failed,
  cancelled = c.cancelled + excluded.cancelled, superseded = c.superseded + excluded.superseded

-- name: cancel_open_rows
-- Rows that their holder left open in slices of a dataset or run that ended.
with gone as (
  update run_rows r set state = 'cancelled'
  where r.state in ('pending', 'running', 'waiting') and r.ctid = any(array(
    select o.ctid
    from unnest(%(dataset_ids)b::bigint[], %(pages)b::int[], %(slices)b::int[], %(fences)b::int[])
      h(dataset_id, page, slice, fence)
    join slices s on s.dataset_id = h.dataset_id and s.page = h.page and s.slice = h.slice and s.fence = h.fence
      and s.state = 'open' and s.session_id = %(session_id)s
    cross join lateral (
      select w.ctid, w.state from run_rows w
      where w.dataset_id = s.dataset_id and w.position >= s.first_position and w.position < s.end_position
      order by w.position offset 0) o
    where o.state in ('pending', 'running', 'waiting')))
  returning r.dataset_id)
insert into dataset_counts as c (dataset_id, session_id, cancelled)
select dataset_id, %(session_id)s, count(*) from gone group by dataset_id
on conflict (dataset_id, session_id) do update set cancelled = c.cancelled + excluded.cancelled

-- name: drop_waits
-- Nothing waits in slices of a dataset or run that ended.
delete from row_waits w where w.ctid = any(array(
  select o.ctid
  from unnest(%(dataset_ids)b::bigint[], %(pages)b::int[], %(slices)b::int[], %(fences)b::int[])
    h(dataset_id, page, slice, fence)
  join slices s on s.dataset_id = h.dataset_id and s.page = h.page and s.slice = h.slice and s.fence = h.fence
    and s.state = 'open' and s.session_id = %(session_id)s
  cross join lateral (
    select x.ctid from row_waits x
    where x.dataset_id = s.dataset_id and x.position >= s.first_position and x.position < s.end_position
    order by x.position offset 0) o))

-- name: drop_boundaries
-- Nor is anything awaited there.
update row_boundaries b set state = 'cancelled'
from unnest(%(dataset_ids)b::bigint[], %(pages)b::int[], %(slices)b::int[], %(fences)b::int[])
  h(dataset_id, page, slice, fence)
join slices s on s.dataset_id = h.dataset_id and s.page = h.page and s.slice = h.slice and s.fence = h.fence
  and s.state = 'open' and s.session_id = %(session_id)s
where b.dataset_id = s.dataset_id and b.position >= s.first_position and b.position < s.end_position
  and b.state in ('arming', 'armed')

-- name: finish_slices
-- Final slices without an open row are done.
update slices s set state = 'done', session_id = null, claim = null
from unnest(%(dataset_ids)b::bigint[], %(pages)b::int[], %(slices)b::int[], %(fences)b::int[])
  h(dataset_id, page, slice, fence)
where s.dataset_id = h.dataset_id and s.page = h.page and s.slice = h.slice and s.fence = h.fence
  and s.state = 'open' and s.session_id = %(session_id)s
  and (
    select r.position from run_rows r
    where r.dataset_id = s.dataset_id and r.position >= s.first_position and r.position < s.end_position
      and r.state in ('pending', 'running')
    order by r.position limit 1) is null
returning s.dataset_id, s.page, s.slice

-- name: fail_datasets
-- A row of theirs failed under fail-fast: what is not started is cancelled from now on.
update datasets d set state = 'failing', winding = d.pages_settled < d.pages_seeded
where d.dataset_id = any(array(
  select o.dataset_id from datasets o
  where o.dataset_id = any(%(failing)s::bigint[]) and o.state in ('seeding', 'running')
  order by o.dataset_id for no key update))

-- name: add_usage
-- What was sent on behalf of runs; the same write repeated (answer lost) adds nothing.
insert into run_usage as u (run_id, tool, session_id, items, batches, capacity, cached, followed, credits, write_id)
select v.run_id, v.tool, %(session_id)s, sum(v.items), sum(v.batches), sum(v.capacity), sum(v.cached), sum(v.followed),
  sum(v.credits), %(write_id)s
from unnest(%(usage_run_ids)s::text[], %(tools)s::text[], %(items)s::bigint[], %(batches)s::bigint[],
  %(capacities)s::bigint[], %(cached)s::bigint[], %(followed)s::bigint[], %(credits)s::float8[])
  v(run_id, tool, items, batches, capacity, cached, followed, credits)
group by v.run_id, v.tool order by v.run_id, v.tool
on conflict (run_id, tool, session_id) do update
set items = u.items + excluded.items, batches = u.batches + excluded.batches, capacity = u.capacity + excluded.capacity,
  cached = u.cached + excluded.cached, followed = u.followed + excluded.followed, credits = u.credits + excluded.credits,
  write_id = excluded.write_id
where u.write_id is distinct from excluded.write_id
