-- name: waiting_slices
-- Of each of the newest open datasets the first slice that was sent and that nobody took; who waits longest is first.
select d.run_id, d.dataset_id, w.page, w.slice
from (
  select o.dataset_id, o.run_id from datasets o where o.state in ('seeding', 'running')
  order by o.dataset_id desc limit %(datasets)s) d
join runs r on r.run_id = d.run_id and r.state in ('queued', 'running', 'waiting')
cross join lateral (
  select s.page, s.slice, s.sent_at
  from pages p join slices s on s.dataset_id = p.dataset_id and s.page = p.page
  where p.dataset_id = d.dataset_id and p.state = 'out' and s.state = 'open' and s.session_id is null
    and s.sent_at <= now() and (s.taken_at is null or s.taken_at < s.sent_at) and s.slice < %(suspects_from)s
  order by s.page, s.slice limit 1) w
order by w.sent_at
