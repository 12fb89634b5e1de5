-- name: see
-- Schedules that are new begin now.
insert into play_schedules (org_id, play, cron, timezone)
select * from unnest(%(org_ids)s::text[], %(plays)s::text[], %(crons)s::text[], %(timezones)s::text[])
on conflict do nothing

-- name: known
-- How these stand, in their order.
select s.last_tick, now()
from unnest(%(org_ids)s::text[], %(plays)s::text[], %(crons)s::text[], %(timezones)s::text[])
  with ordinality v(org_id, play, cron, timezone, n)
join play_schedules s using (org_id, play, cron, timezone)
order by v.n

-- name: take
-- One tick, once; answers whether it was free.
update play_schedules set last_tick = %(tick)s
where org_id = %(org_id)s and play = %(play)s and cron = %(cron)s and timezone = %(timezone)s
  and last_tick < %(tick)s
