-- name: read
-- Receipts that exist, in key order, as many as fit into one answer (at least one); and how many there are.
select key, org_id, tool, run_id, state, fence, output, error, terminal,
  floor(extract(epoch from updated_at) * 1000)::bigint as produced_ms, found
from (
  select r.*, count(*) over () as found,
    sum(coalesce(octet_length(r.output), 0)) over (order by r.key) as upto, row_number() over (order by r.key) as n
  from receipts r where r.key = any(%(keys)s::text[])) r
where upto <= %(read_bytes)s or n = 1
order by key

-- name: commit
-- Stores outcomes: one of a newer fence stays, and a completed one but for a refresh; answers what was stored.
insert into receipts as r (key, org_id, tool, run_id, state, fence, output, error, terminal, session_id)
select v.key, v.org_id, v.tool, v.run_id, v.state, v.fence, v.output, v.error::jsonb, v.terminal, %(session_id)s
from unnest(%(keys)b::text[], %(org_ids)b::text[], %(tools)b::text[], %(run_ids)b::text[], %(states)b::text[],
  %(fences)b::bigint[], %(outputs)b::bytea[], %(errors)b::text[], %(terminals)b::bool[])
  v(key, org_id, tool, run_id, state, fence, output, error, terminal)
order by v.key
on conflict (key) do update
set org_id = excluded.org_id, tool = excluded.tool, run_id = excluded.run_id, state = excluded.state,
  fence = excluded.fence, output = excluded.output, error = excluded.error, terminal = excluded.terminal,
  session_id = excluded.session_id, updated_at = now()
where (r.state <> 'completed' and r.fence <= excluded.fence)
  or (r.fence < excluded.fence and excluded.state = 'completed' and r.key = any(%(refreshes)b::text[]))
returning r.key

-- name: unmark
-- Removes marks of calls that were never sent: still of this session and fence.
delete from receipts r using unnest(%(keys)b::text[], %(fences)b::bigint[]) v(key, fence)
where r.key = v.key and r.fence = v.fence and r.state = 'dispatched' and r.session_id = %(session_id)s
