-- name: sample_runs
-- Counts of the next live runs, of those whose last sample is old enough for their age; how many, and where to go on.
with looked as materialized (
  select run_id, number, started_at from runs
  where state in ('queued', 'running', 'waiting') and number > %(after)s::bigint order by number limit %(looks)s),
r as materialized (
  select run_id, number, started_at from looked where started_at is not null order by number limit %(runs)s),
sampled as (
insert into run_samples (run_id, completed, failed, cancelled, usage)
select r.run_id, c.completed, c.failed, c.cancelled, u.usage
from r
cross join lateral (select max(s.at) as at from run_samples s where s.run_id = r.run_id) l
cross join lateral (
  select coalesce(sum(c.completed), 0)::bigint as completed, coalesce(sum(c.failed), 0)::bigint as failed,
    coalesce(sum(c.cancelled), 0)::bigint as cancelled
  from datasets d join dataset_counts c on c.dataset_id = d.dataset_id where d.run_id = r.run_id) c
cross join lateral (
  select coalesce(jsonb_object_agg(t.tool, t.counts), '{}') as usage
  from (
    select tool, jsonb_build_array(sum(items), sum(batches), sum(capacity), sum(cached), sum(followed), sum(credits))
      as counts
    from run_usage where run_id = r.run_id group by tool) t) u
where l.at is null or l.at <= now() - interval '1 second' * greatest(
  %(sample_s)s::float8, extract(epoch from now() - r.started_at)::float8 / %(of_age)s)
on conflict do nothing
returning 1)
select (select count(*) from sampled),
  case when (select count(*) from r) >= %(runs)s then (select max(number) from r)
    when (select count(*) from looked) >= %(looks)s then (select max(number) from looked) else 0 end

-- name: any_live
-- Whether a run that has begun goes on.
select exists (
  select 1 from runs where state in ('queued', 'running', 'waiting') and started_at is not null)

-- name: sample_lanes
-- Lanes that changed since their last sample; those that stand still with work in them now and then.
insert into lane_samples
  (org_id, lane, provider, requests, items, capacity, in_flight, waiting, rate_per_s, reason, closed_until)
select v.org_id, v.lane, v.provider, v.requests, v.items, v.capacity, v.in_flight, v.waiting, v.rate_per_s, v.reason,
  now() + v.closed_ms * interval '1 millisecond'
from unnest(%(org_ids)s::text[], %(lanes)s::text[], %(providers)s::text[], %(requests)s::bigint[], %(items)s::bigint[],
  %(capacities)s::bigint[], %(in_flight)s::int[], %(waiting)s::int[], %(rates)s::float8[], %(reasons)s::text[],
  %(closed_ms)s::float8[])
  v(org_id, lane, provider, requests, items, capacity, in_flight, waiting, rate_per_s, reason, closed_ms)
left join lateral (
  select s.* from lane_samples s
  where s.org_id = v.org_id and s.lane = v.lane and s.provider = v.provider order by s.at desc limit 1) l on true
where l.at is null or l.at <= now() - %(sample_s)s::float8 * interval '1 second'
  and ((l.requests, l.items, l.in_flight, l.waiting, l.reason)
      is distinct from (v.requests, v.items, v.in_flight, v.waiting, v.reason)
    or (v.in_flight > 0 or v.waiting > 0 or v.closed_ms is not null)
      and l.at <= now() - %(again_s)s::float8 * interval '1 second')
on conflict do nothing

-- name: forget_lanes
-- Old samples of lanes.
delete from lane_samples where ctid = any(array(
  select ctid from lane_samples where at < now() - %(keep_s)s::float8 * interval '1 second' limit %(batch)s))

-- name: run
-- The samples of a run, in order.
select at, completed, failed, cancelled, usage from run_samples where run_id = %(run_id)s order by at

-- name: run_since
-- The newest sample of a run that is at least so old, else its first.
select at, completed, failed, cancelled, usage from run_samples
where run_id = %(run_id)s
order by at <= now() - %(age_s)s::float8 * interval '1 second' desc,
  case when at <= now() - %(age_s)s::float8 * interval '1 second' then at end desc, at
limit 1

-- name: active
-- Seconds of active time counted so far.
select active_s from runs where run_id = %(run_id)s

-- name: lanes
-- Samples of an organisation's lanes within a time, in order.
select lane, provider, at, requests, items, capacity, in_flight, waiting, rate_per_s, reason, closed_until
from lane_samples where org_id = %(org_id)s and at between %(since)s and %(until)s order by lane, provider, at
limit %(limit)s

-- name: lanes_now
-- The newest sample of each of an organisation's lanes, if it is recent.
select distinct on (lane, provider)
  lane, provider, at, requests, items, capacity, in_flight, waiting, rate_per_s, reason, closed_until
from lane_samples where org_id = %(org_id)s and at > now() - %(recent_s)s::float8 * interval '1 second'
order by lane, provider, at desc

-- name: failures
-- Failed rows of a run by kind, each with its first row.
select d.key, coalesce(r.error->>'code', 'unknown'), count(*), (array_agg(r.row_key order by r.position))[1],
  (array_agg(r.error->>'message' order by r.position))[1]
from datasets d join run_rows r on r.dataset_id = d.dataset_id and r.state = 'failed'
where d.run_id = %(run_id)s
group by 1, 2 order by 3 desc limit %(limit)s

-- name: cells
-- States of a run's cells by column, of the rows that it wrote last.
select d.key, c.key, c.value->>'state', count(*)
from datasets d
join runs r on r.run_id = d.run_id
join run_rows w on w.dataset_id = d.dataset_id and w.state in ('completed', 'failed')
join sheet_rows s on s.org_id = r.org_id and s.play = r.play and s.namespace = d.namespace and s.row_key = w.row_key
cross join lateral jsonb_each(s.cell_meta) c
where d.run_id = %(run_id)s and s.run_id = r.run_id
group by 1, 2, 3 order by 1, 2, 3
