"""The lane on real Lua: posts, takeover after a death, lost data; on fakeredis and on a server."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from fakeredis import FakeAsyncRedis
from redis.asyncio import Redis

from runtime.engine.lane import LaneEngine
from runtime.engine.lane_parts import LaneParts
from runtime.engine.loop_clock import LoopClock
from runtime.engine.plain_pacer import PlainPacer
from runtime.errors import BadInputError, ServiceUnreachableError
from runtime.faults import no_fault
from runtime.model.call import Answer, AnswerState, Post
from runtime.model.physical_request import PhysicalReply, PhysicalRequest
from runtime.policy.limits import Limits
from runtime.redis_store.connect import connect, require_noeviction
from runtime.redis_store.inbox import RedisInbox
from runtime.redis_store.leases import RedisLeases
from runtime.testing_redis import ScriptedRequests
from tests.lane_stage import Catalog, Receipts, calls, echo, items_of, tool

LIMITS = Limits(lane_retry_ms=5.0)


class Process:
    def __init__(
        self, redis: Redis, session: str, receipts: Receipts, answer: Callable[[PhysicalRequest], object]
    ) -> None:
        self.session = session
        self.leases = RedisLeases(redis, LIMITS)
        self.inbox = RedisInbox(redis, LIMITS)
        self.requests = ScriptedRequests(answer)  # type: ignore[arg-type]
        self.engine = LaneEngine(
            LaneParts(
                session_id=session,
                leases=self.leases,
                receipts=receipts,
                inbox=self.inbox,
                pacer=PlainPacer(lambda _lane: 8, 8),
                catalog=Catalog(tool(10)),
                requests=self.requests,
                limits=LIMITS,
                fault=no_fault,
                clock=LoopClock(),
            )
        )

    async def collect(self, count: int) -> list[Answer]:
        answers: list[Answer] = []
        async with asyncio.timeout(5):
            while len(answers) < count:
                answers += await self.inbox.pop("rows-1", 0.05)
        return answers


@pytest.fixture(params=["fakeredis", "server"])
async def redis(request: pytest.FixtureRequest) -> AsyncIterator[Redis]:
    url = request.getfixturevalue("redis_url") if request.param == "server" else ""
    client: Redis = connect(url, LIMITS) if url else FakeAsyncRedis()
    yield client
    await client.aclose()


async def test_posts_are_answered_and_nothing_is_left_behind(redis: Redis) -> None:
    lane = Process(redis, "lane-1", Receipts(), echo)
    await lane.leases.register("lane-1", first=True)
    accepted = await lane.engine.accept(Post(post_id="p", lane="l", calls=tuple(calls(45))))
    answers = await lane.collect(45)
    await accepted.wait()
    assert {answer.state for answer in answers} == {AnswerState.COMPLETED}
    assert sorted(len(items_of(request)) for request in lane.requests.sent) == [5, 10, 10, 10, 10]
    keys = {key.decode().partition(":")[0] async for key in redis.scan_iter()}
    assert keys <= {"session", "leases"}


async def test_a_dead_process_s_batch_is_finished_by_another(redis: Redis) -> None:
    async def never(_request: PhysicalRequest) -> PhysicalReply:
        return await asyncio.get_running_loop().create_future()

    receipts = Receipts()
    one, two = Process(redis, "lane-1", receipts, never), Process(redis, "lane-2", receipts, echo)
    await one.leases.register("lane-1", first=True)
    await two.leases.register("lane-2")
    await one.engine.accept(Post(post_id="p", lane="l", calls=tuple(calls(10))))
    async with asyncio.timeout(5):
        while not one.requests.sent:
            await asyncio.sleep(0)
    one.engine.session_lost()
    await one.engine.drain(0)
    await one.leases.forget("lane-1")
    await two.engine.sweep()
    assert len(await two.collect(10)) == 10
    assert two.requests.sent == one.requests.sent
    await two.engine.drain(1)
    assert [key async for key in redis.scan_iter("lease:*")] == []


async def test_data_lost_before_the_seal_costs_no_call(redis: Redis) -> None:
    lane = Process(redis, "lane-1", Receipts(), echo)
    await lane.leases.register("lane-1", first=True)
    await lane.engine.accept(Post(post_id="p", lane="l", calls=tuple(calls(3))))
    await redis.flushdb()
    assert len(await lane.collect(3)) == 3
    assert len(lane.requests.sent) == 1


async def test_a_server_that_may_evict_is_refused(redis: Redis) -> None:
    if isinstance(redis, FakeAsyncRedis):
        return
    await require_noeviction(redis)
    await redis.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(BadInputError, match="noeviction"):
            await require_noeviction(redis)
    finally:
        await redis.config_set("maxmemory-policy", "noeviction")


async def test_an_unreachable_server_is_named_after_bounded_retries() -> None:
    limits = Limits(redis_retries=1, redis_backoff_s=0.001, redis_backoff_max_s=0.002)
    client = connect("redis://127.0.0.1:1/0", limits)
    with pytest.raises(ServiceUnreachableError, match="Redis can't be reached"):
        await RedisLeases(client, limits).register("s")
    with pytest.raises(ServiceUnreachableError):
        await RedisInbox(client, limits).pop("s", 0.01)
    await client.aclose()
