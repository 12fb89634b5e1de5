"""A lane process on in-memory stores, a manual clock and a scripted execution API."""

import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import orjson

from runtime.engine.lane import LaneEngine
from runtime.engine.lane_book import Accepted
from runtime.engine.lane_parts import LaneParts
from runtime.engine.plain_pacer import PlainPacer
from runtime.errors import ExecuteFailedError, ServiceUnreachableError
from runtime.faults import no_fault
from runtime.model.budget import Charge
from runtime.model.call import Answer, Call, Post, Usage
from runtime.model.failure import Failure, FailureClass
from runtime.model.physical_request import PhysicalReply, PhysicalRequest
from runtime.model.receipt import Receipt, ReceiptState, replaces
from runtime.model.tool import BatchRule, ToolMetadata
from runtime.policy import identity
from runtime.policy.limits import Limits
from runtime.ports import Fault
from runtime.testing.budgets import MemoryBudgets
from runtime.testing_redis import (
    ManualClock,
    MemoryInbox,
    MemoryLeases,
    MemoryRedis,
    ScriptedRequests,
    settle,
)

LIMITS = Limits()


def tool(max_batch_size: int = 100, name: str = "echo") -> ToolMetadata:
    batch = (
        BatchRule(operation=f"{name}_batch", max_batch_size=max_batch_size) if max_batch_size > 1 else None
    )
    return ToolMetadata(tool=name, provider="fakeprov", batch=batch, credits_per_item=1.0)


def call(item: str, *, run_id: str = "r1", inbox: str = "rows-1", tool: str = "echo") -> Call:
    given = {"item": item}
    keys = identity.call_keys(
        org_id="o", tool=tool, input=given, auth_scope=None, action_version="1", response_revision=None
    )
    return Call(
        key=keys.receipt,
        org_id="o",
        run_id=run_id,
        tool=tool,
        input=given,
        idempotency_key=keys.item,
        inbox=inbox,
    )


def calls(count: int, prefix: str = "i", **fields: str) -> list[Call]:
    return [call(f"{prefix}{n}", **fields) for n in range(count)]


def items_of(request: PhysicalRequest) -> list[str]:
    """The items that a request carries, batch or single."""
    payload = orjson.loads(request.payload)
    items = payload.get("items", [{"input": payload}])
    return [item["input"]["item"] for item in items]


def echo(request: PhysicalRequest) -> PhysicalReply:
    """`v:<item>` for every item."""
    payload = orjson.loads(request.payload)
    if "items" not in payload:
        return PhysicalReply(result={"value": "v:" + payload["item"]})
    return PhysicalReply(
        result={
            "items": [
                {"key": item["key"], "result": {"value": "v:" + item["input"]["item"]}}
                for item in payload["items"]
            ]
        }
    )


def failing(kind: FailureClass, *, retry_after_ms: float | None = None) -> ExecuteFailedError:
    return ExecuteFailedError(
        Failure(
            failure_class=kind,
            operation="echo_batch",
            message=f"answered {kind.value}",
            code=kind.value,
            retry_after_ms=retry_after_ms,
        )
    )


class Receipts:
    """A ReceiptStore in memory that can be away, or lose its answer after storing."""

    def __init__(self) -> None:
        self.stored: dict[str, Receipt] = {}
        self.usage: list[Usage] = []
        self.away = 0
        self.lose_answers = 0
        self.statements = 0
        self.now_ms = 0  # the database's clock
        self.settle: Callable[[Sequence[Charge]], None] = lambda _charges: None  # budgets beside it

    async def read(self, keys: Sequence[str]) -> dict[str, Receipt]:
        self._reach()
        return {key: self.stored[key] for key in keys if key in self.stored}

    async def commit(
        self,
        session_id: str,
        receipts: Sequence[Receipt],
        usage: Sequence[Usage],
        charges: Sequence[Charge] = (),
    ) -> dict[str, Receipt]:
        self._reach()
        self.statements += 1
        for receipt in receipts:
            if replaces(receipt, self.stored.get(receipt.key)):
                self.stored[receipt.key] = replace(receipt, produced_ms=self.now_ms)
        self.usage += usage
        self.settle(charges)
        if self.lose_answers:
            self.lose_answers -= 1
            raise ServiceUnreachableError("the connection broke after the commit")
        return {receipt.key: self.stored[receipt.key] for receipt in receipts}

    async def unmark(self, session_id: str, receipts: Sequence[Receipt]) -> None:
        self._reach()
        for mark in receipts:
            known = self.stored.get(mark.key)
            if known is not None and known.state is ReceiptState.DISPATCHED and known.fence == mark.fence:
                del self.stored[mark.key]

    def _reach(self) -> None:
        if self.away:
            self.away -= 1
            raise ServiceUnreachableError("Postgres is away; it is tried again")


