"""What local receipts stand on, in memory: a store that survives processes and counts its statements."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from runtime.engine.fetching import Fetches, FetchParts
from runtime.engine.local_receipts import LocalParts, LocalReceipts
from runtime.engine.loop_clock import LoopClock
from runtime.engine.plain_pacer import PlainPacer
from runtime.engine.secret_values import SecretValues
from runtime.errors import ServiceUnreachableError
from runtime.faults import no_fault
from runtime.model.call import Usage
from runtime.model.receipt import Receipt, replaces
from runtime.policy.limits import Limits
from runtime.ports.egress import Egress
from runtime.testing_redis import MemoryLeases, MemoryRedis


class Stored:
    """The ReceiptStore as Postgres decides; counts its statements."""

    def __init__(self) -> None:
        self.by_key: dict[str, Receipt] = {}
        self.reads: list[int] = []
        self.commits: list[int] = []
        self.is_away = False
        self.refused = 0

    async def read(self, keys: Sequence[str]) -> dict[str, Receipt]:
        self._reach()
        self.reads.append(len(keys))
        return {key: self.by_key[key] for key in keys if key in self.by_key}

    async def commit(
        self, session_id: str, receipts: Sequence[Receipt], usage: Sequence[Usage], charges: Any = ()
    ) -> dict[str, Receipt]:
        self._reach()
        self.commits.append(len(receipts))
        await asyncio.sleep(0)
        for receipt in receipts:
            if replaces(receipt, self.by_key.get(receipt.key)):
                self.by_key[receipt.key] = replace(receipt, produced_ms=1_000)
        return {receipt.key: self.by_key[receipt.key] for receipt in receipts}

    async def unmark(self, session_id: str, receipts: Sequence[Receipt]) -> None: ...

    def _reach(self) -> None:
        if self.is_away:
            self.refused += 1
            raise ServiceUnreachableError("no database")


def local_receipts(
    stored: Stored, redis: MemoryRedis, limits: Limits, session_id: str = "p1", fault: Any = no_fault
) -> LocalReceipts:
    """One process's; its session is alive."""
    redis.touch(session_id)
    if redis.epoch is None:
        redis.see_epoch(first=True)
    parts = LocalParts(
        session_id=session_id,
        receipts=stored,
        leases=MemoryLeases(redis),
        limits=limits,
        clock=LoopClock(),
        fault=fault,
    )
    return LocalReceipts(parts)


def fetches(egress: Egress, secrets: SecretValues, limits: Limits) -> Fetches:
    """Fetches of one process, at any pace."""
    pacer = PlainPacer(lambda _: limits.groups_per_lane_max, limits.groups)
    return Fetches(FetchParts(egress=egress, pacer=pacer, secrets=secrets, limits=limits, clock=LoopClock()))
