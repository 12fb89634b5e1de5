"""What an operator sees of lanes, read from Redis; on a server."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from runtime.engine.loop_clock import LoopClock
from runtime.model.lane_state import RateReason
from runtime.model.rate_scope import LanePacing, RateScope
from runtime.model.tool import PacingRule
from runtime.policy.limits import Limits
from runtime.redis_store import keys
from runtime.redis_store.connect import connect
from runtime.redis_store.lane_states import lane_states
from runtime.redis_store.pacer import RedisPacer, RedisTicket

LIMITS = Limits()
SCOPE = RateScope(
    lane="l",
    org_id="o",
    provider="p",
    max_batch_size=10,
    rules=(PacingRule(limit=50, per_ms=1_000),),
    concurrency=2,
)

pytestmark = pytest.mark.servers


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = connect(redis_url, LIMITS)
    await client.set(keys.EPOCH, "e", ex=60)
    yield client
    await client.aclose()


def pacer(redis: Redis, session_id: str) -> RedisPacer:
    return RedisPacer(
        redis, LIMITS, LoopClock(), session_id=session_id, lane_pacing=lambda _lane: LanePacing()
    )


async def sending(of: RedisPacer, items: int) -> RedisTicket:
    ticket = await of.reserve(SCOPE, items)
    await ticket.due()
    while not (found := await ticket.confirm(items, whole=True))[0]:
        await of.clock.sleep(found[1])
    ticket.sent()
    return ticket


async def test_a_lane_shows_its_rate_what_is_in_flight_how_full_requests_were_and_who_holds_slots(
    redis: Redis,
) -> None:
    assert await lane_states(redis) == []
    first = pacer(redis, "s1")
    await (await sending_ended(first, 10)).counts.tell()
    ticket = await sending(first, 4)
    await first.counts.tell()
    (state,) = await lane_states(redis)
    assert (state.lane, state.org_id, state.provider) == ("l", "o", "p")
    assert (state.requests, state.items, state.capacity, state.fill) == (2, 14, 20, 0.7)
    assert (state.in_flight, state.waiting, state.concurrency) == (1, 0, 2)
    assert [holder.session_id for holder in state.holders] == ["s1"]
    assert state.holders[0].since_ms <= state.now_ms
    assert (state.reason, state.rules) == (RateReason.RULE, "50 requests/s")
    assert state.rate_per_s == pytest.approx(50) and state.full_rate_per_s == pytest.approx(50)
    ticket.free()
    await first.idle()


async def test_refusals_show_as_a_lowered_rate_or_as_closed_until(redis: Redis) -> None:
    first = pacer(redis, "s1")
    ticket = await sending(first, 1)
    await ticket.limited(None)
    await first.counts.tell()
    (state,) = await lane_states(redis)
    assert state.reason is RateReason.AIMD and state.rate_per_s == pytest.approx(25)
    await ticket.limited(4_000)
    (state,) = await lane_states(redis)
    assert state.reason is RateReason.CLOSED and state.rate_per_s == 0
    assert state.closed_until_ms is not None and 3_000 < state.closed_until_ms - state.now_ms <= 4_000
    ticket.free()
    await first.idle()


async def test_what_a_dead_session_had_in_flight_is_not_counted(redis: Redis) -> None:
    first = pacer(redis, "s1")
    await sending(first, 1)
    await first.counts.tell()
    await redis.delete(keys.session("s1"))
    (state,) = await lane_states(redis)
    assert (state.in_flight, state.holders, state.requests) == (0, (), 1)
    names: list[Any] = await redis.zrange(keys.LANES, 0, -1)
    fields: list[Any] = await redis.hkeys(names[0])
    assert not [field for field in fields if b"s1" in field], "nothing of it is kept"


async def test_tickets_that_wait_for_a_place_are_told_though_nothing_is_sent(redis: Redis) -> None:
    first = pacer(redis, "s1")
    sent = await sending(first, 1)
    waiting = [await first.reserve(SCOPE, 1) for _ in range(20)]
    await redis.set(keys.session("s1"), 1)
    await first.counts.tell()
    (state,) = await lane_states(redis)
    assert state.waiting >= 20 - LIMITS.groups_per_lane
    for ticket in (sent, *waiting):
        ticket.free()
    await first.idle()


async def sending_ended(of: RedisPacer, items: int) -> RedisPacer:
    (await sending(of, items)).free()
    await of.idle()
    return of
