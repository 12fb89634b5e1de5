"""Samples, schedules and events over real servers."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis as sync
from redis.asyncio import Redis

from runtime.model import events
from runtime.model.events import DatasetChanged, Logged, RunEnded, RunStarted
from runtime.model.lane_state import LaneState, RateReason
from runtime.model.run import NewRun, RunState
from runtime.model.schedule import PlaySchedule, Schedule
from runtime.policy.limits import Limits
from runtime.policy.scheduling import run_of_tick
from runtime.postgres_store.pool import Pool
from runtime.postgres_store.runs import PostgresRuns
from runtime.postgres_store.samples import PostgresSamples
from runtime.postgres_store.schedules import PostgresSchedules
from runtime.postgres_store.sessions import PostgresSessions
from runtime.redis_store import keys
from runtime.redis_store.connect import connect
from runtime.redis_store.event_stream import EventStream, state_url
from runtime.redis_store.run_events import RedisEvents

LIMITS = Limits(sample_s=0.001, events_kept=100, event_bytes=2_000, events_last_ms=1.0)


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = connect(redis_url, LIMITS)
    yield client
    await client.aclose()


def lane(**changes: object) -> LaneState:
    values: dict[str, Any] = {
        "lane": "timezones",
        "org_id": "org",
        "provider": "timezones",
        "rules": "",
        "rate_per_s": 5.0,
        "full_rate_per_s": 5.0,
        "reason": RateReason.RULE,
        "closed_until_ms": None,
        "in_flight": 1,
        "waiting": 2,
        "requests": 10,
        "items": 100,
        "capacity": 200,
        "concurrency": None,
        "holders": (),
        "now_ms": 1_000,
    }
    return LaneState(**{**values, **changes})


async def test_live_runs_are_sampled_and_not_more_often_than_their_age_asks(pool: Pool) -> None:
    runs, samples = PostgresRuns(pool, LIMITS), PostgresSamples(pool, LIMITS)
    await PostgresSessions(pool, LIMITS).open("s1", role="plays", hostname="h", pid=1, ttl_s=60)
    await runs.insert(NewRun(run_id="r1", org_id="org", play="p", input=None))
    assert (await samples.sample_runs(), await samples.any_live()) == (0, False)  # it has not begun
    await runs.claim("r1", "s1")
    assert await samples.sample_runs() == 1
    async with pool.connection() as connection:
        await connection.execute(b"update runs set started_at = now() - interval '1 hour'")
    assert (await samples.sample_runs(), await samples.any_live()) == (
        0,
        True,
    )  # an hour old: nine seconds apart
    assert await runs.end("r1", 1, RunState.COMPLETED, result=b"1", error=None)
    assert await samples.sample_runs() == 0
    (one,) = await samples.of_run("r1")
    assert (one.completed, one.usage) == (0, ())
    assert await samples.since("r1", 3_600) == one


async def test_runs_are_sampled_by_turns_however_many_live(pool: Pool) -> None:
    """None is left out for being young; a turn's work has a bound."""
    few = Limits(sampled_runs=2, sampled_looks=3, sample_s=3_600.0)
    runs, samples = PostgresRuns(pool, few), PostgresSamples(pool, few)
    await PostgresSessions(pool, few).open("s1", role="plays", hostname="h", pid=1, ttl_s=60)
    begun = {"r0", "r5", "r6", "r7", "r8", "r9"}
    for n in range(10):
        await runs.insert(NewRun(run_id=f"r{n}", org_id="org", play="p", input=None))
        if f"r{n}" in begun:
            await runs.claim(f"r{n}", "s1")
    turns = [await samples.sample_runs() for _ in range(5)]
    assert sum(turns) == len(begun)
    assert max(turns) == few.sampled_runs
    async with pool.connection() as connection:
        found = await (await connection.execute(b"select distinct run_id from run_samples")).fetchall()
    assert {run_id for (run_id,) in found} == begun


async def test_lanes_are_sampled_when_they_change_and_forgotten(pool: Pool) -> None:
    samples = PostgresSamples(pool, LIMITS)
    for state in (lane(), lane(), lane(requests=12, closed_until_ms=3_000, reason=RateReason.CLOSED)):
        await samples.sample_lanes([state])
        await asyncio.sleep(0.003)
    now = datetime.now(UTC)
    first, second = await samples.lanes("org", now - timedelta(minutes=1), now + timedelta(minutes=1))
    assert (first.requests, first.closed_until, second.requests) == (10, None, 12)
    assert second.closed_until is not None
    assert (second.closed_until - second.at).total_seconds() == pytest.approx(2.0, abs=0.2)
    assert [one.requests for one in await samples.lanes_now("org")] == [12]
    await _a_lane_that_stands_still_is_seen(samples, pool)
    async with pool.connection() as connection:
        await connection.execute(b"update lane_samples set at = at - interval '8 days'")
    await samples.sample_lanes([])
    assert await samples.lanes("org", now - timedelta(days=9), now) == []


