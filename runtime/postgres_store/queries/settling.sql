-- name: close_slices
-- Slices of a page that nobody holds and that have no open row.
update slices s set state = 'done', session_id = null, claim = null
where s.dataset_id = %(dataset_id)s and s.page = %(page)s and s.state = 'open'
  and not exists (select 1 from sessions x where x.session_id = s.session_id and x.ended_at is null)
  and (
    select r.position from run_rows r
    where r.dataset_id = s.dataset_id and r.position >= s.first_position and r.position < s.end_position
      and r.state in ('pending', 'running')
    order by r.position limit 1) is null

-- name: settle_page
-- The page, once none of its slices is open and none of its rows waits; counted in the same statement.
with settled as (
  update pages p set state = 'settled'
  where p.dataset_id = %(dataset_id)s and p.page = %(page)s and p.state = 'out'
    and not exists (
      select 1 from slices s where s.dataset_id = p.dataset_id and s.page = p.page and s.state = 'open')
    and (
      select w.position from row_waits w
      where w.dataset_id = p.dataset_id and w.position >= p.first_position and w.position < p.end_position
      order by w.position limit 1) is null
  returning p.dataset_id)
update datasets d set pages_settled = d.pages_settled + 1, winding = d.winding and d.pages_settled + 1 < d.pages_seeded
from settled where d.dataset_id = settled.dataset_id
returning 1

-- name: state
-- A dataset's state, and whether a row of the page waits for what could park it.
select d.state, (
  select w.position from pages p join row_waits w
    on w.dataset_id = p.dataset_id and w.position >= p.first_position and w.position < p.end_position
  where p.dataset_id = d.dataset_id and p.page = %(page)s and p.state = 'out' and w.kind in ('sleep', 'event')
  order by w.position limit 1) is not null
from datasets d where d.dataset_id = %(dataset_id)s

-- name: move_window
-- As far as pages in flight allow; claimed_from keeps where it stood.
update datasets set claimed_from = next_page,
  next_page = least(pages_seeded, pages_settled + pages_parked + %(window)s)
where dataset_id = %(dataset_id)s and state in ('seeding', 'running')
  and next_page < least(pages_seeded, pages_settled + pages_parked + %(window)s)

-- name: pace
-- Pages settled, the dataset's age, and whether a claimed page waits to be cut.
select d.pages_settled, extract(epoch from now() - d.created_at)::float8, exists (
  select 1 from pages p where p.dataset_id = d.dataset_id and p.state = 'seeded' and p.page < d.next_page)
from datasets d where d.dataset_id = %(dataset_id)s

-- name: cut_pages
-- Claimed pages that aren't cut yet become slices; ranges without a row make none.
with cut as (
  update pages p set state = 'out'
  from datasets d
  where p.dataset_id = %(dataset_id)s and p.state = 'seeded'
    and d.dataset_id = p.dataset_id and p.page < d.next_page and d.state in ('seeding', 'running')
  returning p.dataset_id, p.page, p.first_position, p.end_position),
made as (
  insert into slices (dataset_id, page, slice, first_position, end_position, state)
  select c.dataset_id, c.page, n, c.first_position + n * %(slice_rows)s::bigint,
    least(c.first_position + (n + 1) * %(slice_rows)s::bigint, c.end_position), 'open'
  from cut c, generate_series(0, ((c.end_position - c.first_position - 1) / %(slice_rows)s::bigint)::int) n
  where c.end_position > c.first_position and (
    select r.position from run_rows r
    where r.dataset_id = c.dataset_id and r.position >= c.first_position + n * %(slice_rows)s::bigint
      and r.position < least(c.first_position + (n + 1) * %(slice_rows)s::bigint, c.end_position)
      and r.state in ('pending', 'running', 'waiting')
    order by r.position limit 1) is not null
  on conflict do nothing)
select page from cut order by page

-- name: due_slices
-- Marks as sent the open, unheld slices that were never sent, whose message Redis lost, that came back, or that nobody took.
update slices s set sent_at = now(), sends = s.sends + 1, epoch = %(epoch)s
where s.dataset_id = %(dataset_id)s and s.page = %(page)s and s.state = 'open'
  and not exists (select 1 from sessions x where x.session_id = s.session_id and x.ended_at is null)
  and (s.sent_at is null or s.epoch is distinct from %(epoch)s or s.taken_at >= s.sent_at
    or s.sent_at < now() - %(stale_s)s::float8 * interval '1 second')
  and exists (
    select 1 from datasets d join runs r on r.run_id = d.run_id
    where d.dataset_id = s.dataset_id and d.state in ('seeding', 'running')
      and r.state in ('queued', 'running', 'waiting'))
returning s.slice

-- name: end_dataset
-- Ends a dataset whose pages are all settled; failed if every one of its rows failed, or any under fail-fast.
update datasets d set ended_at = now(),
  state = case when d.state = 'failing' or c.failed > 0 and c.failed = d.rows_seeded then 'failed' else 'settled' end
from (
  select coalesce(sum(completed), 0)::bigint as completed, coalesce(sum(failed), 0)::bigint as failed,
    coalesce(sum(cancelled), 0)::bigint as cancelled, coalesce(sum(superseded), 0)::bigint as superseded
  from dataset_counts where dataset_id = %(dataset_id)s) c
