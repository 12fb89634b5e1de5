"""Steps shared by processes on real Redis and Postgres: done once, whoever asks; taken over from the dead."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from runtime.engine.local_receipts import LocalParts, LocalReceipts
from runtime.engine.loop_clock import LoopClock
from runtime.faults import no_fault
from runtime.model.local_work import LocalKind, LocalWork, Made
from runtime.policy.identity import shared_local_key
from runtime.policy.limits import Limits
from runtime.postgres_store.pool import Pool, open_pool
from runtime.postgres_store.receipts import PostgresReceipts
from runtime.redis_store.connect import connect
from runtime.redis_store.leases import RedisLeases

LIMITS = Limits(poll_first_ms=20, poll_max_ms=50, local_poll_ms=10)
KEY = shared_local_key(kind="step", org_id="o", namespace="p", id="x", place=(), semantic_key="k")
WORK = LocalWork(kind=LocalKind.STEP, id="x", key=KEY, org_id="o", run_id="r", shared=True)


class Servers:
    def __init__(self, pool: Pool, redis: Redis) -> None:
        self.pool, self.redis = pool, redis

    async def process(self, session_id: str) -> LocalReceipts:
        leases = RedisLeases(self.redis, LIMITS)
        await leases.register(session_id, first=True)
        return LocalReceipts(
            LocalParts(
                session_id=session_id,
                receipts=PostgresReceipts(self.pool, LIMITS),
                leases=leases,
                limits=LIMITS,
                clock=LoopClock(),
                fault=no_fault,
            )
        )


@pytest.fixture
async def on(database_url: str, redis_url: str) -> AsyncIterator[Servers]:
    pool, redis = open_pool(database_url, LIMITS), connect(redis_url, LIMITS)
    await pool.open()
    try:
        yield Servers(pool, redis)
    finally:
        await redis.aclose()
        await pool.close()


async def test_one_does_it_the_others_are_served_its_bytes(on: Servers) -> None:
    made: list[int] = []

    async def make() -> Made:
        made.append(1)
        await asyncio.sleep(0.05)
        return Made(output=b'{"b": 1e16,"a":-0.0}')

    processes = [await on.process(f"p{n}") for n in range(4)]
    outcomes = await asyncio.gather(*(one.outcome(WORK, make) for one in processes for _ in range(3)))
    assert {outcome.output for outcome in outcomes} == {b'{"b": 1e16,"a":-0.0}'}
    assert len(made) == 1
    assert [key async for key in on.redis.scan_iter(f"*{KEY}*")] == []


async def test_the_lease_of_a_dead_process_is_no_lease(on: Servers) -> None:
    stuck, begun = asyncio.Event(), asyncio.Event()

    async def never() -> Made:
        begun.set()
        await stuck.wait()
        return Made(output=b"1")

    async def make() -> Made:
        return Made(output=b"2")

    first, second = await on.process("p1"), await on.process("p2")
    owner = asyncio.create_task(first.outcome(WORK, never))
    await asyncio.wait_for(begun.wait(), 5)
    waiting = asyncio.create_task(second.outcome(WORK, make))
    done, _ = await asyncio.wait({waiting}, timeout=0.2)
    assert not done
    await RedisLeases(on.redis, LIMITS).forget("p1")
    assert (await waiting).output == b"2"
    stuck.set()
    assert (await owner).output == b"2"
