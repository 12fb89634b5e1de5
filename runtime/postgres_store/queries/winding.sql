-- name: pages
-- Unsettled pages of a dataset that failed or ended, a few.
(select page from pages where dataset_id = %(dataset_id)s and state in ('out', 'parked') order by page limit %(pages)s)
union all
(select page from pages where dataset_id = %(dataset_id)s and state = 'seeded' order by page limit %(pages)s)

-- name: close_slices
-- Slices of these pages that no live session holds, if the dataset fails or has ended.
update slices s set state = 'done', session_id = null, claim = null
where s.dataset_id = %(dataset_id)s and s.page = any(%(pages)s::int[]) and s.state = 'open'
  and not exists (select 1 from sessions x where x.session_id = s.session_id and x.ended_at is null)
  and exists (select 1 from datasets d where d.dataset_id = s.dataset_id and d.state in ('failing', 'settled', 'failed', 'cancelled'))

-- name: cancel_rows
-- Open rows of these pages that are in no open slice, if the dataset fails or has ended; counted.
with gone as (
  update run_rows r set state = 'cancelled'
  where r.state in ('pending', 'running', 'waiting') and r.ctid = any(array(
    select o.ctid
    from pages p join datasets d on d.dataset_id = p.dataset_id and d.state in ('failing', 'settled', 'failed', 'cancelled')
    cross join lateral (
      select w.ctid, w.state, w.position from run_rows w
      where w.dataset_id = p.dataset_id and w.position >= p.first_position and w.position < p.end_position
      order by w.position offset 0) o
    where p.dataset_id = %(dataset_id)s and p.page = any(%(pages)s::int[]) and p.state <> 'settled'
      and o.state in ('pending', 'running', 'waiting')
      and (
        select s.slice from slices s
        where s.dataset_id = p.dataset_id and s.page = p.page and s.state = 'open'
          and o.position >= s.first_position and o.position < s.end_position
        order by s.slice limit 1) is null))
  returning 1)
insert into dataset_counts as c (dataset_id, session_id, cancelled)
select %(dataset_id)s, '', count(*) from gone having count(*) > 0
on conflict (dataset_id, session_id) do update set cancelled = c.cancelled + excluded.cancelled

-- name: cancel_boundaries
-- Open waits of rows of these pages that have ended.
update row_boundaries b set state = 'cancelled'
from pages p, run_rows r
where p.dataset_id = %(dataset_id)s and p.page = any(%(pages)s::int[])
  and b.dataset_id = p.dataset_id and b.position >= p.first_position and b.position < p.end_position
  and b.state in ('arming', 'armed')
  and r.dataset_id = b.dataset_id and r.position = b.position and r.state in ('completed', 'failed', 'cancelled')

-- name: drop_waits
-- What rows of these pages waited for that wait no more.
delete from row_waits w where w.ctid = any(array(
  select o.ctid
  from pages p join datasets d on d.dataset_id = p.dataset_id and d.state in ('failing', 'settled', 'failed', 'cancelled')
  cross join lateral (
    select x.ctid, r.state
    from row_waits x join run_rows r on r.dataset_id = x.dataset_id and r.position = x.position
    where x.dataset_id = p.dataset_id and x.position >= p.first_position and x.position < p.end_position
    order by x.position offset 0) o
  where p.dataset_id = %(dataset_id)s and p.page = any(%(pages)s::int[]) and o.state <> 'waiting'))

-- name: settle_pages
-- Those of these pages that have no open slice and no open row left (a holder may just have let one wait), if the dataset ends.
with settled as (
  update pages p set state = 'settled'
  from datasets d
  where p.dataset_id = %(dataset_id)s and p.page = any(%(pages)s::int[]) and p.state <> 'settled'
    and d.dataset_id = p.dataset_id and d.state in ('failing', 'settled', 'failed', 'cancelled')
    and not exists (
      select 1 from slices s where s.dataset_id = p.dataset_id and s.page = p.page and s.state = 'open')
    and (
      select r.position from run_rows r
      where r.dataset_id = p.dataset_id and r.position >= p.first_position and r.position < p.end_position
        and r.state in ('pending', 'running', 'waiting')
      order by r.position limit 1) is null
  returning 1),
counted as (select count(*)::int as pages from settled)
update datasets d set pages_settled = d.pages_settled + c.pages, winding = d.pages_settled + c.pages < d.pages_seeded
from counted c
where d.dataset_id = %(dataset_id)s and c.pages > 0
