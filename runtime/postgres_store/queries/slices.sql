-- name: take
-- Claims an open, unheld slice of a live run; repeated it finds itself; a holder that never came back counts against its rows.
with facts as (
  select d.dataset_id, d.run_id, r.org_id, r.play, d.key, d.namespace, d.columns, d.source_hash, d.on_row_error,
    r.options, r.number, floor(extract(epoch from r.created_at) * 1000)::bigint as epoch_ms
  from datasets d join runs r on r.run_id = d.run_id
  where d.dataset_id = %(dataset_id)s and d.run_id = %(run_id)s and d.state in ('seeding', 'running')
    and %(page)s < d.next_page and r.state in ('queued', 'running', 'waiting')),
crashed as materialized (
  select 1 as one from slices s join sessions x on x.session_id = s.session_id
  where s.dataset_id = %(dataset_id)s and s.page = %(page)s and s.slice = %(slice)s
    and x.ended_at is not null and not x.closed),
taken as (
  update slices s set session_id = %(session_id)s, claim = %(claim)s, taken_at = now(),
    fence = s.fence + (s.claim is distinct from %(claim)s)::int
  where s.dataset_id = %(dataset_id)s and s.page = %(page)s and s.slice = %(slice)s and s.state = 'open'
    and (s.claim = %(claim)s
      or not exists (select 1 from sessions x where x.session_id = s.session_id and x.ended_at is null))
    and exists (select 1 from sessions m where m.session_id = %(session_id)s and m.ended_at is null)
    and exists (select 1 from facts)
  returning s.fence, s.first_position, s.end_position),
counted as (
  update run_rows r set crash_count = r.crash_count + 1
  where r.ctid = any(array(
    select o.ctid
    from crashed, taken t
    cross join lateral (
      select w.ctid, w.state from run_rows w
      where w.dataset_id = %(dataset_id)s and w.position >= t.first_position and w.position < t.end_position
      order by w.position offset 0) o
    where o.state in ('pending', 'running'))))
select taken.fence, facts.*, floor(extract(epoch from clock_timestamp()) * 1000)::bigint from taken, facts

-- name: open_rows
-- The open rows of a slice that this claim holds, in input order; beyond so many bytes without their input.
select r.position, r.row_key,
  case when sum(z.size) over (order by r.position) <= %(read_bytes)s then r.input end as input, r.crash_count, z.size
from slices s
join run_rows r on r.dataset_id = s.dataset_id and r.position >= s.first_position and r.position < s.end_position
cross join lateral (
  select case when pg_column_size(r.input) < 1000 then pg_column_size(r.input) else octet_length(r.input::text) end
    as size) z
where s.dataset_id = %(dataset_id)s and s.page = %(page)s and s.slice = %(slice)s and s.claim = %(claim)s
  and r.state in ('pending', 'running')
order by r.position

-- name: read_rows
-- Open rows of a slice with their input; whether the claim still holds shows when they are written.
select r.position, r.row_key, r.input, r.crash_count from run_rows r
where r.dataset_id = %(dataset_id)s and r.position = any(%(positions)s::bigint[]) and r.state in ('pending', 'running')
order by r.position

-- name: split
-- A slice that took processes down becomes one slice a row: who did it is then known. Its own range is empty now.
with old as materialized (
  select s.first_position, s.end_position from slices s
  where s.dataset_id = %(dataset_id)s and s.page = %(page)s and s.slice = %(slice)s and s.claim = %(claim)s
    and s.state = 'open'
  for no key update of s),
made as (
  insert into slices (dataset_id, page, slice, first_position, end_position, state)
  select %(dataset_id)s, %(page)s, %(suspects_from)s::int + (r.position - p.first_position)::int, r.position,
    r.position + 1, 'open'
  from old join pages p on p.dataset_id = %(dataset_id)s and p.page = %(page)s
  cross join lateral (
    select w.position, w.state from run_rows w
    where w.dataset_id = p.dataset_id and w.position >= old.first_position and w.position < old.end_position
    order by w.position offset 0) r
  where r.state in ('pending', 'running', 'waiting')
  on conflict do nothing)
update slices s set end_position = s.first_position from old
where s.dataset_id = %(dataset_id)s and s.page = %(page)s and s.slice = %(slice)s

-- name: release
-- Gives slices back unfinished: taken after they were sent and held by nobody, so due at once; or as sent later.
update slices s set session_id = null, claim = null,
  taken_at = case when %(after_s)s::float8 > 0 then null else greatest(s.taken_at, s.sent_at) end,
  sent_at = case when %(after_s)s::float8 > 0 then now() + %(after_s)s::float8 * interval '1 second' else s.sent_at end
from unnest(%(dataset_ids)s::bigint[], %(pages)s::int[], %(slices)s::int[], %(fences)s::int[])
  v(dataset_id, page, slice, fence)
where s.dataset_id = v.dataset_id and s.page = v.page and s.slice = v.slice and s.fence = v.fence and s.state = 'open'

-- name: release_claims
-- Gives back slices whose claim was never answered.
update slices set session_id = null, claim = null, taken_at = greatest(taken_at, sent_at)
where claim = any(%(claims)s::text[]) and state = 'open'

-- name: release_forgotten
-- Gives back slices of pages that are out, claimed by this session long ago and not among those that it holds.
update slices s set session_id = null, claim = null, taken_at = greatest(s.taken_at, s.sent_at)
from datasets d join pages p on p.dataset_id = d.dataset_id and p.state = 'out'
where d.state in ('seeding', 'running', 'failing') and s.dataset_id = p.dataset_id and s.page = p.page
  and s.state = 'open' and s.session_id = %(session_id)s
  and s.taken_at < now() - %(held_s)s::float8 * interval '1 second'
  and not exists (
    select 1 from unnest(%(dataset_ids)s::bigint[], %(pages)s::int[], %(slices)s::int[]) h(dataset_id, page, slice)
    where h.dataset_id = s.dataset_id and h.page = s.page and h.slice = s.slice)
