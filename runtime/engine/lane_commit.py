"""Commits outcomes: what finishes together goes in one statement; a failed one is read back and tried again."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from runtime.errors import PersistenceLostError, ServiceUnreachableError
from runtime.model.budget import Charge
from runtime.model.call import Usage
from runtime.model.receipt import Receipt
from runtime.policy.limits import Limits
from runtime.ports import Clock, ReceiptStore

log = structlog.get_logger()

Stored = dict[str, Receipt]


class CommitParts(Protocol):
    """What a committer stands on."""

    @property
    def session_id(self) -> str: ...
    @property
    def receipts(self) -> ReceiptStore: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def clock(self) -> Clock: ...


@dataclass(slots=True, eq=False)
class Outcomes:
    """One batch's receipts and what it used, to be stored together."""

    receipts: Sequence[Receipt]
    usage: Sequence[Usage]
    charges: Sequence[Charge] = ()
    stored: "asyncio.Future[Stored]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Committer:
    """One statement at a time. From the first that fails to the next that works the lane admits and sends nothing."""

    def __init__(self, parts: CommitParts) -> None:
        self._parts = parts
        self._waiting: deque[Outcomes] = deque()
        self._task: asyncio.Task[None] | None = None
        self.is_open = True

    async def wait_open(self) -> None:
        """Wait while commits fail, a latch included; raises ServiceUnreachableError at its bound."""
        limits, clock = self._parts.limits, self._parts.clock
        started_ms = clock.now_ms()
        while not self.is_open:
            if clock.now_ms() - started_ms >= limits.commit_retry_ms + limits.lane_wait_ms:
                raise ServiceUnreachableError(
                    "outcomes can't be stored, so nothing further is sent; it is tried again"
                )
            await clock.sleep(limits.lane_retry_ms)

    async def commit(
        self, receipts: Sequence[Receipt], usage: Sequence[Usage], charges: Sequence[Charge] = ()
    ) -> Stored:
        """What is stored for every key now. Raises PersistenceLostError after `commit_retry_ms`."""
        outcomes = Outcomes(receipts=receipts, usage=usage, charges=charges)
        self._waiting.append(outcomes)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        return await outcomes.stored

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._commit_together(self._next())
        finally:
            self._task = None

    def _next(self) -> list[Outcomes]:
        group = [self._waiting.popleft()]
        size = len(group[0].receipts)
        while self._waiting and size + len(self._waiting[0].receipts) <= self._parts.limits.commit_gather:
            size += len(self._waiting[0].receipts)
            group.append(self._waiting.popleft())
        return group

    async def _commit_together(self, group: list[Outcomes]) -> None:
        """A statement that the store refuses for one batch's sake must not fail the others'."""
        try:
            stored = await self._persist(group)
        except Exception as error:
            if len(group) > 1 and not isinstance(error, PersistenceLostError):
                log.exception(
                    "commit refused, batches go one by one", action="lane.commit", batches=len(group)
                )
                for outcomes in group:
                    await self._commit_together([outcomes])
                return
            log.exception("outcomes not committed", action="lane.commit", batches=len(group))
            for outcomes in group:
                if not outcomes.stored.done():
                    outcomes.stored.set_exception(error)
            return
        for outcomes in group:
            if not outcomes.stored.done():
                outcomes.stored.set_result(
                    {receipt.key: stored[receipt.key] for receipt in outcomes.receipts}
                )

    async def store(
        self,
        receipts: Sequence[Receipt],
        usage: Sequence[Usage],
        charges: Sequence[Charge] = (),
        *,
        is_repeat: bool = False,
    ) -> Stored:
        """One try. A repeat reads back first; usage and charges go with the first statement that stores anything."""
        parts = self._parts
        stored = await self._read_back(receipts) if is_repeat else {}
        if not stored:
            stored = await parts.receipts.commit(parts.session_id, receipts, usage, charges)
        short = [receipt for receipt in receipts if receipt.key not in stored]
        if short:
            stored = stored | await parts.receipts.commit(parts.session_id, short, ())
        if any(receipt.key not in stored for receipt in short):
            raise ServiceUnreachableError(
                f"some of {len(receipts)} outcomes were not stored; they are tried again"
            )
        self.is_open = True
        return stored

    async def _persist(self, group: list[Outcomes]) -> Stored:
        receipts = [receipt for outcomes in group for receipt in outcomes.receipts]
        usage = [part for outcomes in group for part in outcomes.usage]
        charges = [part for outcomes in group for part in outcomes.charges]
        started_ms = self._parts.clock.now_ms()
        is_repeat = False
        while True:
            try:
                return await self.store(receipts, usage, charges, is_repeat=is_repeat)
            except ServiceUnreachableError as error:
                self.is_open = False
                is_repeat = True
                await self._wait_or_give_up(error, started_ms, len(receipts))

    async def _wait_or_give_up(self, error: Exception, started_ms: float, receipts: int) -> None:
        parts = self._parts
        waited_ms = parts.clock.now_ms() - started_ms
        log.warning(
            "commit failed, tried again",
            action="lane.commit",
            receipts=receipts,
            waited_ms=round(waited_ms),
            error=str(error),
        )
        if waited_ms >= parts.limits.commit_retry_ms:
            raise PersistenceLostError(
                f"{receipts} outcomes could not be stored for {waited_ms / 1000:.0f} s; their leases and records "
                "are kept, they are stored when Postgres is back"
            ) from error
        await parts.clock.sleep(parts.limits.lane_retry_ms)

    async def _read_back(self, receipts: Sequence[Receipt]) -> Stored:
        """What the failed statement stored after all: it is atomic, so one of ours means all of them."""
        stored = await self._parts.receipts.read([receipt.key for receipt in receipts])
        ours = any(r.key in stored and stored[r.key].fence == r.fence for r in receipts)
        return stored if ours else {}
