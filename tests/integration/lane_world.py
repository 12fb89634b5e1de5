"""A real lane on real Redis, Postgres and a served, misbehaving execution API, all in this process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from examples.execution_api.execution import ApiState
from examples.execution_api.ledger import Ledger
from examples.execution_api.server import ApiServer
from runtime.engine.lane import LaneEngine
from runtime.engine.lane_parts import LaneParts
from runtime.engine.loop_clock import LoopClock
from runtime.engine.plain_pacer import PlainPacer
from runtime.execution_api.client import ExecutionApiClient
from runtime.execution_api.lane_requests import LaneRequests
from runtime.execution_api.tokens import StaticTokenSource
from runtime.faults import no_fault
from runtime.model.call import Answer, Call, Post
from runtime.model.receipt import Receipt
from runtime.policy.limits import Limits
from runtime.postgres_store.pool import open_pool
from runtime.postgres_store.receipts import PostgresReceipts
from runtime.redis_store.connect import connect
from runtime.redis_store.inbox import RedisInbox
from runtime.redis_store.leases import RedisLeases
from tests.lane_stage import call
from tests.waiting import wait_until_async

LIMITS = Limits(
    retry_fallback_ms=10,
    retry_wait_min_ms=5,
    rate_limited_total_ms=150,
    in_progress_total_ms=150,
    body_stall_ms=80,
    lane_retry_ms=10,
    fence_wait_ms=100,
    control_delays_ms=(5, 5),
)
TOKEN = "canary-7f3a-integration"
INBOX = "rows-1"


@dataclass(slots=True, kw_only=True)
class LaneWorld:
    engine: LaneEngine
    api: ApiState
    client: ExecutionApiClient
    receipts: PostgresReceipts
    leases: RedisLeases
    inbox: RedisInbox
    session: str
    _posts: Any = field(default_factory=count)

    def misbehave(self, **how: Any) -> None:
        self.api.misbehaviour = self.api.misbehaviour.merged(how)

    async def answers(self, *posted: Call) -> dict[Any, Answer]:
        """What each posted call was answered, by its item."""
        post = Post(post_id=f"p{next(self._posts)}", lane="fakeprov", calls=posted)
        accepted = await self.engine.accept(post)
        found: dict[str, Answer] = {}
        async with asyncio.timeout(8):
            while len(found) < len(posted):
                found |= {answer.key: answer for answer in await self.inbox.pop(INBOX, 0.05)}
            await accepted.wait()
        return {one.input["item"]: found[one.key] for one in posted}

    async def receipt(self, of: Call) -> Receipt | None:
        return (await self.receipts.read([of.key])).get(of.key)

    @property
    def ledger(self) -> list[dict[str, Any]]:
        return self.api.ledger.entries

    @property
    def statuses(self) -> list[int]:
        return [entry["status"] for entry in self.ledger]

    @property
    def charged(self) -> list[Any]:
        return [item for entry in self.ledger for item in entry["charged_items"]]

    async def is_balanced(self, *posted: Call) -> bool:
        now = self.engine.snapshot()
        alive = await self.leases.alive([one.key for one in posted])
        return not alive and (now.queued, now.held, now.on_the_wire) == (0, 0, 0)


def calls_of(*items: str, tool: str = "echo", run_id: str = "r1", **changes: Any) -> tuple[Call, ...]:
    return tuple(replace(call(item, tool=tool, run_id=run_id, inbox=INBOX), **changes) for item in items)


@asynccontextmanager
async def lane_world(
    database_url: str,
    redis_url: str,
    *,
    limits: Limits = LIMITS,
    api_url: str | None = None,
    token: str = TOKEN,
    session: str = "lane-1",
) -> AsyncIterator[LaneWorld]:
    """`api_url`: instead of that of the API that is served here."""
    api = ApiState(ledger=Ledger(), token=token)
    server = ApiServer(api)
    serving = asyncio.create_task(server.serve())
    await wait_until_async(lambda: server.started)
    pool = open_pool(database_url, limits)
    await pool.open()
    redis = connect(redis_url, limits)
    client = ExecutionApiClient(
        api_url or f"http://127.0.0.1:{server.port}",
        StaticTokenSource(value=token),
        limits,
        control_url=f"http://127.0.0.1:{server.port}",
    )
    receipts, leases = PostgresReceipts(pool, limits), RedisLeases(redis, limits)
    inbox = RedisInbox(redis, limits)
    engine = LaneEngine(
        LaneParts(
            session_id=session,
            leases=leases,
            receipts=receipts,
            inbox=inbox,
            pacer=PlainPacer(lambda _lane: 8, 8),
            catalog=client,
            requests=LaneRequests(client),
            limits=limits,
            fault=no_fault,
            clock=LoopClock(),
        )
    )
    try:
        await leases.register(session, first=True)
        yield LaneWorld(
            engine=engine,
            api=api,
            client=client,
            receipts=receipts,
            leases=leases,
            inbox=inbox,
            session=session,
        )
        await engine.drain(1)
    finally:
        api.reset()
        await client.close()
        await redis.aclose()
        await pool.close()
        server.should_exit = True
        await serving
