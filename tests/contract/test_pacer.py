"""The fleet's pacer in virtual time, on fakeredis and on a server: limits, refusals, slots, lost data."""

from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from fakeredis import FakeAsyncRedis
from redis.asyncio import Redis

from runtime.model.rate_scope import RateScope
from runtime.model.tool import Counts, PacingRule
from runtime.policy.limits import Limits
from runtime.redis_store import keys
from runtime.redis_store.connect import connect
from tests.pacer_fleet import VirtualFleet

LIMITS = Limits()
SECOND = 1_000.0
FIFTY = PacingRule(limit=50, per_ms=SECOND)


def one(_items: int) -> int:
    return 1


def all_of(items: int) -> int:
    return items


@pytest.fixture(params=["fakeredis", pytest.param("server", marks=pytest.mark.servers)])
async def redis(request: pytest.FixtureRequest) -> AsyncIterator[Redis]:
    url = request.getfixturevalue("redis_url") if request.param == "server" else ""
    client: Redis = connect(url, LIMITS) if url else FakeAsyncRedis()
    yield client
    await client.aclose()


async def test_a_limit_is_used_to_the_full_and_never_passed_by_four_processes(redis: Redis) -> None:
    fleet = await VirtualFleet(redis, 4, [FIFTY]).start()
    await fleet.run(*(fleet.send_all(pacer, 50, 1) for pacer in fleet.pacers for _ in range(2)))
    seconds = (fleet.sent[-1][0] - fleet.sent[0][0]) / SECOND
    assert (len(fleet.sent) - 1) / seconds >= 0.97 * 50
    assert fleet.most_in_window(SECOND, one) <= 50


async def test_a_process_with_a_long_line_leaves_every_other_moment_to_the_others(redis: Redis) -> None:
    """Who asked for eight moments in a row made a small run's call in another process wait for all of them."""
    fleet = await VirtualFleet(redis, 4, [FIFTY]).start()
    # The number of items tells the processes apart.
    await fleet.run(
        *(
            fleet.send_all(pacer, 10 * size, size)
            for size, pacer in enumerate(fleet.pacers, 1)
            for _ in range(8)
        )
    )
    spacing_ms = fleet.sent[1][0] - fleet.sent[0][0]
    for size in range(1, 5):
        times = [at for at, items in fleet.sent if items == size]
        assert len(times) == 80
        assert max(later - at for at, later in pairwise(times)) <= 6 * spacing_ms


async def test_calls_behind_a_far_moment_are_told_so_at_once(redis: Redis) -> None:
    """One a minute: the second in line isn't held until the first was sent."""
    fleet = await VirtualFleet(redis, 1, [PacingRule(limit=1, per_ms=60 * SECOND)]).start()
    await fleet.run(fleet.send_all(fleet.pacers[0], 1, 1))
    tickets = [await fleet.pacers[0].reserve(fleet.scope, 1) for _ in range(3)]
    started_ms = fleet.clock.now_ms()
    waits: list[float] = []

    async def ask(ticket: Any) -> None:
        waits.append(await ticket.due(LIMITS.hold_ms))

    await fleet.run(*map(ask, tickets))
    assert fleet.clock.now_ms() == started_ms
    assert sorted(wait_ms > LIMITS.hold_ms for wait_ms in waits) == [False, True, True]
    for ticket in tickets:
        ticket.free()


async def test_a_declared_burst_is_saved_up_and_no_more(redis: Redis) -> None:
    fleet = await VirtualFleet(redis, 1, [PacingRule(limit=50, per_ms=SECOND, burst=5)]).start()
    await fleet.clock_to(60_000)
    await fleet.run(*(fleet.send_all(fleet.pacers[0], 20, 1) for _ in range(4)))
    started = [at for at, _items in fleet.sent if at == fleet.sent[0][0]]
    assert 1 < len(started) <= 5
    assert fleet.most_in_window(SECOND, one) <= 55


