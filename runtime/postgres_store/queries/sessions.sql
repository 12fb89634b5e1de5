-- name: open
-- A process begins a life; opening it again changes nothing.
insert into sessions (session_id, role, hostname, pid, ttl_s, expires_at)
values (%(session_id)s, %(role)s, %(hostname)s, %(pid)s, %(ttl_s)s, now() + %(ttl_s)s::float8 * interval '1 second')
on conflict (session_id) do nothing

-- name: renew
-- Moves the end of a life on, unless somebody ended it.
update sessions set expires_at = now() + %(ttl_s)s::float8 * interval '1 second', ttl_s = %(ttl_s)s
where session_id = %(session_id)s and ended_at is null
returning 1

-- name: close
-- Ends a life now: all its claims are free.
update sessions set ended_at = now(), closed = true where session_id = %(session_id)s and ended_at is null

-- name: end_expired
-- Ends lives whose time is up, but only after Postgres itself was up for one TTL.
update sessions set ended_at = now()
where ended_at is null and expires_at < now()
  and pg_postmaster_start_time() < now() - ttl_s * interval '1 second'
returning session_id

-- name: forget_ended
-- Drops lives that ended long ago; a claim without its session is free.
delete from sessions where session_id in (
  select session_id from sessions
  where ended_at is not null and ended_at < now() - %(keep_s)s::float8 * interval '1 second'
  order by ended_at limit %(batch)s for update skip locked)

-- name: live
-- Which of these lives go on.
select session_id from sessions where session_id = any(%(session_ids)s::text[]) and ended_at is null

-- name: registered
-- Remembers that this life may hold leases in Redis.
update sessions set redis_epoch = %(epoch)s where session_id = %(session_id)s

-- name: others_registered
-- Whether another life that goes on may hold leases in Redis.
select exists (
  select 1 from sessions
  where ended_at is null and redis_epoch is not null and role = 'lanes' and session_id <> %(session_id)s)
