-- name: insert
-- Stores a run once; an existing one is never touched.
insert into runs (run_id, org_id, play, input, options, state, error, hinted_at, ended_at)
values (%(run_id)s, %(org_id)s, %(play)s, %(input)s::jsonb, %(options)s::jsonb, %(state)s, %(error)s::jsonb, now(),
  case when %(state)s::text = 'failed' then now() end)
on conflict (run_id) do nothing

-- name: claim
-- Holds a run that nobody live holds; repeated it finds itself; holders that never came back count, until there is progress.
with crashed as materialized (
  select 1 from runs r join sessions x on x.session_id = r.session_id
  where r.run_id = %(run_id)s and r.state = 'running' and x.ended_at is not null and not x.closed),
progress as materialized (
  select (select count(*) from run_journal j where j.run_id = %(run_id)s) + coalesce((
    select sum(c.completed + c.failed + c.cancelled)
    from datasets d join dataset_counts c on c.dataset_id = d.dataset_id
    where d.run_id = %(run_id)s), 0)::bigint as done
  where exists (select 1 from crashed))
update runs r set
  crashes = case when p.done is null then r.crashes when p.done > r.crash_progress then 1 else r.crashes + 1 end,
  crash_progress = greatest(r.crash_progress, p.done), state = 'running', session_id = %(session_id)s, claim = %(claim)s, hinted_at = now(),
  attempt = r.attempt + (r.claim is distinct from %(claim)s)::int, started_at = coalesce(r.started_at, now())
from (select (select done from progress) as done) p
where r.run_id = %(run_id)s
  and exists (select 1 from sessions m where m.session_id = %(session_id)s and m.ended_at is null)
  and (r.state = 'queued' or (r.state = 'waiting' and r.wakes > r.wakes_seen)
    or (r.state = 'running' and (r.claim = %(claim)s
      or not exists (select 1 from sessions s where s.session_id = r.session_id and s.ended_at is null))))
returning r.run_id, r.org_id, r.play, r.input, r.options, r.attempt, floor(extract(epoch from r.created_at) * 1000)::bigint,
  r.crashes

-- name: journal
-- What the body did, in the order in which outcomes met it.
select seq, op_key, kind, digest, outcome from run_journal
where run_id = %(run_id)s and seq > %(after_seq)s order by seq

-- name: append_journal
-- Adds entries under the attempt's fence; what an unanswered first try left is left alone.
with held as (
  select run_id from runs
  where run_id = %(run_id)s and attempt = %(attempt)s and state = 'running' for share)
insert into run_journal (run_id, seq, op_key, kind, digest, outcome, attempt)
select h.run_id, v.seq, v.op_key, v.kind, v.digest, v.outcome::jsonb, %(attempt)s
from held h, unnest(%(seqs)s::int[], %(op_keys)s::text[], %(kinds)s::text[], %(digests)s::text[], %(outcomes)s::text[])
  v(seq, op_key, kind, digest, outcome)
on conflict do nothing

-- name: count_journal
-- How many of these entries stand as this attempt wrote them.
select count(*) from run_journal j
join unnest(%(seqs)s::int[], %(op_keys)s::text[], %(digests)s::text[]) v(seq, op_key, digest)
  on j.seq = v.seq and j.op_key = v.op_key and j.digest = v.digest
where j.run_id = %(run_id)s and j.attempt = %(attempt)s

-- name: arm_timer
-- Creates a timer's boundary under the attempt's fence; answers whether the fence holds.
with held as (
  select run_id from runs
  where run_id = %(run_id)s and attempt = %(attempt)s and state = 'running' for share),
armed as (
  insert into boundaries (run_id, op_key, kind, state, due_at)
  select run_id, %(op_key)s, 'timer', 'armed', now() + %(delay_s)s::float8 * interval '1 second' from held
  on conflict (run_id, op_key) do nothing)
select count(*) from held

-- name: rest
-- A wait of which nothing but its end matters, under the attempt's fence; a new one takes an old one's place.
with held as (
  select run_id from runs
  where run_id = %(run_id)s and attempt = %(attempt)s and state = 'running' for share),
armed as (
  insert into boundaries (run_id, op_key, kind, state, due_at)
  select run_id, %(op_key)s, %(kind)s, 'armed', now() + %(delay_s)s::float8 * interval '1 second' from held
  on conflict (run_id, op_key) do update set state = excluded.state, due_at = excluded.due_at, outcome = null)
select count(*) from held

-- name: held
-- Whether this attempt still holds the run.
select 1 from runs where run_id = %(run_id)s and attempt = %(attempt)s and state = 'running'

-- name: cancel_dataset
-- The open dataset behind a wait that its body gave up.
update datasets set state = 'cancelled', ended_at = now(), winding = pages_settled < pages_seeded
where run_id = %(run_id)s and op_key = %(op_key)s and state in ('seeding', 'running', 'failing')
returning dataset_id

-- name: cancel_boundary
-- The wait itself.
update boundaries set state = 'cancelled'
where run_id = %(run_id)s and op_key = %(op_key)s and state in ('arming', 'armed')

-- name: resolve_run_timers
-- This run's timers and event waits whose time is up; each ended wait counts as a wake.
with due as (
  update boundaries set state = case when kind = 'event' then 'timed_out' else 'resolved' end,
    outcome = case when kind = 'event' then timeout_outcome
      else jsonb_build_object('ok', null, 'at_ms', ceil(extract(epoch from now()) * 1000)::bigint) end
  where run_id = %(run_id)s and kind in ('timer', 'event') and state = 'armed' and due_at <= now()
  returning run_id),