@pytest.mark.parametrize("counts", list(Counts))
async def test_batch_weight_and_saved_up_burst(redis: Redis, counts: Counts) -> None:
    """Ten a second, idle for a minute, then 300 calls from four workers in batches of ten."""
    fleet = await VirtualFleet(redis, 4, [PacingRule(limit=10, per_ms=SECOND, counts=counts)]).start()
    await fleet.run(fleet.send_all(fleet.pacers[0], 1, 10))
    await fleet.clock_to(60_000)
    fleet.sent.clear()
    await fleet.run(*(fleet.send_all(pacer, 75, 10) for pacer in fleet.pacers))
    assert sum(items for _at, items in fleet.sent) == 300
    weight = all_of if counts is Counts.ITEMS else one
    assert fleet.most_in_window(SECOND, weight) <= 10
    ideal_s = sum(weight(items) for _at, items in fleet.sent) / 10
    assert fleet.sent[-1][0] - 60_000 <= ideal_s * 1.15 * SECOND


async def test_a_batch_grows_to_what_nobody_else_has_reserved(redis: Redis) -> None:
    fleet = await VirtualFleet(redis, 1, [PacingRule(limit=100, per_ms=SECOND, counts=Counts.ITEMS)]).start()
    ticket = await fleet.pacers[0].reserve(fleet.scope, 2)
    await fleet.run(ticket.due())
    assert await ticket.confirm(10) == (10, 0)
    assert await ticket.confirm(10) == (10, 0), "a repeat is the same grant"
    ticket.free()


async def test_several_limits_hold_at_once(redis: Redis) -> None:
    rules = [
        PacingRule(limit=20, per_ms=SECOND),
        PacingRule(limit=120, per_ms=60 * SECOND),
        PacingRule(limit=100, per_ms=SECOND, counts=Counts.ITEMS),
    ]
    fleet = await VirtualFleet(redis, 2, rules).start()
    await fleet.run(*(fleet.send_all(pacer, 300, 10) for pacer in fleet.pacers))
    assert fleet.most_in_window(SECOND, one) <= 20
    assert fleet.most_in_window(60 * SECOND, one) <= 120
    assert fleet.most_in_window(SECOND, all_of) <= 100


async def test_a_refusal_with_a_wait_closes_the_lane_for_all_and_reopens_at_the_rate(redis: Redis) -> None:
    fleet = await VirtualFleet(redis, 4, [PacingRule(limit=50, per_ms=SECOND, burst=5)]).start()
    closed: list[float] = []

    async def refuse() -> None:
        await fleet.clock.sleep(1_000)
        ticket = await fleet.pacers[1].reserve(fleet.scope, 1)
        closed.append(fleet.now_ms)
        await ticket.limited(4_000)
        ticket.free()

    await fleet.run(*(fleet.send_all(pacer, 100, 1) for pacer in fleet.pacers for _ in range(2)), refuse())
    during = [at for at, _items in fleet.sent if closed[0] < at < closed[0] + 4_000]
    assert during == []
    reopened = [at for at, _items in fleet.sent if at >= closed[0] + 4_000]
    assert len([at for at in reopened if at < closed[0] + 5_000]) <= 50
    assert reopened[0] - closed[0] <= 4_030
    assert len(fleet.sent) == 800


async def test_a_closed_lane_holds_up_no_other(redis: Redis) -> None:
    fleet = await VirtualFleet(redis, 1, [FIFTY]).start()
    pacer = fleet.pacers[0]
    refused = await pacer.reserve(fleet.scope, 1)
    await refused.limited(4_000)
    for other in (replace(fleet.scope, lane="other", provider="other"), replace(fleet.scope, org_id="other")):
        ticket = await pacer.reserve(other, 1)
        assert await ticket.due() == 0 and await ticket.confirm(1) == (1, 0.0)
        ticket.free()
    assert (await refused.confirm(1))[1] > 3_000
    refused.free()
    await pacer.idle()


async def test_those_who_waited_keep_their_place_when_the_lane_closes(redis: Redis) -> None:
    fleet = await VirtualFleet(redis, 2, [PacingRule(limit=10, per_ms=SECOND)]).start()
    order: list[str] = []

    async def send(name: str, position: int) -> None:
        await fleet.clock.sleep(position)
        await fleet.send(fleet.pacers[position % 2], 1)
        order.append(name)

    async def close() -> None:
        await fleet.clock.sleep(150)
        ticket = await fleet.pacers[0].reserve(fleet.scope, 1)
        await ticket.limited(1_000)
        ticket.free()

    early = [send(f"early{n}", n) for n in range(6)]
    late = [send(f"late{n}", 500 + n) for n in range(4)]
    await fleet.run(*early, *late, close())
    assert order == [*(f"early{n}" for n in range(6)), *(f"late{n}" for n in range(4))]


