"""A bucket's way to a confirmed ticket: marked where that is asked for, in line, as many calls as may be sent now."""

from collections import Counter

import structlog

from runtime.engine.lane_book import Item
from runtime.engine.lane_commit import Committer
from runtime.engine.lane_fence import Fence
from runtime.engine.lane_flight import Slot
from runtime.engine.lane_later import FarAway
from runtime.engine.lane_parts import LaneParts
from runtime.engine.lane_spec import BatchSpec
from runtime.errors import ServiceUnreachableError
from runtime.policy.coalescing import BucketKey, Coalescer

log = structlog.get_logger()


class Line:
    """All buckets' tickets of one lane process."""

    def __init__(
        self, parts: LaneParts, coalescer: Coalescer[Item], committer: Committer, fence: Fence
    ) -> None:
        self._parts = parts
        self._coalescer = coalescer
        self._committer = committer
        self._fence = fence
        self._promised: Counter[BucketKey] = Counter()  # calls whose tickets are being confirmed

    async def granted(self, slot: Slot, bucket: BucketKey, spec: BatchSpec) -> int | FarAway | None:
        """How many calls may be sent now; None if none can be, because a store stays away."""
        try:
            await self._mark(bucket, spec)
            due_ms = await slot.line_up(self.unpromised(bucket, spec), self._parts.limits.hold_ms)
            if due_ms:
                return FarAway(due_ms=due_ms)
            await self._mark(bucket, spec)  # who joined meanwhile
            if not await self._commits_work():
                return None
            return await self._confirmed(slot, bucket, spec)
        except ServiceUnreachableError as error:
            log.warning("queued calls given back", action="lane.give_back", error=str(error))
            return None

    def unpromised(self, bucket: BucketKey, spec: BatchSpec) -> int:
        """Calls of a bucket, up to a batch, that no other ticket is being confirmed for."""
        waiting = self._coalescer.waiting(bucket) - self._promised[bucket]
        return min(waiting, spec.strategy.max_batch_size)

    async def _confirmed(self, slot: Slot, bucket: BucketKey, spec: BatchSpec) -> int | FarAway:
        while most := self.unpromised(bucket, spec):
            self._promised[bucket] += most
            try:
                granted, wait_ms = await slot.room(most)
            finally:
                self._promised[bucket] -= most
                if not self._promised[bucket]:
                    del self._promised[bucket]
            if granted:
                return granted
            if wait_ms > self._parts.limits.hold_ms:
                return FarAway(due_ms=wait_ms)
            await self._parts.clock.sleep(wait_ms)
        return 0

    async def _mark(self, bucket: BucketKey, spec: BatchSpec) -> None:
        """Of a fenced tool: whoever the tickets of the bucket will take is marked first, in one statement."""
        if not spec.is_fenced:
            return
        gone = await self._fence.mark(self._coalescer.next_calls(bucket))
        if gone:
            left = {id(item) for item in gone}
            self._coalescer.remove(lambda item: id(item) in left)

    async def _commits_work(self) -> bool:
        """Wait for the store to take outcomes again; False if that took too long."""
        try:
            await self._committer.wait_open()
        except ServiceUnreachableError as error:
            log.warning("queued calls given back", action="lane.give_back", error=str(error))
            return False
        return True