async def _a_lane_that_stands_still_is_seen(samples: PostgresSamples, pool: Pool) -> None:
    async with pool.connection() as connection:
        await connection.execute(b"update lane_samples set at = at - interval '2 minutes'")
    assert await samples.lanes_now("org") == []
    await samples.sample_lanes([lane(requests=12, closed_until_ms=900_000, reason=RateReason.CLOSED)])
    (still,) = await samples.lanes_now("org")
    assert (still.requests, still.reason) == (12, "closed")
    idle = lane(lane="idle", provider="idle", in_flight=0, waiting=0)
    await samples.sample_lanes([idle])
    async with pool.connection() as connection:
        await connection.execute(b"update lane_samples set at = at - interval '2 minutes'")
    await samples.sample_lanes([idle])
    assert await samples.lanes_now("org") == []


async def test_a_tick_is_taken_once_by_many(pool: Pool) -> None:
    store = PostgresSchedules(pool, LIMITS)
    of = PlaySchedule(org_id="default", play="p", schedule=Schedule(cron="0 6 * * *"))
    (seen,) = await store.see([of])
    assert (seen.now - seen.last_tick).total_seconds() < 5
    tick = seen.now + timedelta(seconds=1)
    taken = await asyncio.gather(*(store.begin(of, tick, run_of_tick(of, tick)) for _ in range(5)))
    assert sorted(taken) == [False, False, False, False, True]
    assert not await store.begin(of, tick - timedelta(hours=1), run_of_tick(of, tick - timedelta(hours=1)))
    async with pool.connection() as connection:
        rows = await (await connection.execute(b"select run_id, state from runs")).fetchall()
    assert rows == [(run_of_tick(of, tick).run_id, "queued")]


async def told(redis: Redis, run_id: str = "r1") -> list[str]:
    entries: Any = await redis.xrange(keys.events(run_id))
    return [fields[b"type"].decode() for _, fields in entries]


async def test_events_keep_their_order_and_nothing_follows_the_end(redis: Redis) -> None:
    here, there = RedisEvents(redis, LIMITS), RedisEvents(redis, LIMITS)
    here.emit("r1", RunStarted(play="p", attempt=1))
    here.emit("r1", RunEnded(state="completed", result={"n": 1}))
    here.emit("r1", DatasetChanged(dataset="d", state="settled"))
    await here.flush()
    there.emit("r1", RunStarted(play="p", attempt=2))
    await there.flush()
    assert await told(redis) == ["run.started", "dataset.changed", "run.ended"]
    assert 0 < await redis.pttl(keys.events("r1")) <= LIMITS.events_keep_s * 1000


async def test_writes_at_once_keep_the_order_and_a_flush_leaves_nothing_on_its_way(redis: Redis) -> None:
    sink = RedisEvents(redis, Limits(events_write=10, events_flush_ms=1.0))
    for n in range(200):
        sink.emit("r1", Logged(scope="s", level="info", message=str(n)))
    sink.emit("r1", RunEnded(state="completed"))
    await asyncio.gather(*(sink.flush() for _ in range(5)))
    entries: Any = await redis.xrange(keys.events("r1"))
    messages = [json.loads(fields[b"event"])["event"].get("message") for _, fields in entries]
    assert messages == [*map(str, range(200)), None]


async def test_a_stream_is_capped_and_what_is_too_large_is_left_out(redis: Redis) -> None:
    sink = RedisEvents(redis, LIMITS)
    for n in range(2_000):
        sink.emit("r1", Logged(scope="s", level="info", message=str(n)))
    sink.emit("r1", Logged(scope="s", level="info", message="x" * 5_000))
    sink.emit("r1", RunEnded(state="completed", result="x" * 5_000))
    await sink.flush()
    assert 100 <= await redis.xlen(keys.events("r1")) < 400
    newest: Any = await redis.xrevrange(keys.events("r1"), count=2)
    assert b'"is_whole":false' in newest[0][1][b"event"]
    assert b'"message":"1999"' in newest[1][1][b"event"]


def test_events_of_a_newer_release_are_passed_over_once(redis_url: str) -> None:
    """Or a reader would meet them at each look, at once, and ask the database each time."""
    writer = sync.Redis.from_url(state_url(redis_url))
    stream = EventStream(redis_url, Limits(event_read=2, event_block_s=0.05))
    newer: dict[Any, Any] = {
        "event": b'{"version":1,"run_id":"r1","at_ms":1,"event":{"type":"not.known.yet"}}'
    }
    known: dict[Any, Any] = {"event": events.to_text("r1", 1, RunStarted(play="p", attempt=1))}
    try:
        for fields in (newer, newer, newer, known, newer):
            writer.xadd(keys.events("r1"), fields)
        ((place, found),) = stream.read("r1", "0", block=False)
        assert found.event == RunStarted(play="p", attempt=1)
        began = time.monotonic()
        assert stream.read("r1", place) == []
        assert time.monotonic() - began >= 0.04
    finally:
        stream.close()
        writer.delete(keys.events("r1"))
        writer.close()


async def test_while_redis_is_away_events_are_dropped_and_nothing_waits() -> None:
    quick = Limits(redis_retries=1, redis_timeout_s=0.2, events_buffered=10)
    away = connect("redis://127.0.0.1:1/0", quick)
    sink = RedisEvents(away, quick)
    for n in range(25):
        sink.emit("r1", Logged(scope="s", level="info", message=str(n)))
    await sink.flush()
    assert sink.dropped == 25
    await away.aclose()
