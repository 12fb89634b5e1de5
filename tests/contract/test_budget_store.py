"""Budgets: no cap is passed, no call is counted twice, and room that is given back is taken again."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from runtime.model.budget import Account, BudgetAsk, Caps, Charge
from runtime.model.row import RowState
from runtime.model.row_wait import RowWait, WaitKind
from runtime.model.run import NewRun, RunState
from runtime.ports import RowWrite, SliceRows
from tests.contract.stores_world import LIMITS, StoresWorld, receipt, waiting


def ask(key: str, price: float = 1.0, *accounts: str, fence: int = 1) -> BudgetAsk:
    return BudgetAsk(accounts=accounts or ("r1",), key=key, fence=fence, credits=price)


def charge(
    key: str, paid: float | None = None, *accounts: str, fence: int = 1, freed: bool = False
) -> Charge:
    return Charge(accounts=accounts or ("r1",), key=key, fence=fence, credits=paid, is_freed=freed)


async def opened(world: StoresWorld, run_id: str = "r1", *callers: str, **caps: Any) -> tuple[str, ...]:
    await world.runs.insert(NewRun(run_id=run_id, org_id="org", play="play", input={}))
    return await world.budgets.open(run_id, Caps(**caps), callers)


async def now(world: StoresWorld, run_id: str = "r1") -> Account:
    found = await world.budgets.of_run(run_id)
    assert found is not None
    assert found.own is not None
    return found.own


async def granted(world: StoresWorld, *asks: BudgetAsk) -> list[bool]:
    return [refusal is None for refusal in await world.budgets.reserve(asks)]


async def test_a_cap_is_never_passed_by_one_call(world: StoresWorld) -> None:
    await opened(world, credits=2.5)
    assert await granted(world, *(ask(f"k{n}") for n in range(4))) == [True, True, False, False]
    account = await now(world)
    assert (account.credits_held, account.credits_spent, account.tool_calls) == (2.0, 0.0, 2)


async def test_a_cheaper_call_finds_the_room_that_a_dear_one_does_not(world: StoresWorld) -> None:
    await opened(world, credits=3)
    assert await granted(world, ask("dear", 5), ask("cheap", 2), ask("free", 0)) == [False, True, True]


async def test_a_refusal_says_what_is_used_up(world: StoresWorld) -> None:
    await opened(world, credits=100, tool_calls=1)
    assert await granted(world, ask("a")) == [True]
    (refusal,) = await world.budgets.reserve([ask("b", 3)])
    assert refusal is not None
    assert (refusal.account, refusal.cap, refusal.used, refusal.most) == ("r1", "tool_calls", 1, 1)
    assert refusal.credits == 3
    await world.age(5)
    (again,) = await world.budgets.reserve([ask("b", 3)])
    assert again is not None
    assert again.short_s >= 5


async def test_the_same_call_asked_again_is_counted_once(world: StoresWorld) -> None:
    """A replay, a takeover and a post after a lost answer come with newer fences of the same key."""
    await opened(world, credits=2)
    assert await granted(world, ask("k", fence=1)) == [True]
    assert await granted(world, ask("k", fence=1)) == [True]
    assert await granted(world, ask("k", fence=7)) == [True]
    assert (await now(world)).credits == 1


async def test_an_old_owner_frees_nothing_of_the_new_one(world: StoresWorld) -> None:
    await opened(world, credits=1)
    await granted(world, ask("k", fence=1))
    await granted(world, ask("k", fence=2))
    await world.budgets.free([charge("k", fence=1, freed=True)])
    assert (await now(world)).credits == 1
    await world.budgets.free([charge("k", fence=2, freed=True)])
    account = await now(world)
    assert (account.credits, account.tool_calls) == (0, 0)


async def test_a_charge_is_settled_with_its_receipt_and_once(world: StoresWorld) -> None:
    await opened(world, credits=10)
    await granted(world, ask("k", 3), ask("l", 3))
    for _ in range(2):
        await world.receipts.commit(
            "s1", [receipt("k"), receipt("l")], (), [charge("k", 1.5), charge("l", None)]
        )
    account = await now(world)
    assert (account.credits_held, account.credits_spent, account.tool_calls) == (0, 4.5, 2)


async def test_a_takeover_settles_what_the_dead_owner_reserved(world: StoresWorld) -> None:
    await opened(world, credits=10)
    await granted(world, ask("k", 3, fence=1))
    await world.receipts.commit("s2", [receipt("k", fence=5)], (), [charge("k", 2, fence=5)])
    assert (await now(world)).credits_spent == 2
    await world.receipts.commit("s1", [receipt("k", fence=1)], (), [charge("k", 3, fence=1)])
    account = await now(world)
    assert (account.credits_held, account.credits_spent) == (0, 2)


async def test_the_same_key_bought_anew_is_counted_anew(world: StoresWorld) -> None:
    await opened(world, credits=2)
    for fence in (1, 2):
        assert await granted(world, ask("k", fence=fence)) == [True]
        await world.budgets.free([charge("k", 1, fence=fence)])
    assert await granted(world, ask("k", fence=3)) == [False]
    assert (await now(world)).credits_spent == 2


async def test_a_call_needs_room_in_all_accounts_of_its_lineage(world: StoresWorld) -> None:
    await opened(world, "root", credits=3)
    assert await opened(world, "child", "root", credits=2) == ("root", "child")
    assert await opened(world, "other", "root") == ("root",)
    both = ("root", "child")
    asks = [ask(f"c{n}", 1, *both) for n in range(3)]
    assert await granted(world, *asks, ask("o1", 1, "root"), ask("o2", 1, "root")) == [
        True,
        True,
        False,
        True,
        False,
    ]
    root, child = await now(world, "root"), await now(world, "child")
    assert (root.credits, child.credits) == (3, 2)
    found = await world.budgets.of_run("other")
    assert found is not None
    assert (found.own, [caller.account for caller in found.callers]) == (None, ["root"])


async def test_caps_stay_as_the_first_body_found_them(world: StoresWorld) -> None:
    await opened(world, credits=2)
    assert await world.budgets.open("r1", Caps(credits=9), ()) == ("r1",)
    assert (await now(world)).caps.credits == 2
    facts = await world.runs.facts("r1")
    assert facts is not None
    assert facts.options == {"budget": ["r1"]}


async def test_a_declared_depth_is_pinned_among_the_options(world: StoresWorld) -> None:
    assert await opened(world, depth=2) == ()
    facts = await world.runs.facts("r1")
    assert facts is not None
    assert facts.options == {"budget": [], "max_depth": 2}
    assert await world.budgets.of_run("r1") is None


async def test_retries_are_counted_up_to_their_cap(world: StoresWorld) -> None:
    await opened(world, retries=2)
    assert [await world.budgets.take_retry(["r1"]) is None for _ in range(3)] == [True, True, False]
    assert (await now(world)).retries == 2
    assert await world.budgets.take_retry(["nobody's"]) is None


async def test_a_child_play_counts_once_however_often_it_is_replayed(world: StoresWorld) -> None:
    await opened(world, child_plays=2)
    names = ["a", "b", "a", "b", "c", "a"]
    taken = [await world.budgets.take_child(["r1"], "r1", name) is None for name in names]
    assert taken == [True, True, True, True, False, True]
    assert (await now(world)).child_plays == 2


async def test_racing_lanes_never_pass_the_cap(world: StoresWorld) -> None:
    await opened(world, credits=20)
    posts = [[ask(f"{lane}-{n}-{m}") for m in range(3)] for lane in range(4) for n in range(5)]
    judged = await asyncio.gather(*(world.budgets.reserve(post) for post in posts))
    assert sum(refusal is None for post in judged for refusal in post) == 20
    assert (await now(world)).credits == 20


async def test_racing_lineages_end_without_a_deadlock(world: StoresWorld) -> None:
    await opened(world, "a", credits=1_000)
    await opened(world, "b", credits=1_000)
    orders = [("a", "b"), ("b", "a")] * 10

    async def lane(n: int, accounts: tuple[str, ...]) -> None:
        await world.budgets.reserve([ask(f"k{n}", 1, *accounts)])
        await world.receipts.commit("s1", [receipt(f"k{n}")], (), [charge(f"k{n}", 1, *accounts)])
        await world.budgets.take_retry(accounts)

    await asyncio.gather(*(lane(n, accounts) for n, accounts in enumerate(orders)))
    a, b = await now(world, "a"), await now(world, "b")
    assert (a.credits_spent, a.retries) == (b.credits_spent, b.retries) == (20, 20)


# ---- who waits goes on


async def refused(world: StoresWorld, price: float = 1.0) -> None:
    assert await granted(world, ask("refused", price)) == [False]


async def test_nobody_is_woken_without_room(world: StoresWorld) -> None:
    await opened(world, credits=1)
    await granted(world, ask("k"))
    assert await world.budgets.waiting() == []
    await refused(world)
    assert await world.budgets.waiting() == []


async def test_raising_and_freeing_make_room(world: StoresWorld) -> None:
    await opened(world, credits=1)
    await granted(world, ask("k"))
    await refused(world)
    assert await world.budgets.change("r1", Caps(credits=4))
    (waits,) = await world.budgets.waiting()
    assert (waits.account, waits.run_ids, waits.rows) == ("r1", ("r1",), 3)
    await world.budgets.woken(waits)
    assert len(await world.budgets.waiting()) == 1  # its row may be on its way to wait
    await world.age(LIMITS.budget_forget_s + 1)
    await world.budgets.woken(waits)
    assert await world.budgets.waiting() == []
    assert await granted(world, *(ask(f"m{n}") for n in range(4))) == [True, True, True, False]
    await world.budgets.free([charge("m1", freed=True)])
    assert [one.rows for one in await world.budgets.waiting()] == [1]


async def test_whoever_is_refused_meanwhile_is_not_forgotten(world: StoresWorld) -> None:
    await opened(world, credits=1)
    await refused(world, 2)
    await world.budgets.change("r1", Caps(credits=2))
    (waits,) = await world.budgets.waiting()
    assert await granted(world, ask("k", 2), ask("refused", 2)) == [True, False]
    await world.age(LIMITS.budget_forget_s + 1)
    await world.budgets.woken(waits)
    await world.budgets.free([charge("k", 0)])
    assert len(await world.budgets.waiting()) == 1


async def test_a_raise_begins_the_wait_anew(world: StoresWorld) -> None:
    await opened(world, credits=1)
    await refused(world, 2)
    await world.age(100)
    await world.budgets.change("r1", Caps(tool_calls=5))
    (refusal,) = await world.budgets.reserve([ask("refused", 2)])
    assert refusal is not None
    assert refusal.short_s < 50
    assert not await world.budgets.change("uncapped", Caps(credits=5))


async def test_rows_that_wait_are_counted_and_keep_the_refusal(world: StoresWorld) -> None:
    dataset_id = await world.seeded(1)
    await world.budgets.open("r1", Caps(credits=1), ())
    await refused(world, 2)
    await world.settling.claim_pages(dataset_id)
    (number, *_) = await world.due(dataset_id, 0)
    taken = await world.taken(dataset_id, 0, number)
    rows = tuple(
        waiting(row.position, row.row_key, RowWait(kind=WaitKind.BUDGET, due_ms=1e9)) for row in taken.rows
    )
    part = SliceRows(id=taken.id, fence=taken.fence, facts=taken.facts, rows=rows, final=True)
    await world.slices.flush(RowWrite(session_id="s1", slices=(part,)))
    found = await world.budgets.of_run("r1")
    assert found is not None
    assert (found.waiting_rows, found.waiting_calls) == (2, 0)
    await world.budgets.change("r1", Caps(credits=2))
    (waits,) = await world.budgets.waiting()
    await world.age(LIMITS.budget_forget_s + 1)
    await world.budgets.woken(waits)
    assert len(await world.budgets.waiting()) == 1
    assert len(await world.settling.wake_budget("r1", 1)) == 1
    states = [row.state for row in (await world.rows(dataset_id)).values()]
    assert states.count(RowState.WAITING) == 1
    await world.settling.wake_budget("r1", 10)
    await world.budgets.woken(replace(waits))
    assert await world.budgets.waiting() == []


async def test_a_body_that_waits_is_woken(world: StoresWorld) -> None:
    run = await world.held_run("r1")
    await world.budgets.open("r1", Caps(credits=1), ())
    await world.runs.rest("r1", run.attempt, "budget:tool:x:0", 1e6, kind="budget")
    poll = await world.runs.poll("r1", run.attempt)
    assert await world.runs.suspend("r1", run.attempt, poll.wakes)
    found = await world.budgets.of_run("r1")
    assert found is not None
    assert found.waiting_calls == 1
    assert await world.budgets.wake_bodies(["r1"]) == 1
    assert await world.budgets.wake_bodies(["r1"]) == 0
    claimed = await world.runs.claim("r1", "s1")
    assert claimed is not None
    assert claimed.options["budget"] == ["r1"]


async def test_what_another_run_has_paid_for_holds_no_room(world: StoresWorld) -> None:
    """A lane died before it sent the call; a process of another run made it, so nobody asks for ours again."""
    await opened(world, credits=2)
    await granted(world, ask("theirs"), ask("ours"))
    await world.receipts.commit("s2", [replace(receipt("theirs", fence=5), run_id="r2")], ())
    await world.receipts.commit("s2", [receipt("ours", fence=5)], ())
    assert await world.budgets.waiting() == []
    assert (await now(world)).credits == 2
    await refused(world)
    assert [one.rows for one in await world.budgets.waiting()] == [1]
    assert ((await now(world)).credits, (await now(world)).tool_calls) == (1, 1)


async def test_ended_runs_are_not_woken(world: StoresWorld) -> None:
    await opened(world, credits=1)
    await refused(world, 2)
    await world.budgets.change("r1", Caps(credits=5))
    assert await world.runs.cancel("r1") is RunState.CANCELLED
    (waits,) = await world.budgets.waiting()
    assert waits.run_ids == ()
    await world.budgets.woken(waits)
    assert await world.budgets.waiting() == []


pytestmark = pytest.mark.timeout(60)