async def test_a_bare_refusal_halves_the_rate_once_and_success_brings_it_back(redis: Redis) -> None:
    fleet = await VirtualFleet(redis, 2, [FIFTY]).start()
    pacer = fleet.pacers[0]
    ticket = await pacer.reserve(fleet.scope, 1)
    for _ in range(3):
        await ticket.limited(None)  # of requests that were on the wire together
    assert (await pacer.snapshot(fleet.scope)).factor == 0.5
    await fleet.run(fleet.send_all(pacer, 50, 1))
    seconds = (fleet.sent[-1][0] - fleet.sent[0][0]) / SECOND
    assert 24 <= 49 / seconds <= 26
    for _ in range(20):
        await fleet.clock_to(fleet.now_ms + 1_100)
        late = await pacer.reserve(fleet.scope, 1)
        await fleet.run(late.due())
        assert (await late.confirm(1))[0] == 1
        await late.succeeded()
        late.free()
    assert (await pacer.snapshot(fleet.scope)).factor == 1.0
    for _ in range(20):
        await fleet.clock_to(fleet.now_ms + 2_000)
        await ticket.limited(None)
    assert (await pacer.snapshot(fleet.scope)).factor == LIMITS.pacing_floor


async def test_a_lane_without_rules_is_closed_by_a_refusal_too(redis: Redis) -> None:
    fleet = await VirtualFleet(redis, 2, []).start()
    ticket = await fleet.pacers[0].reserve(fleet.scope, 1)
    await ticket.limited(4_000)
    await fleet.run(fleet.send(fleet.pacers[1], 5))
    assert fleet.sent == [(4_000, 5)]


async def test_slots_of_a_dead_process_come_back_and_its_late_release_frees_nothing(redis: Redis) -> None:
    fleet = await VirtualFleet(redis, 2, [], concurrency=5).start()
    zombie, other = fleet.pacers
    started_us = fleet.clock.now_us()
    held = [await zombie.reserve(fleet.scope, 1) for _ in range(5)]
    for ticket in held:
        await ticket.due()
        assert (await ticket.confirm(1))[0] == 1
    waiting = await other.reserve(fleet.scope, 1)
    await waiting.due()
    assert (await waiting.confirm(1)) == (0, LIMITS.pacing_slot_wait_ms)
    snapshot = await other.snapshot(fleet.scope)
    assert [holder.session_id for holder in snapshot.holders] == ["s0"] * 5
    assert {holder.since_us for holder in snapshot.holders} == {started_us}
    await redis.delete(keys.session("s0"))
    await fleet.clock_to(LIMITS.pacing_slot_wait_ms)
    taken = [waiting, *[await other.reserve(fleet.scope, 1) for _ in range(5)]]
    grants = []
    for ticket in taken:
        await ticket.due()
        grants.append((await ticket.confirm(1))[0])
    assert grants == [1, 1, 1, 1, 1, 0]
    for ticket in held:
        ticket.free()
    await zombie.idle()
    holders = (await other.snapshot(fleet.scope)).holders
    assert [holder.session_id for holder in holders] == ["s1"] * 5
    for ticket in taken:
        ticket.free()
    await other.idle()
    assert (await other.snapshot(fleet.scope)).holders == ()


async def test_a_slot_is_held_no_longer_than_the_bound(redis: Redis) -> None:
    fleet = await VirtualFleet(redis, 1, [], concurrency=1, limits=Limits(pacing_slot_hold_s=10)).start()
    first, second = [await fleet.pacers[0].reserve(fleet.scope, 1) for _ in range(2)]
    await first.due()
    await second.due()
    assert (await first.confirm(1))[0] == 1
    assert (await second.confirm(1))[0] == 0
    await fleet.clock_to(10_100)
    assert (await second.confirm(1))[0] == 1


