-- name: lock_keys
-- Whoever arms, ends or delivers under these event keys takes turns until commit.
select pg_advisory_xact_lock(20556, lock) from unnest(%(locks)s::int[]) lock

-- name: store_event
-- Keeps an event once; what came first counts.
insert into delivered_events (org_id, event_id, event_key, payload)
values (%(org_id)s, %(event_id)s, %(event_key)s, %(payload)s::jsonb)
on conflict (org_id, event_id) do nothing

-- name: is_open
-- Whether the event is still to be delivered, under the key that it was stored with.
select 1 from delivered_events
where org_id = %(org_id)s and event_id = %(event_id)s and event_key = %(event_key)s and delivered_at is null

-- name: end_bodies
-- The oldest armed wait of each body that hasn't seen the event; each ended wait counts as a wake.
with event as (
  select payload, created_at from delivered_events where org_id = %(org_id)s and event_id = %(event_id)s),
found as (
  select distinct on (b.run_id) b.run_id, b.op_key
  from event e cross join boundaries b
  join runs r on r.run_id = b.run_id and r.state in ('queued', 'running', 'waiting') and r.created_at <= e.created_at
  where b.org_id = %(org_id)s and b.event_key = %(event_key)s and b.state = 'armed' and b.due_at > now()
    and not exists (select 1 from boundaries x where x.run_id = b.run_id and x.event_id = %(event_id)s)
  order by b.run_id, b.armed_at, b.op_key limit %(batch)s),
ended as (
  update boundaries b set state = 'resolved', event_id = %(event_id)s, outcome = jsonb_build_object('ok', e.payload)
  from found f, event e where b.run_id = f.run_id and b.op_key = f.op_key and b.state = 'armed'
  returning b.run_id)
update runs r set wakes = r.wakes + 1 from ended where r.run_id = ended.run_id
returning r.run_id, r.state

-- name: end_rows
-- The oldest armed wait of each row that hasn't seen the event; rows that wait already are due now.
with event as (
  select payload, created_at from delivered_events where org_id = %(org_id)s and event_id = %(event_id)s),
found as (
  select distinct on (b.dataset_id, b.position) b.dataset_id, b.position, b.key
  from event e cross join row_boundaries b
  join datasets d on d.dataset_id = b.dataset_id and d.state in ('seeding', 'running', 'failing')
  join runs r on r.run_id = d.run_id and r.state in ('queued', 'running', 'waiting') and r.created_at <= e.created_at
  where b.org_id = %(org_id)s and b.event_key = %(event_key)s and b.state = 'armed' and b.due_at > now()
    and not exists (
      select 1 from row_boundaries x
      where x.dataset_id = b.dataset_id and x.position = b.position and x.event_id = %(event_id)s)
  order by b.dataset_id, b.position, b.armed_at, b.key limit %(batch)s),
ended as (
  update row_boundaries b set state = 'resolved', event_id = %(event_id)s, outcome = jsonb_build_object('ok', e.payload)
  from found f, event e
  where b.dataset_id = f.dataset_id and b.position = f.position and b.key = f.key and b.state = 'armed'
  returning b.dataset_id, b.position),
due as (
  update row_waits w set due_at = now() from ended e
  where w.dataset_id = e.dataset_id and w.position = e.position)
select count(*) from ended

-- name: delivered
-- Nothing is left that waits for it.
update delivered_events set delivered_at = now() where org_id = %(org_id)s and event_id = %(event_id)s

-- name: undelivered
-- Events whose message was lost, the oldest first.
select org_id, event_id, event_key, payload from delivered_events
where delivered_at is null and created_at < now() - %(late_s)s::float8 * interval '1 second'
order by created_at limit %(batch)s

-- name: prune
-- Events that no wait will ask for any more.
delete from delivered_events where (org_id, event_id) in (
  select org_id, event_id from delivered_events
  where created_at < now() - %(keep_s)s::float8 * interval '1 second' and delivered_at is not null
  order by created_at limit %(batch)s for update skip locked)

-- name: arm_body
-- A body's event wait under the attempt's fence; the oldest stored event that the body hasn't seen ends it at once.
with held as (
  select r.run_id, r.org_id, r.created_at from runs r
  where r.run_id = %(run_id)s and r.attempt = %(holder)s and r.state = 'running' for no key update),
