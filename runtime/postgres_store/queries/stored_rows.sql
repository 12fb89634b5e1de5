-- name: stored_rows
-- What a sheet has of these rows, as far as it fits into one read; `found` is how many there are in all.
select row_key, data, cell_meta, found from (
  select s.row_key, s.data, s.cell_meta, count(*) over () as found,
    sum(pg_column_size(s.data) + pg_column_size(s.cell_meta))
      over (order by s.row_key rows between unbounded preceding and 1 preceding) as before
  from sheet_rows s
  where s.org_id = %(org_id)s and s.play = %(play)s and s.namespace = %(namespace)s
    and s.row_key = any(%(row_keys)s::text[]) and s.state <> 'pending') r
where before is null or before < %(read_bytes)s
order by row_key