async def test_after_lost_data_it_starts_empty_and_keeps_slots(redis: Redis) -> None:
    fleet = await VirtualFleet(
        redis, 2, [PacingRule(limit=10, per_ms=SECOND, burst=8)], concurrency=2
    ).start()
    one_pacer, other = fleet.pacers
    held = await one_pacer.reserve(fleet.scope, 1)
    await held.due()
    assert (await held.confirm(1))[0] == 1
    await redis.flushdb()
    await redis.set(keys.EPOCH, "new")
    await redis.set(keys.GRACE, "new")
    await redis.set(keys.PACE_LOST, fleet.clock.now_us())
    for session in fleet.sessions:
        await redis.set(keys.session(session), "1")
    await one_pacer.renew()
    assert [holder.session_id for holder in (await other.snapshot(fleet.scope)).holders] == ["s0"]
    ticket = await other.reserve(fleet.scope, 1)
    await ticket.due()
    none, wait_ms = await ticket.confirm(1)
    assert (none, wait_ms >= 100) == (0, True), "not full: a token has to grow first"
    await fleet.clock_to(fleet.now_ms + wait_ms)
    assert (await ticket.confirm(1))[0] == 0, "no slot while others put theirs back"
    await redis.delete(keys.GRACE)
    await fleet.clock_to(fleet.now_ms + LIMITS.pacing_slot_wait_ms)
    assert (await ticket.confirm(1))[0] == 1


async def test_deleted_keys_are_noticed_by_who_used_them(redis: Redis) -> None:
    fleet = await VirtualFleet(redis, 1, [PacingRule(limit=10, per_ms=SECOND, burst=8)]).start()
    await fleet.run(fleet.send(fleet.pacers[0], 1))
    await redis.delete(*[key async for key in redis.scan_iter("pace:*")])
    started_ms = fleet.now_ms
    await fleet.run(fleet.send(fleet.pacers[0], 1))
    assert fleet.sent[-1][0] - started_ms >= 100, "not full"


async def test_a_place_that_is_given_back_is_used_by_the_next(redis: Redis) -> None:
    fleet = await VirtualFleet(redis, 1, [PacingRule(limit=1, per_ms=SECOND)]).start()
    pacer = fleet.pacers[0]
    first, second = [await pacer.reserve(fleet.scope, 1) for _ in range(2)]
    await first.due()
    first.free()
    first.free()
    await pacer.idle()
    await fleet.run(second.due())
    assert fleet.now_ms == 0 and (await second.confirm(1))[0] == 1


async def test_nothing_is_kept_for_ever(redis: Redis) -> None:
    fleet = await VirtualFleet(redis, 2, [FIFTY], concurrency=3).start()
    await fleet.run(*(fleet.send_all(pacer, 20, 5) for pacer in fleet.pacers))
    for pacer in fleet.pacers:
        await pacer.idle()
    left = [key async for key in redis.scan_iter("pace:*")]
    assert left, "the log of what was sent stays for its window"
    for key in left:
        assert await redis.ttl(key) > 0
    assert await redis.hlen(keys.pace("o", "p")[1]) == 0, "no ticket is left in line"


async def test_calls_put_off_by_several_processes_come_back_one_after_the_other(redis: Redis) -> None:
    """The cursor is the fleet's: each process alone would give out the same moments."""
    fleet = await VirtualFleet(redis, 3, [PacingRule(limit=1, per_ms=600_000)]).start()
    await fleet.run(fleet.send(fleet.pacers[0], 1))
    tickets = [await pacer.reserve(fleet.scope, 1) for pacer in fleet.pacers for _ in range(2)]
    dues = [await ticket.due(LIMITS.hold_ms) or (await ticket.confirm(1))[1] for ticket in tickets]
    assert all(due > LIMITS.hold_ms for due in dues)
    untils = []
    for due, ticket in [*zip(dues, tickets, strict=True)][::-1]:  # whichever comes first
        untils.append(await ticket.later(1, due))
        ticket.free()
    spacing = tickets[0].spacing_ms(1)
    first = min(dues) - LIMITS.hold_ms / 2
    assert untils == pytest.approx([first + n * spacing for n in range(6)], abs=1)
    (again,) = [
        await fleet.pacers[1].scripts.later(fleet.pacers[1].pace(other(fleet)), "x", due_ms=4e4, spacing_ms=9)
    ]
    assert again == pytest.approx(4e4 - LIMITS.hold_ms / 2), "another organisation is not held up"
    pace = fleet.pacers[0].pace(fleet.scope)
    once = await fleet.pacers[0].scripts.later(pace, "same", due_ms=1e6, spacing_ms=spacing)
    assert await fleet.pacers[0].scripts.later(pace, "same", due_ms=1e6, spacing_ms=spacing) == once, (
        "a repeat"
    )


def other(fleet: VirtualFleet) -> RateScope:
    return replace(fleet.scope, org_id="other")