taken as (
  select e.event_id, e.payload
  from held h join delivered_events e
    on e.org_id = h.org_id and e.event_key = %(event_key)s and e.created_at >= h.created_at
  where not exists (select 1 from boundaries b where b.run_id = h.run_id and b.event_id = e.event_id)
  order by e.number limit 1),
armed as (
  insert into boundaries (run_id, op_key, kind, state, due_at, org_id, event_key, event_id, timeout_outcome, outcome, holder)
  select h.run_id, %(key)s, 'event', case when t.event_id is null then 'armed' else 'resolved' end,
    now() + %(due_ms)s::float8 * interval '1 millisecond', h.org_id, %(event_key)s, t.event_id,
    %(timeout_outcome)s::jsonb, case when t.event_id is not null then jsonb_build_object('ok', t.payload) end, %(holder)s
  from held h left join taken t on true
  on conflict (run_id, op_key) do nothing
  returning run_id, state),
woken as (
  update runs r set wakes = r.wakes + 1 from armed a where r.run_id = a.run_id and a.state = 'resolved')
select count(*) from held

-- name: body_due
-- The body's wait whose time is up.
with due as (
  update boundaries b set state = 'timed_out', outcome = b.timeout_outcome
  where b.run_id = %(run_id)s and b.op_key = %(key)s and b.kind = 'event' and b.state = 'armed' and b.due_at <= now()
  returning b.run_id)
update runs r set wakes = r.wakes + 1 from due where r.run_id = due.run_id

-- name: body_boundary
-- One boundary of a body.
select 0, op_key, state, kind, (extract(epoch from due_at - now()) * 1000)::float8, outcome, event_key, prepared, holder
from boundaries where run_id = %(run_id)s and op_key = %(key)s

-- name: body_held
-- Whether this attempt holds the run; kept until commit.
select 1 from runs where run_id = %(run_id)s and attempt = %(holder)s and state = 'running' for share

-- name: prepare_body
-- A wait that is being armed outside.
insert into boundaries (run_id, op_key, kind, state, org_id, event_key, prepared, holder)
select r.run_id, %(key)s, 'event', 'arming', r.org_id, %(event_key)s, %(prepared)s::jsonb, %(holder)s
from runs r where r.run_id = %(run_id)s
on conflict (run_id, op_key) do nothing

-- name: adopt_body
-- An arming that a lost holder began.
update boundaries set holder = %(holder)s
where run_id = %(run_id)s and op_key = %(key)s and state = 'arming' and holder = %(from_holder)s

-- name: armed_body
-- What this holder was arming is armed, or ended by the oldest stored event that the body hasn't seen.
with taken as (
  select e.event_id, e.payload
  from runs r join delivered_events e
    on e.org_id = r.org_id and e.event_key = %(event_key)s and e.created_at >= r.created_at
  where r.run_id = %(run_id)s
    and not exists (select 1 from boundaries b where b.run_id = r.run_id and b.event_id = e.event_id)
  order by e.number limit 1)
update boundaries b set state = case when t.event_id is null then 'armed' else 'resolved' end, event_key = %(event_key)s,
  event_id = t.event_id, outcome = case when t.event_id is not null then jsonb_build_object('ok', t.payload) end,
  due_at = now() + %(due_ms)s::float8 * interval '1 millisecond', timeout_outcome = %(timeout_outcome)s::jsonb,
  prepared = coalesce(%(prepared)s::jsonb, b.prepared), armed_at = now()
from (select 1) one left join taken t on true
where b.run_id = %(run_id)s and b.op_key = %(key)s and b.state = 'arming' and b.holder = %(holder)s

-- name: close_body
-- An open wait ends cancelled, one that timed out gets its outcome.
update boundaries set state = case when state = 'timed_out' then state else 'cancelled' end, outcome = %(outcome)s::jsonb
where run_id = %(run_id)s and op_key = %(key)s and state in ('arming', 'armed', 'timed_out') and outcome is null

-- name: rows_due
-- Waits of rows whose time is up.
update row_boundaries set state = case when kind = 'event' then 'timed_out' else 'resolved' end,
  outcome = case when kind = 'event' then timeout_outcome else '{"ok": null}' end
where dataset_id = %(dataset_id)s and position = any(%(positions)s::bigint[]) and state = 'armed' and due_at <= now()