counted as (select run_id, count(*)::int as wakes from due group by run_id)
update runs r set wakes = r.wakes + c.wakes from counted c where r.run_id = c.run_id

-- name: poll
-- Where the held run stands and which resolved waits its journal doesn't have yet.
select r.wakes, b.op_key, b.outcome
from runs r
left join boundaries b on b.run_id = r.run_id and b.state in ('resolved', 'timed_out')
  and not exists (select 1 from run_journal j where j.run_id = b.run_id and j.op_key = b.op_key)
where r.run_id = %(run_id)s and r.attempt = %(attempt)s and r.state = 'running'
order by b.op_key

-- name: suspend
-- Gives the run up to its waits, unless one was resolved since `wakes_seen` was read.
update runs set state = 'waiting', session_id = null, claim = null, wakes_seen = %(wakes_seen)s
where run_id = %(run_id)s and attempt = %(attempt)s and state = 'running' and wakes = %(wakes_seen)s

-- name: release
-- Gives a held run back unfinished; a sweep names it when its hint is old.
update runs set session_id = null, claim = null,
  hinted_at = case when %(after_s)s::float8 > 0 then now() + %(after_s)s::float8 * interval '1 second' end
where run_id = %(run_id)s and attempt = %(attempt)s and state = 'running'

-- name: pin
-- The play's source hash, the first that is told stands.
update runs set source_hash = coalesce(source_hash, %(source_hash)s) where run_id = %(run_id)s returning source_hash

-- name: unavailable
-- Since when no worker has the play's version, in seconds; anew after progress, or when it was long not said.
with p as (
  select (select count(*) from run_journal j where j.run_id = %(run_id)s) + coalesce((
    select sum(c.completed + c.failed + c.cancelled)
    from datasets d join dataset_counts c on c.dataset_id = d.dataset_id
    where d.run_id = %(run_id)s), 0)::bigint as done)
update runs r set unavailable_at = now(), unavailable_progress = p.done,
  unavailable_since = case when r.unavailable_since is null or p.done > r.unavailable_progress
    or r.unavailable_at < now() - %(forget_s)s::float8 * interval '1 second' then now() else r.unavailable_since end
from p where r.run_id = %(run_id)s
returning extract(epoch from now() - r.unavailable_since)::float8

-- name: count_active
-- Adds the time since the last look to live runs with a deadline that are held now, by their body or a slice.
with looked as (
  select r.run_id, exists (
      select 1 from sessions x where x.session_id = r.session_id and x.ended_at is null)
    or exists (
      select 1 from datasets d
      join pages p on p.dataset_id = d.dataset_id and p.state in ('out', 'parked')
      join slices s on s.dataset_id = p.dataset_id and s.page = p.page and s.state = 'open'
      join sessions x on x.session_id = s.session_id and x.ended_at is null
      where d.run_id = r.run_id) as is_active
  from runs r
  where r.state in ('queued', 'running', 'waiting') and r.options ? 'deadline_s'
  order by r.number for no key update of r skip locked)
update runs r set active_at = now(), active_s = r.active_s + case when l.is_active
  then least(extract(epoch from now() - coalesce(r.active_at, r.started_at, now())), %(most_s)s::float8) else 0 end
from looked l where r.run_id = l.run_id
returning r.run_id, r.active_s, (r.options->>'deadline_s')::float8

-- name: release_claims
-- Gives back runs whose claim was never answered.
update runs set session_id = null, claim = null, hinted_at = null
where claim = any(%(claims)s::text[]) and state = 'running'

-- name: end_datasets
-- Open datasets of a run that ends.
update datasets set state = 'cancelled', ended_at = now(), winding = pages_settled < pages_seeded
where run_id = %(run_id)s and state in ('seeding', 'running', 'failing')
returning dataset_id

-- name: end_boundaries
-- Open waits of a run that ends.
update boundaries set state = 'cancelled' where run_id = %(run_id)s and state in ('arming', 'armed')

-- name: end
-- The run's end by its own body.
update runs set state = %(state)s, result = %(result)s::jsonb, error = %(error)s::jsonb, session_id = null, claim = null,
  ended_at = now()
where run_id = %(run_id)s and attempt = %(attempt)s and state = 'running'

-- name: cancel
-- The run's end from outside, whoever holds it.
update runs set state = 'cancelled', session_id = null, claim = null, ended_at = now()
where run_id = %(run_id)s and state in ('queued', 'running', 'waiting')

-- name: fail
-- The run's failure from outside its body: something that can't go on in any process.
update runs set state = 'failed', error = %(error)s::jsonb, session_id = null, claim = null, ended_at = now()
where run_id = %(run_id)s and state in ('queued', 'running', 'waiting')

-- name: facts
-- What a replay of a live run's body needs.
select run_id, org_id, play, input, options from runs
where run_id = %(run_id)s and state in ('queued', 'running', 'waiting')

-- name: state
-- A run's state.
select state from runs where run_id = %(run_id)s

-- name: add_logs
-- Log lines, each stored once.
insert into run_logs (run_id, scope, n, level, message, fields)
select v.run_id, v.scope, v.n, v.level, v.message, v.fields::jsonb
from unnest(%(run_ids)s::text[], %(scopes)s::text[], %(ns)s::int[], %(levels)s::text[], %(messages)s::text[],
  %(fields)s::text[]) v(run_id, scope, n, level, message, fields)
order by v.run_id, v.scope, v.n
on conflict (run_id, scope, n) do nothing

-- name: live
-- Which of these runs exist and have not ended.
select run_id from runs where run_id = any(%(run_ids)s::text[]) and state in ('queued', 'running', 'waiting')
