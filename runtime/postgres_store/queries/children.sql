-- name: add
-- Child plays that ended in rows, beside the counts that the same transaction made of these rows.
update dataset_counts c set children_ok = c.children_ok + v.ok, children_failed = c.children_failed + v.failed
from unnest(%(dataset_ids)s::bigint[], %(ok)s::bigint[], %(failed)s::bigint[]) v(dataset_id, ok, failed)
where c.dataset_id = v.dataset_id and c.session_id = %(session_id)s

-- name: of_run
-- Child plays that ended inside a run, in its rows and its body; and the child runs that come from it.
select b.ok + w.ok, b.failed + w.failed, d.started, d.ended, d.failed
from (
  select run_id, coalesce(options -> 'lineage' ->> 'root', run_id) as root, left(run_id, %(id_chars)s) || '.' as below
  from runs where run_id = %(run_id)s) r
cross join lateral (
  select coalesce(sum(c.children_ok), 0)::bigint as ok, coalesce(sum(c.children_failed), 0)::bigint as failed
  from datasets d join dataset_counts c on c.dataset_id = d.dataset_id where d.run_id = r.run_id) w
cross join lateral (
  select coalesce(sum((j.outcome -> 'children' ->> 'ok')::bigint), 0)::bigint as ok,
    coalesce(sum(coalesce((j.outcome -> 'children' ->> 'failed')::bigint, 1)), 0)::bigint as failed
  from run_journal j where j.run_id = r.run_id and j.kind = 'child') b
cross join lateral (
  select count(*) as started, count(*) filter (where c.state in ('completed', 'failed', 'cancelled')) as ended,
    count(*) filter (where c.state = 'failed') as failed
  from runs c
  where c.options ? 'lineage' and c.options -> 'lineage' ->> 'root' = r.root and starts_with(c.run_id, r.below)) d
