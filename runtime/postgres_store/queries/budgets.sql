-- name: lock_accounts
-- Accounts as they stand, kept still until commit, always in the same order.
select account, max_credits, max_tool_calls, max_retries, max_child_plays, credits_spent, credits_held, tool_calls,
  retries, child_plays, extract(epoch from now() - short_since)::float8
from budgets where account = any(%(accounts)s::text[]) order by account for no key update

-- name: open_calls
-- Calls whose reservation an earlier owner has made.
select c.account, c.key
from unnest(%(of_accounts)s::text[], %(keys)s::text[]) v(account, key)
join budget_calls c on c.account = v.account and c.key = v.key
where c.held is not null

-- name: hold
-- Reservations of calls, new or taken over.
insert into budget_calls as c (account, key, fence, held, calls)
select v.account, v.key, v.fence, v.credits, 1
from unnest(%(of_accounts)s::text[], %(keys)s::text[], %(fences)s::bigint[], %(credits)s::float8[])
  v(account, key, fence, credits)
on conflict (account, key) do update
set fence = greatest(c.fence, excluded.fence), held = coalesce(c.held, excluded.held),
  calls = c.calls + (c.held is null)::int

-- name: count_held
-- What the new ones among them take of their accounts.
update budgets b set credits_held = b.credits_held + v.credits, tool_calls = b.tool_calls + v.calls
from unnest(%(accounts)s::text[], %(held)s::float8[], %(calls)s::bigint[]) v(account, credits, calls)
where b.account = v.account

-- name: refuse
-- Remembers that calls found no room, since when, and the cheapest of them.
update budgets b set refusals = b.refusals + 1, short_since = coalesce(b.short_since, now()), refused_at = now(),
  short_price = least(b.short_price, v.price)
from unnest(%(accounts)s::text[], %(prices)s::float8[]) v(account, price)
where b.account = v.account

-- name: settle
-- Reservations of these fences or older ones end: as reserved, at their price, or freed. Accounts are locked before.
with ends as (
  select c.account, c.key, v.fence, c.held, v.freed,
    case when v.freed then 0 else coalesce(v.credits, c.held) end as credits
  from unnest(%(of_accounts)s::text[], %(keys)s::text[], %(fences)s::bigint[], %(credits)s::float8[], %(freed)s::bool[])
    v(account, key, fence, credits, freed)
  join budget_calls c on c.account = v.account and c.key = v.key
  where c.held is not null and c.fence <= v.fence),
ended as (
  update budget_calls c
  set held = null, fence = e.fence, spent = c.spent + e.credits, calls = c.calls - e.freed::int
  from ends e where c.account = e.account and c.key = e.key),
sums as (
  select account, sum(held) as held, sum(credits) as credits, count(*) filter (where freed) as freed
  from ends group by account)
update budgets b set credits_held = greatest(0, b.credits_held - s.held), credits_spent = b.credits_spent + s.credits,
  tool_calls = b.tool_calls - s.freed
from sums s where b.account = s.account

-- name: count_retry
-- One more repeated request.
update budgets set retries = retries + 1 where account = any(%(accounts)s::text[])

-- name: new_children
-- Accounts that have not counted this child play yet.
select v.account from unnest(%(accounts)s::text[]) v(account)
where not exists (
  select 1 from budget_children c
  where c.account = v.account and c.run_id = %(run_id)s and c.namespace = %(namespace)s)

-- name: add_children
-- Counts it there.
with added as (
  insert into budget_children (account, run_id, namespace)
  select b.account, %(run_id)s, %(namespace)s from budgets b where b.account = any(%(accounts)s::text[])
  on conflict do nothing returning account)
update budgets b set child_plays = b.child_plays + 1 from added a where b.account = a.account

-- name: open
-- A run's own account; caps of one that exists stay.
insert into budgets (account, max_credits, max_tool_calls, max_retries, max_child_plays)
select %(account)s, %(credits)s::float8, %(tool_calls)s::bigint, %(retries)s::bigint, %(child_plays)s::bigint
on conflict do nothing

-- name: join
-- The run counts against these accounts.
insert into budget_runs (account, run_id)
select b.account, %(run_id)s from budgets b where b.account = any(%(accounts)s::text[])
on conflict do nothing