class Catalog:
    def __init__(self, *tools: ToolMetadata) -> None:
        self.tools = {metadata.tool: metadata for metadata in tools}

    async def metadata(self, tool: str, org_id: str) -> ToolMetadata:
        return self.tools[tool]

    async def auth_scope(self, tool: str, org_id: str, *, refresh: bool = False) -> str | None:
        return None


class LaneStage:
    """One process; several stages may share `redis` and `receipts` to be a fleet."""

    def __init__(
        self,
        answer: Callable[[PhysicalRequest], PhysicalReply | Awaitable[PhysicalReply]] = echo,
        *,
        metadata: ToolMetadata | None = None,
        limits: Limits = LIMITS,
        session: str = "lane-1",
        redis: MemoryRedis | None = None,
        receipts: Receipts | None = None,
        clock: ManualClock | None = None,
        groups: int = 8,
        fault: Fault = no_fault,
        runs: Any = None,
        budgets: MemoryBudgets | None = None,
    ) -> None:
        self.redis = redis or MemoryRedis(limits)
        self.receipts = receipts or Receipts()
        if budgets is not None:
            self.receipts.settle = budgets.settle
        self.clock = clock or ManualClock()
        self.requests = ScriptedRequests(answer)
        self.catalog = Catalog(metadata or tool())
        self.pacer = PlainPacer(lambda _lane: groups, limits.groups)
        self.leases = MemoryLeases(self.redis)
        self.inbox = MemoryInbox(self.redis)
        self.session = session
        self.engine = LaneEngine(
            LaneParts(
                session_id=session,
                leases=self.leases,
                receipts=self.receipts,
                inbox=self.inbox,
                pacer=self.pacer,
                catalog=self.catalog,
                requests=self.requests,
                limits=limits,
                fault=fault,
                clock=self.clock,
                runs=runs,
                budgets=budgets,
            )
        )
        self._posts = itertools.count()

    async def start(self, *, first: bool = True) -> "LaneStage":
        await self.leases.register(self.session, first=first)
        return self

    async def post(self, posted: Sequence[Call]) -> Accepted:
        return await self.engine.accept(
            Post(post_id=f"{self.session}-{next(self._posts)}", lane="fakeprov", calls=tuple(posted))
        )

    async def answers(self, inbox: str = "rows-1") -> dict[str, Answer]:
        """Everything in the inbox, by key."""
        found: dict[str, Answer] = {}
        while popped := await self.inbox.pop(inbox, 0):
            found |= {answer.key: answer for answer in popped}
        return found

    async def finish(self, accepted: Accepted, *, within_ms: float = 10.0) -> None:
        await self.clock.advance(within_ms)
        assert accepted.is_done

    async def die(self) -> None:
        """The process is gone: its tasks stop where they are and its session expires."""
        self.engine.session_lost()
        await self.engine.drain(0)
        self.redis.sessions.pop(self.session, None)
        await settle()

    def balanced(self) -> bool:
        """Nothing is left behind: no items, leases, records, queued calls or places in use."""
        now = self.engine.snapshot()
        return (now.queued, now.held, now.on_the_wire, self.pacer.in_use("fakeprov")) == (
            0,
            0,
            0,
            0,
        ) and not (self.redis.leases or self.redis.batches)