-- name: rows_boundaries
-- All boundaries of rows.
select position, key, state, kind, (extract(epoch from due_at - now()) * 1000)::float8, outcome, event_key, prepared, holder
from row_boundaries where dataset_id = %(dataset_id)s and position = any(%(positions)s::bigint[])

-- name: row_due
-- The row's wait whose time is up.
update row_boundaries set state = case when kind = 'event' then 'timed_out' else 'resolved' end,
  outcome = case when kind = 'event' then timeout_outcome else '{"ok": null}' end
where dataset_id = %(dataset_id)s and position = %(position)s and key = %(key)s and state = 'armed' and due_at <= now()

-- name: row_boundary
-- One boundary of a row.
select position, key, state, kind, (extract(epoch from due_at - now()) * 1000)::float8, outcome, event_key, prepared, holder
from row_boundaries where dataset_id = %(dataset_id)s and position = %(position)s and key = %(key)s

-- name: row_held
-- Whether this fence holds the row's slice, of a live run; kept until commit.
select 1 from slices s
where s.dataset_id = %(dataset_id)s and s.page = %(page)s and s.slice = %(slice)s and s.fence = %(holder)s
  and s.state = 'open' for share

-- name: prepare_row
-- A wait that is being armed outside.
insert into row_boundaries (dataset_id, position, key, kind, state, org_id, event_key, prepared, holder)
select d.dataset_id, %(position)s, %(key)s, 'event', 'arming', r.org_id, %(event_key)s, %(prepared)s::jsonb, %(holder)s
from datasets d join runs r on r.run_id = d.run_id where d.dataset_id = %(dataset_id)s
on conflict (dataset_id, position, key) do nothing

-- name: adopt_row
-- An arming that a lost holder began.
update row_boundaries set holder = %(holder)s
where dataset_id = %(dataset_id)s and position = %(position)s and key = %(key)s and state = 'arming'
  and holder = %(from_holder)s

-- name: armed_row
-- What this holder was arming is armed, or ended by the oldest stored event that the row hasn't seen.
with taken as (
  select e.event_id, e.payload
  from datasets d join runs r on r.run_id = d.run_id
  join delivered_events e on e.org_id = r.org_id and e.event_key = %(event_key)s and e.created_at >= r.created_at
  where d.dataset_id = %(dataset_id)s
    and not exists (
      select 1 from row_boundaries b
      where b.dataset_id = %(dataset_id)s and b.position = %(position)s and b.event_id = e.event_id)
  order by e.number limit 1)
update row_boundaries b set state = case when t.event_id is null then 'armed' else 'resolved' end,
  event_key = %(event_key)s, event_id = t.event_id,
  outcome = case when t.event_id is not null then jsonb_build_object('ok', t.payload) end,
  due_at = now() + %(due_ms)s::float8 * interval '1 millisecond', timeout_outcome = %(timeout_outcome)s::jsonb,
  prepared = coalesce(%(prepared)s::jsonb, b.prepared), armed_at = now()
from (select 1) one left join taken t on true
where b.dataset_id = %(dataset_id)s and b.position = %(position)s and b.key = %(key)s and b.state = 'arming'
  and b.holder = %(holder)s

-- name: close_row
-- An open wait ends cancelled, one that timed out gets its outcome.
update row_boundaries set state = case when state = 'timed_out' then state else 'cancelled' end,
  outcome = %(outcome)s::jsonb
where dataset_id = %(dataset_id)s and position = %(position)s and key = %(key)s
  and state in ('arming', 'armed', 'timed_out') and outcome is null

-- name: awaited
-- What a live run waits for: its body's waits, those of its waiting rows counted, the soonest first.
(select 'body', b.kind, coalesce(b.event_key, b.op_key), 1::bigint, b.due_at, b.armed_at
 from boundaries b join runs r on r.run_id = b.run_id and r.state in ('queued', 'running', 'waiting')
 where b.run_id = %(run_id)s and b.state in ('arming', 'armed')
 order by b.due_at limit %(batch)s)
union all
(select d.key, w.kind, w.detail, count(*), min(w.due_at), min(w.since)
 from datasets d join row_waits w on w.dataset_id = d.dataset_id
 where d.run_id = %(run_id)s and d.state in ('seeding', 'running', 'failing')
 group by d.key, w.kind, w.detail
 order by min(w.due_at) limit %(batch)s)