-- name: pin
-- Its accounts among the run's options, where its rows find them.
update runs set options = options || %(pinned)s::jsonb where run_id = %(run_id)s

-- name: waiting
-- Accounts that refused calls and have room now, as far as is known, with the live runs that count against them.
select b.account, b.max_credits, b.max_tool_calls, b.max_retries, b.max_child_plays, b.credits_spent, b.credits_held,
  b.tool_calls, b.retries, b.child_plays, extract(epoch from now() - b.short_since)::float8,
  coalesce(b.short_price, 0), b.refusals,
  array(
    select m.run_id from budget_runs m join runs r on r.run_id = m.run_id
    where m.account = b.account and r.state in ('queued', 'running', 'waiting') order by r.number)
from budgets b
where b.short_since is not null
  and (b.max_credits is null or b.credits_spent + b.credits_held + coalesce(b.short_price, 0) <= b.max_credits + 1e-6)
  and (b.max_tool_calls is null or b.tool_calls < b.max_tool_calls)
order by b.short_since limit %(batch)s

-- name: superseded
-- Reservations of calls that another run's process has made since: theirs was never sent, and nobody asks for it again.
select c.account, c.key, c.fence
from budgets b
join budget_calls c on c.account = b.account and c.held is not null
join receipts r on r.key = c.key and r.fence > c.fence and r.state = 'completed'
where b.short_since is not null and not exists (
  select 1 from budget_runs m where m.account = c.account and m.run_id = r.run_id)
limit %(batch)s

-- name: wake_bodies
-- Waits of bodies for budget are over; each counts as a wake.
with resolved as (
  update boundaries set state = 'resolved',
    outcome = jsonb_build_object('ok', null, 'at_ms', ceil(extract(epoch from now()) * 1000)::bigint)
  where run_id = any(%(run_ids)s::text[]) and kind = 'budget' and state = 'armed'
  returning run_id),
counted as (select run_id, count(*)::int as wakes from resolved group by run_id)
update runs r set wakes = r.wakes + c.wakes from counted c where r.run_id = c.run_id

-- name: woken
-- Forgets refusals: none came since, nobody waits for them, and no row is on its way to wait.
update budgets b set short_since = null, short_price = null
where b.account = %(account)s and b.refusals = %(refusals)s
  and (b.refused_at < now() - %(forget_s)s::float8 * interval '1 second' or cardinality(%(run_ids)s::text[]) = 0)
  and not exists (
    select 1 from datasets d join row_waits w on w.dataset_id = d.dataset_id and w.kind = 'budget'
    where d.run_id = any(%(run_ids)s::text[]))
  and not exists (
    select 1 from boundaries x
    where x.run_id = any(%(run_ids)s::text[]) and x.kind = 'budget' and x.state = 'armed')

-- name: of_run
-- The accounts of a run, its own first.
select b.account, b.max_credits, b.max_tool_calls, b.max_retries, b.max_child_plays, b.credits_spent, b.credits_held,
  b.tool_calls, b.retries, b.child_plays, extract(epoch from now() - b.short_since)::float8
from budget_runs m join budgets b on b.account = m.account
where m.run_id = %(run_id)s order by b.account <> %(run_id)s, b.created_at, b.account

-- name: waits_of_run
-- Rows and calls of the body that wait for budget, of the run and of the runs that count against it.
select
  (select count(*) from row_waits w join datasets d on d.dataset_id = w.dataset_id
   where w.kind = 'budget' and d.run_id = any(x.run_ids)),
  (select count(*) from boundaries b where b.run_id = any(x.run_ids) and b.kind = 'budget' and b.state = 'armed')
from (
  select array(select run_id from budget_runs where account = %(run_id)s union select %(run_id)s::text) as run_ids) x

-- name: change
-- New caps where they are given; whoever found no room waits anew.
update budgets set max_credits = coalesce(%(credits)s::float8, max_credits),
  max_tool_calls = coalesce(%(tool_calls)s::bigint, max_tool_calls),
  max_retries = coalesce(%(retries)s::bigint, max_retries),
  max_child_plays = coalesce(%(child_plays)s::bigint, max_child_plays),
  short_since = case when short_since is null then null else now() end
where account = %(account)s
