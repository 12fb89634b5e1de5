-- name: facts
-- Version, clock and connections of the server.
select current_setting('server_version_num')::int, extract(epoch from clock_timestamp())::float8,
  (select count(*)::int from pg_stat_activity where backend_type = 'client backend'),
  current_setting('max_connections')::int,
  to_regclass('alembic_version') is not null

-- name: migration
-- The schema's revision.
select version_num from alembic_version

-- name: stuck
-- Runs that could go on and that nobody holds, for longer than sweeps take.
select r.run_id from runs r
where r.state in ('queued', 'running', 'waiting')
  and (r.state = 'queued' or (r.state = 'waiting' and r.wakes > r.wakes_seen)
    or (r.state = 'running'
      and not exists (
        select 1 from sessions s where s.session_id = r.session_id
        and (s.ended_at is null or s.ended_at > now() - %(stuck_s)s::float8 * interval '1 second'))))
  and coalesce(r.started_at, r.created_at) < now() - %(stuck_s)s::float8 * interval '1 second'
order by r.number limit %(limit)s

-- name: workers
-- Sessions that go on, and how many runs and slices each holds.
select s.session_id, s.role, s.hostname, s.pid, s.started_at,
  greatest(0, extract(epoch from now() - s.expires_at) + s.ttl_s)::float8,
  (select count(*)::int from runs r where r.session_id = s.session_id and r.state = 'running'),
  (select count(*)::int from slices x join datasets d on d.dataset_id = x.dataset_id
   where d.state in ('seeding', 'running', 'failing') and x.session_id = s.session_id and x.state = 'open')
from sessions s where s.ended_at is null order by s.role, s.started_at

-- name: live_runs
-- Runs that have not ended, by state.
select state, count(*)::int from runs where state in ('queued', 'running', 'waiting') group by state