where d.dataset_id = %(dataset_id)s and (d.state = 'running' and d.pages_settled = d.pages_total
  or d.state = 'failing' and d.pages_settled = d.pages_seeded)
returning d.run_id, d.op_key, d.key, d.namespace, d.state, d.on_row_error, d.rows_seeded, d.duplicates, c.completed,
  c.failed, c.cancelled, c.superseded, d.kept, d.left_out, ceil(extract(epoch from now()) * 1000)::bigint,
  extract(epoch from d.created_at)::float8

-- name: first_failures
-- The first failed rows of a dataset.
select row_key, error from run_rows where dataset_id = %(dataset_id)s and state = 'failed' order by position limit %(limit)s

-- name: resolve_boundary
-- A dataset's boundary gets its outcome and the run a wake; answers the run's state.
with resolved as (
  update boundaries set state = 'resolved', outcome = %(outcome)s::jsonb
  where run_id = %(run_id)s and op_key = %(op_key)s and state in ('arming', 'armed')
  returning run_id)
update runs r set wakes = r.wakes + 1 from resolved b where r.run_id = b.run_id returning r.state

-- name: stale_pages
-- Pages to cut, send, settle or wind down.
(select d.run_id, d.dataset_id, p.page
 from datasets d join pages p on p.dataset_id = d.dataset_id and p.state in ('out', 'parked')
 where d.state in ('seeding', 'running') and (
   p.state = 'out' and not exists (
     select 1 from slices s where s.dataset_id = p.dataset_id and s.page = p.page and s.state = 'open')
     and (
       select w.position from row_waits w
       where w.dataset_id = p.dataset_id and w.position >= p.first_position and w.position < p.end_position
         and w.kind not in ('sleep', 'event')
       order by w.position limit 1) is null
   or exists (
     select 1 from slices s
     where s.dataset_id = p.dataset_id and s.page = p.page and s.state = 'open'
       and not exists (select 1 from sessions x where x.session_id = s.session_id and x.ended_at is null)
       and (s.sent_at is null or s.epoch is distinct from %(epoch)s or s.taken_at >= s.sent_at
         or s.sent_at < now() - %(stale_s)s::float8 * interval '1 second')))
 limit %(batch)s)
union all
(select d.run_id, d.dataset_id, p.page
 from datasets d join pages p on p.dataset_id = d.dataset_id and p.state = 'seeded' and p.page < d.next_page
 where d.state in ('seeding', 'running')
 limit %(batch)s)
union all
(select d.run_id, d.dataset_id, p.page
 from datasets d join pages p on p.dataset_id = d.dataset_id and p.state = 'seeded'
 where d.winding
 limit %(batch)s)
union all
(select d.run_id, d.dataset_id, p.page
 from datasets d join pages p on p.dataset_id = d.dataset_id and p.state in ('out', 'parked')
 where d.winding and not exists (
   select 1 from slices s join sessions x on x.session_id = s.session_id and x.ended_at is null
   where s.dataset_id = p.dataset_id and s.page = p.page and s.state = 'open')
 limit %(batch)s)

-- name: stale_datasets
-- Datasets that can claim a page or end.
select dataset_id from datasets
where state in ('seeding', 'running', 'failing') and (
  (state in ('seeding', 'running') and next_page < least(pages_seeded, pages_settled + pages_parked + %(window)s))
  or (state = 'running' and pages_settled = pages_total)
  or (state = 'failing' and pages_settled = pages_seeded))
limit %(batch)s

-- name: due_runs
-- Runs that nobody holds and that can go on; the hint is marked, so that each is named once a sweep.
update runs set hinted_at = now() where run_id in (
  select r.run_id from runs r
  where r.state in ('queued', 'running', 'waiting')
    and (r.hinted_at is null or r.hinted_at < now() - %(sweep_s)s::float8 * interval '1 second')
    and (r.state = 'queued' or (r.state = 'waiting' and r.wakes > r.wakes_seen)
      or (r.state = 'running'
        and not exists (select 1 from sessions s where s.session_id = r.session_id and s.ended_at is null)))
  order by r.number limit %(batch)s for update of r skip locked)
returning run_id

-- name: resolve_timers
-- Timers and event waits of any run whose time is up; each resolved wait counts as a wake.
with due as (
  update boundaries b set state = case when b.kind = 'event' then 'timed_out' else 'resolved' end,
    outcome = case when b.kind = 'event' then b.timeout_outcome
      else jsonb_build_object('ok', null, 'at_ms', ceil(extract(epoch from now()) * 1000)::bigint) end
  from (
    select run_id, op_key from boundaries
    where state = 'armed' and due_at is not null and due_at <= now()
    order by due_at limit %(batch)s for update skip locked) d
  where b.run_id = d.run_id and b.op_key = d.op_key
  returning b.run_id),
counted as (select run_id, count(*)::int as wakes from due group by run_id)
update runs r set wakes = r.wakes + c.wakes from counted c where r.run_id = c.run_id

-- name: run_of
-- The run that a dataset belongs to.
select run_id from datasets where dataset_id = %(dataset_id)s

-- name: try_turn
-- One process at a time, until its transaction ends.
select pg_try_advisory_xact_lock(%(key)s)
