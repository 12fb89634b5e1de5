"""Every odd `Retry-After`, from the API's reply to what the fleet's lane does, whatever this process's clock says."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from fakeredis import FakeAsyncRedis
from redis.asyncio import Redis

from examples.execution_api.execution import ApiState
from examples.execution_api.misbehaviour import ForcedAnswer
from runtime.engine.lane import LaneEngine
from runtime.engine.lane_parts import LaneParts
from runtime.engine.loop_clock import LoopClock
from runtime.execution_api.client import ExecutionApiClient
from runtime.execution_api.lane_requests import LaneRequests
from runtime.execution_api.tokens import StaticTokenSource
from runtime.faults import no_fault
from runtime.model.call import Post
from runtime.model.lane_state import LaneState, RateReason
from runtime.model.rate_scope import LanePacing
from runtime.model.tool import PacingRule
from runtime.policy.limits import DEFAULT_LIMITS as LIMITS
from runtime.redis_store import keys
from runtime.redis_store.inbox import RedisInbox
from runtime.redis_store.lane_states import lane_states
from runtime.redis_store.leases import RedisLeases
from runtime.redis_store.pacer import RedisPacer
from tests.lane_stage import Receipts, call
from tests.waiting import wait_until_async

RULE = PacingRule(limit=100, per_ms=1_000)
SECOND_MS = 1_000.0


@pytest.fixture
async def redis() -> AsyncIterator[Redis]:
    async with FakeAsyncRedis() as client:
        await client.set(keys.EPOCH, "e", ex=60)
        yield client


def client_of(served: str, skew_s: float) -> ExecutionApiClient:
    """Its clock is wrong."""
    return ExecutionApiClient(
        served,
        StaticTokenSource(value="t"),
        LIMITS,
        utc_now=lambda: datetime.now(UTC) + timedelta(seconds=skew_s),
    )


def engine_of(redis: Redis, client: ExecutionApiClient) -> LaneEngine:
    clock = LoopClock()
    return LaneEngine(
        LaneParts(
            session_id="lane-1",
            leases=RedisLeases(redis, LIMITS),
            receipts=Receipts(),
            inbox=RedisInbox(redis, LIMITS),
            pacer=RedisPacer(
                redis,
                LIMITS,
                clock,
                session_id="lane-1",
                lane_pacing=lambda _lane: LanePacing(rules=(RULE,)),
            ),
            catalog=client,
            requests=LaneRequests(client),
            limits=LIMITS,
            fault=no_fault,
            clock=clock,
        )
    )


async def after_refusal(redis: Redis, served: str, state: ApiState, header: str, skew_s: float) -> LaneState:
    """What everybody sees of the lane once one call of it was answered 429."""
    state.misbehaviour.answer = ForcedAnswer(status=429, retry_after=header, times=1)
    client = client_of(served, skew_s)
    engine = engine_of(redis, client)
    await RedisLeases(redis, LIMITS).register("lane-1", first=True)
    await engine.accept(Post(post_id="p", lane="fakeprov", calls=(call("i0"),)))
    await wait_until_async(lambda: [e for e in state.ledger.since(-1) if e["status"] == 429])
    name = keys.pace("o", "fakeprov")[0]

    async def told() -> bool:
        closed, cut = await redis.hmget(name, ["closed", "cut"])  # pyright: ignore[reportGeneralTypeIssues]
        return bool(int(closed or 0) or int(cut or 0))

    await wait_until_async(told)
    await redis.hset(  # as the lane's process tells it within a second
        lane := keys.lane("fakeprov", "o", "fakeprov"),
        mapping={"lane": "fakeprov", "org": "o", "provider": "fakeprov", "rate": "100"},
    )
    await redis.expire(lane, 60)
    await redis.zadd(keys.LANES, {lane: datetime.now(UTC).timestamp()})
    (seen,) = await lane_states(redis)
    await engine.drain(0)
    await client.close()
    return seen


def in_3_s() -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=3), usegmt=True)


def in_3_s_old_form() -> str:
    return (datetime.now(UTC) + timedelta(seconds=3)).strftime("%A, %d-%b-%y %H:%M:%S GMT")


@pytest.mark.parametrize("skew_s", [-90, 0, 90])
@pytest.mark.parametrize(
    ("header", "closed_ms"),
    [
        ("1.5", 1_500),
        ("120", 120_000),
        ("99999999999", LIMITS.retry_after_max_ms),
        (in_3_s, 3_000),
        (in_3_s_old_form, 3_000),
    ],
    ids=str,
)
async def test_a_readable_wait_closes_the_lane_and_leaves_its_rate(
    redis: Redis,
    served: str,
    state: ApiState,
    header: str | Callable[[], str],
    closed_ms: float,
    skew_s: float,
) -> None:
    text = header if isinstance(header, str) else header()
    seen = await after_refusal(redis, served, state, text, skew_s)
    assert seen.reason is RateReason.CLOSED and seen.full_rate_per_s == 100
    left_ms = (seen.closed_until_ms or 0) - seen.now_ms
    assert closed_ms - 2 * SECOND_MS <= left_ms <= closed_ms + SECOND_MS, "dates know whole seconds"


@pytest.mark.parametrize("skew_s", [-90, 90])
@pytest.mark.parametrize("header", ["-5", "soon", ""])
async def test_what_cannot_be_read_slows_the_lane_down_instead(
    redis: Redis, served: str, state: ApiState, header: str, skew_s: float
) -> None:
    seen = await after_refusal(redis, served, state, header, skew_s)
    assert seen.reason is RateReason.AIMD and seen.rate_per_s == 50


@pytest.mark.parametrize("skew_s", [-90, 90])
async def test_a_moment_that_has_passed_closes_nothing(
    redis: Redis, served: str, state: ApiState, skew_s: float
) -> None:
    past = format_datetime(datetime.now(UTC) - timedelta(seconds=60), usegmt=True)
    seen = await after_refusal(redis, served, state, past, skew_s)
    assert seen.reason is RateReason.RULE and seen.rate_per_s == 100
