"""One process's connections to Postgres, Redis and the execution API."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from broker_config.settings import Settings
from runtime.execution_api.client import ExecutionApiClient
from runtime.execution_api.tokens import StaticTokenSource
from runtime.policy.limits import Limits
from runtime.postgres_store.budgets import PostgresBudgets
from runtime.postgres_store.datasets import PostgresDatasets
from runtime.postgres_store.pool import open_pool
from runtime.postgres_store.reading import PostgresReads
from runtime.postgres_store.receipts import PostgresReceipts
from runtime.postgres_store.runs import PostgresRuns
from runtime.postgres_store.samples import PostgresSamples
from runtime.postgres_store.schedules import PostgresSchedules
from runtime.postgres_store.sessions import PostgresSessions
from runtime.postgres_store.settling import PostgresSettling
from runtime.postgres_store.slice_turns import PostgresWaitingSlices
from runtime.postgres_store.slices import PostgresSlices
from runtime.postgres_store.views import PostgresViews
from runtime.postgres_store.waits import PostgresWaits
from runtime.redis_store.connect import connect, require_noeviction
from runtime.redis_store.dispatch_epoch import LengthOf, RedisDispatchEpoch, lengths_in
from runtime.redis_store.inbox import RedisInbox
from runtime.redis_store.leases import RedisLeases
from runtime.redis_store.run_events import RedisEvents
from workers.broker_queues import BrokerQueues


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """The process's connections to Postgres, Redis and the execution API, all on its loop."""

    sessions: PostgresSessions
    runs: PostgresRuns
    datasets: PostgresDatasets
    settling: PostgresSettling
    slices: PostgresSlices
    waiting_slices: PostgresWaitingSlices
    reads: PostgresReads
    views: PostgresViews
    receipts: PostgresReceipts
    budgets: PostgresBudgets
    waits: PostgresWaits
    leases: RedisLeases
    inbox: RedisInbox
    epoch: RedisDispatchEpoch
    events: RedisEvents
    samples: PostgresSamples
    schedules: PostgresSchedules
    api: ExecutionApiClient
    state: Redis
    close: Callable[[], Any]


async def open_stores(settings: Settings, limits: Limits) -> Stores:
    """Connect; raises ServiceUnreachableError if a server doesn't answer."""
    pool = open_pool(settings.database_url.get_secret_value(), limits)
    await pool.open()
    state = connect(settings.state_url, limits)
    await require_noeviction(state)
    tokens = StaticTokenSource(value=settings.execution_api_token.get_secret_value())
    api = ExecutionApiClient(
        settings.execution_api_url,
        tokens,
        limits,
        control_url=settings.control_api_url,
        test_fault=settings.execution_api_test_fault,
    )

    events = RedisEvents(state, limits)
    length_of, close_broker = _broker_lengths(settings, limits)

    async def close() -> None:
        await events.flush()
        await api.close()
        await state.aclose()
        await close_broker()
        await pool.close()

    return Stores(
        sessions=PostgresSessions(pool, limits),
        runs=PostgresRuns(pool, limits, events),
        datasets=PostgresDatasets(pool, limits),
        settling=PostgresSettling(pool, limits),
        slices=PostgresSlices(pool, limits),
        waiting_slices=PostgresWaitingSlices(pool, limits),
        reads=PostgresReads(pool, limits),
        views=PostgresViews(pool, limits),
        receipts=PostgresReceipts(pool, limits),
        budgets=PostgresBudgets(pool, limits),
        waits=PostgresWaits(pool, limits),
        leases=RedisLeases(state, limits),
        inbox=RedisInbox(state, limits),
        epoch=RedisDispatchEpoch(state, length_of, limits),
        events=events,
        samples=PostgresSamples(pool, limits),
        schedules=PostgresSchedules(pool, limits),
        api=api,
        state=state,
        close=close,
    )


def _broker_lengths(settings: Settings, limits: Limits) -> tuple[LengthOf, Callable[[], Awaitable[None]]]:
    """How the broker is asked for the length of a queue, and how that ends."""
    if settings.broker_is_redis:
        broker = connect(settings.broker_url, limits)
        return lengths_in(broker), broker.aclose
    asked = BrokerQueues(settings.broker_url, limits)
    return asked.length_of, asked.close
