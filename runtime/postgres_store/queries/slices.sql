-- name: take
-- Claims an open, unheld slice of a live run; the same claim repeated (answer lost) finds itself.
with facts as (
  select d.dataset_id, d.run_id, r.org_id, r.play, d.key, d.namespace, d.columns, d.source_hash, d.on_row_error,
    r.options, r.number
  from datasets d join runs r on r.run_id = d.run_id
  where d.dataset_id = %(dataset_id)s and d.run_id = %(run_id)s and d.state in ('seeding', 'running', 'failing')
    and %(page)s < d.next_page and r.state in ('queued', 'running', 'waiting')),
taken as (
  update slices s set session_id = %(session_id)s, claim = %(claim)s, taken_at = now(),
    fence = s.fence + (s.claim is distinct from %(claim)s)::int
  where s.dataset_id = %(dataset_id)s and s.page = %(page)s and s.slice = %(slice)s and s.state = 'open'
    and (s.claim = %(claim)s
      or not exists (select 1 from sessions x where x.session_id = s.session_id and x.ended_at is null))
    and exists (select 1 from sessions m where m.session_id = %(session_id)s and m.ended_at is null)
    and exists (select 1 from facts)
  returning s.fence)
select taken.fence, facts.* from taken, facts

-- name: open_rows
-- The open rows of a slice that this claim holds, in input order.
select r.position, r.row_key, r.input
from slices s join run_rows r
  on r.dataset_id = s.dataset_id and r.position >= s.first_position and r.position < s.end_position
where s.dataset_id = %(dataset_id)s and s.page = %(page)s and s.slice = %(slice)s and s.claim = %(claim)s
  and r.state in ('pending', 'running')
order by r.position

-- name: release
-- Gives slices back unfinished: taken after they were sent and held by nobody, so due at once.
update slices s set session_id = null, claim = null, taken_at = greatest(s.taken_at, s.sent_at)
from unnest(%(dataset_ids)s::bigint[], %(pages)s::int[], %(slices)s::int[], %(fences)s::int[])
  v(dataset_id, page, slice, fence)
where s.dataset_id = v.dataset_id and s.page = v.page and s.slice = v.slice and s.fence = v.fence and s.state = 'open'

-- name: release_claims
-- Gives back slices whose claim was never answered.
update slices set session_id = null, claim = null, taken_at = greatest(taken_at, sent_at)
where claim = any(%(claims)s::text[]) and state = 'open'
