-- name: hold_run
-- The attempt's fence, kept until commit.
select 1 from runs where run_id = %(run_id)s and attempt = %(attempt)s and state = 'running' for share

-- name: create
-- A dataset as its body pins it; an existing one stays as it is.
insert into datasets (run_id, key, namespace, state, columns, source_hash, on_row_error, op_key, mode)
values (%(run_id)s, %(key)s, %(namespace)s, 'seeding', %(columns)s::text[], %(source_hash)s, %(on_row_error)s, %(op_key)s,
  %(mode)s)
on conflict (run_id, key) do nothing

-- name: arm
-- The boundary on which the body waits for the dataset.
insert into boundaries (run_id, op_key, kind, state) values (%(run_id)s, %(op_key)s, 'dataset', 'armed')
on conflict (run_id, op_key) do nothing

-- name: where
-- Where seeding stands.
select dataset_id, pages_seeded, pages_total, next_position, rows_seeded, duplicates, input_digest, columns
from datasets where run_id = %(run_id)s and key = %(key)s

-- name: begin_page
-- The head of a page: moves on only from the page before, under the attempt's fence.
update datasets d set pages_seeded = d.pages_seeded + 1, next_position = %(end_position)s, input_digest = %(input_digest)s,
  input_columns = %(input_columns)s::text[]
where d.dataset_id = %(dataset_id)s and d.state = 'seeding' and d.pages_seeded = %(page)s
  and exists (
    select 1 from runs r where r.run_id = d.run_id and r.run_id = %(run_id)s and r.attempt = %(attempt)s and r.state = 'running')
returning d.mode, (select r.options ->> 'only' from runs r where r.run_id = d.run_id), d.pages_seeded - d.next_page

-- name: insert_rows
-- A page's rows, counted; a key that the dataset has already is a duplicate.
with added as (
  insert into run_rows (dataset_id, position, page, row_key, input, state)
  select %(dataset_id)s::bigint, v.position, %(page)s::int, v.row_key, v.input::jsonb, 'pending'
  from unnest(%(positions)b::bigint[], %(row_keys)b::text[], %(inputs)b::text[]) with ordinality v(position, row_key, input, n)
  order by v.n
  on conflict do nothing
  returning 1),
counted as (select count(*) as rows from added)
update datasets d set rows_seeded = d.rows_seeded + c.rows, duplicates = d.duplicates + %(given)s - c.rows
from counted c where d.dataset_id = %(dataset_id)s
returning c.rows

-- name: insert_page
-- The page itself.
insert into pages (dataset_id, page, state, first_position, end_position)
values (%(dataset_id)s, %(page)s, 'seeded', %(first_position)s, %(end_position)s)

-- name: seeded_page
-- How many rows a page holds that is there already, and how many pages nobody claimed; under the attempt's fence.
select (
  select count(*) from run_rows w
  where w.dataset_id = d.dataset_id and w.position >= %(first_position)s and w.position < %(end_position)s),
  d.pages_seeded - d.next_page
from datasets d join runs r on r.run_id = d.run_id
where d.dataset_id = %(dataset_id)s and d.pages_seeded > %(page)s and d.state in ('seeding', 'running')
  and r.run_id = %(run_id)s and r.attempt = %(attempt)s and r.state = 'running'

-- name: finish_seeding
-- The whole input is in; repeated, it finds itself done.
update datasets d set pages_total = d.pages_seeded, state = case when d.state = 'seeding' then 'running' else d.state end
where d.dataset_id = %(dataset_id)s and d.state in ('seeding', 'running')
  and exists (
    select 1 from runs r where r.run_id = d.run_id and r.attempt = %(attempt)s and r.state = 'running')

-- name: seeding_over
-- Whether the dataset is past seeding and the attempt's fence holds.
select 1 from datasets d join runs r on r.run_id = d.run_id
where d.dataset_id = %(dataset_id)s and d.pages_total is not null and r.attempt = %(attempt)s and r.state = 'running'

-- name: facts
-- What a row worker must know of a dataset.
select d.dataset_id, d.run_id, r.org_id, r.play, d.key, d.namespace, d.columns, d.source_hash, d.on_row_error, r.options,
  r.number, floor(extract(epoch from r.created_at) * 1000)::bigint as epoch_ms
from datasets d join runs r on r.run_id = d.run_id
where d.dataset_id = %(dataset_id)s
