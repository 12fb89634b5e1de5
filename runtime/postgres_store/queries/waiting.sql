-- name: due
-- Rows whose wait is over, the longest over first.
select d.run_id, w.dataset_id, w.position
from row_waits w join datasets d on d.dataset_id = w.dataset_id
where w.due_at <= now() order by w.due_at limit %(batch)s

-- name: of_run
-- Rows of a run that wait for one kind of thing.
select d.run_id, w.dataset_id, w.position
from datasets d join row_waits w on w.dataset_id = d.dataset_id and w.kind = %(kind)s
where d.run_id = %(run_id)s order by w.dataset_id, w.position limit %(batch)s

-- name: lock_slices
-- The slices of waiting rows, kept still until commit: slices are locked before rows everywhere.
select s.page, s.slice from slices s
where s.dataset_id = %(dataset_id)s and (s.page, s.slice) in (
  select x.page, x.slice
  from unnest(%(positions)s::bigint[]) v(position)
  join run_rows r on r.dataset_id = %(dataset_id)s and r.position = v.position
  join slices x on x.dataset_id = %(dataset_id)s and x.page = r.page
    and v.position >= x.first_position and v.position < x.end_position)
order by s.page, s.slice for no key update of s

-- name: wake
-- Rows of a live dataset whose wait is over are pending again, and their slices, if done, open and due to be sent.
with woken as (
  update run_rows r set state = 'pending'
  from unnest(%(positions)s::bigint[]) v(position), unnest(%(pages)s::int[], %(slices)s::int[]) h(page, slice),
    slices s, row_waits w
  where r.dataset_id = %(dataset_id)s and r.position = v.position and r.state = 'waiting'
    and s.dataset_id = %(dataset_id)s and s.page = h.page and s.slice = h.slice
    and v.position >= s.first_position and v.position < s.end_position
    and w.dataset_id = %(dataset_id)s and w.position = v.position and (w.due_at <= now() or w.kind = %(kind)s)
    and exists (
      select 1 from datasets d join runs u on u.run_id = d.run_id
      where d.dataset_id = %(dataset_id)s and d.state in ('seeding', 'running')
        and u.state in ('queued', 'running', 'waiting'))
  returning r.position, s.page, s.slice),
over as (
  delete from row_waits w using woken where w.dataset_id = %(dataset_id)s and w.position = woken.position),
opened as (
  update slices s set state = 'open', session_id = null, claim = null, taken_at = greatest(s.taken_at, s.sent_at)
  from (select distinct page, slice from woken) o
  where s.dataset_id = %(dataset_id)s and s.page = o.page and s.slice = o.slice and s.state = 'done')
select distinct page from woken order by page

-- name: lock_pages
-- Pages kept still until commit: whoever parks one decides after us, or before we look.
select page from pages where dataset_id = %(dataset_id)s and page = any(%(pages)s::int[])
order by page for no key update

-- name: unpark
-- Parked pages with a woken row are out again, beyond the window if need be.
with unparked as (
  update pages set state = 'out'
  where dataset_id = %(dataset_id)s and page = any(%(pages)s::int[]) and state = 'parked'
  returning 1),
counted as (select count(*)::int as pages from unparked)
update datasets d set pages_parked = d.pages_parked - c.pages from counted c
where d.dataset_id = %(dataset_id)s and c.pages > 0

-- name: park
-- A page without an open slice, whose rows wait for nothing but sleeps and events, leaves the window.
with parked as (
  update pages p set state = 'parked'
  where p.dataset_id = %(dataset_id)s and p.page = any(%(pages)s::int[]) and p.state = 'out'
    and not exists (
      select 1 from slices s where s.dataset_id = p.dataset_id and s.page = p.page and s.state = 'open')
    and (
      select w.position from row_waits w
      where w.dataset_id = p.dataset_id and w.position >= p.first_position and w.position < p.end_position
      order by w.position limit 1) is not null
    and (
      select w.position from row_waits w
      where w.dataset_id = p.dataset_id and w.position >= p.first_position and w.position < p.end_position
        and w.kind not in ('sleep', 'event')
      order by w.position limit 1) is null
  returning 1)
update datasets d set pages_parked = d.pages_parked + 1 from parked where d.dataset_id = %(dataset_id)s
