"""In-memory LeaseStore, Inbox, Clock and Requests, as honest as their Redis twins and driven by a given time."""

import asyncio
import heapq
import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from runtime.errors import ServiceUnreachableError
from runtime.model import answer_message, batch_record
from runtime.model.call import Answer
from runtime.model.lease import BatchRecord, Claim, ClaimVerdict, Lease, LeaseState, OrphanBatch
from runtime.model.physical_request import PhysicalReply, PhysicalRequest
from runtime.policy.limits import DEFAULT_LIMITS, Limits


@dataclass(slots=True)
class _StoredLease:
    session: str
    fence: int
    state: LeaseState = LeaseState.QUEUED
    batch: str = ""


class MemoryRedis:
    """The server's state, shared by the stores of many sessions. `now_us` moves only when a test moves it."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS, now_us: int = 1_000_000) -> None:
        self.limits = limits
        self.now_us = now_us
        self.is_away = False
        self.flush()

    def flush(self) -> None:
        """Lose all data."""
        self.leases: dict[str, _StoredLease] = {}
        self.batches: dict[str, BatchRecord] = {}
        self.sessions: dict[str, int] = {}
        self.inboxes: dict[str, list[bytes]] = defaultdict(list)
        self.epoch: str | None = None
        self.grace_until_us = 0

    def reach(self) -> None:
        if self.is_away:
            raise ServiceUnreachableError("Redis is away; it is tried again")

    def touch(self, session_id: str) -> None:
        self.sessions[session_id] = self.now_us + int(self.limits.session_ttl_s * 1_000_000)

    def is_alive(self, session_id: str) -> bool:
        return self.sessions.get(session_id, 0) > self.now_us

    @property
    def in_grace(self) -> bool:
        return self.grace_until_us > self.now_us

    def see_epoch(self, *, first: bool) -> str:
        if self.epoch is None:
            self.epoch = f"{self.now_us // 1000}-{next(_nonces)}"
            if not first:
                self.grace_until_us = self.now_us + int(self.limits.session_ttl_s * 1_000_000)
        return self.epoch


_nonces = itertools.count()


class MemoryLeases:
    """LeaseStore of one process."""

    def __init__(self, redis: MemoryRedis) -> None:
        self._redis = redis
        self._epoch: str | None = None

    async def register(self, session_id: str, *, first: bool = False) -> str:
        self._redis.reach()
        self._epoch = self._redis.see_epoch(first=first)
        self._redis.touch(session_id)
        return self._epoch

    async def renew(self, session_id: str, leases: Sequence[Lease], batches: Sequence[BatchRecord]) -> str:
        redis = self._redis
        redis.reach()
        epoch = redis.see_epoch(first=False)
        redis.touch(session_id)
        if epoch != self._epoch and self._epoch is not None and redis.in_grace:
            self._put_back(session_id, leases, batches)
        self._epoch = epoch
        return epoch

    async def forget(self, session_id: str) -> None:
        self._redis.reach()
        self._redis.sessions.pop(session_id, None)

    async def claim(
        self, session_id: str, receipt_keys: Sequence[str], floors: Mapping[str, int]
    ) -> list[Claim]:
        self._redis.reach()
        self._redis.see_epoch(first=False)
        self._redis.touch(session_id)
        return [self._claim(session_id, key, floors.get(key, 0)) for key in receipt_keys]

    async def seal(self, batch: BatchRecord) -> list[bool]:
        redis = self._redis
        redis.reach()
        held = dict(zip(batch.keys, batch.fences, strict=True))
        holds = [not fence or self._holds(batch.session_id, key, fence) for key, fence in held.items()]
        if all(holds):
            for key in (key for key, fence in held.items() if fence):
                redis.leases[key].state = LeaseState.DISPATCHED
                redis.leases[key].batch = batch.batch_id
            redis.batches[batch.batch_id] = batch
            redis.touch(batch.session_id)
        return holds

    async def release(self, session_id: str, leases: Sequence[Lease], batch_id: str | None = None) -> None:
        self._redis.reach()
        for lease in leases:
            if self._holds(session_id, lease.key, lease.fence):
                del self._redis.leases[lease.key]
        record = self._redis.batches.get(batch_id or "")
        if record is not None and record.session_id == session_id:
            del self._redis.batches[record.batch_id]

    async def adopt(self, session_id: str, batch_id: str) -> BatchRecord | None:
        redis = self._redis
        redis.reach()
        record = redis.batches.get(batch_id)
        if record is None or record.session_id == session_id:
            return record
        if redis.is_alive(record.session_id) or redis.in_grace:
            return None
        fences = tuple(self._adopt_lease(session_id, key, batch_id) for key in record.keys)
        redis.touch(session_id)
        adopted = replace(record, session_id=session_id, fences=fences)
        redis.batches[batch_id] = adopted
        return adopted

    async def orphans(self, limit: int) -> list[str]:
        redis = self._redis
        redis.reach()
        if redis.in_grace:
            return []
        dead = [
            batch_id for batch_id, record in redis.batches.items() if not redis.is_alive(record.session_id)
        ]
        return dead[:limit]

    async def orphans_of(self, batch_ids: Sequence[str]) -> dict[str, OrphanBatch]:
        self._redis.reach()
        records = self._redis.batches
        return {
            batch_id: OrphanBatch(
                runs=batch_record.runs_of(records[batch_id].members), members=records[batch_id].members
            )
            for batch_id in batch_ids
            if batch_id in records
        }

    async def alive(self, receipt_keys: Sequence[str]) -> set[str]:
        self._redis.reach()
        leases = self._redis.leases
        return {key for key in receipt_keys if key in leases and self._redis.is_alive(leases[key].session)}

    def _claim(self, session_id: str, key: str, floor: int) -> Claim:
        redis = self._redis
        lease = redis.leases.get(key)
        if lease is not None and lease.session == session_id:
            if lease.state is LeaseState.DISPATCHED:
                return Claim(key=key, verdict=ClaimVerdict.HELD)
            if lease.fence < floor:
                return self._grant(session_id, key, max(floor, lease.fence + 1))
            return Claim(key=key, verdict=ClaimVerdict.GRANTED, fence=lease.fence)
        if redis.in_grace:
            return Claim(key=key, verdict=ClaimVerdict.GRACE)
        if lease is None:
            return self._grant(session_id, key, floor)
        if redis.is_alive(lease.session):
            return Claim(key=key, verdict=ClaimVerdict.HELD)
        if lease.state is LeaseState.DISPATCHED and lease.batch in redis.batches:
            return Claim(key=key, verdict=ClaimVerdict.TAKEOVER, batch_id=lease.batch)
        return self._grant(session_id, key, max(floor, lease.fence + 1))

    def _grant(self, session_id: str, key: str, least: int) -> Claim:
        fence = max(self._redis.now_us, least)
        self._redis.leases[key] = _StoredLease(session=session_id, fence=fence)
        return Claim(key=key, verdict=ClaimVerdict.GRANTED, fence=fence)

    def _holds(self, session_id: str, key: str, fence: int) -> bool:
        lease = self._redis.leases.get(key)
        return lease is not None and lease.session == session_id and lease.fence == fence

    def _adopt_lease(self, session_id: str, key: str, batch_id: str) -> int:
        redis = self._redis
        lease = redis.leases.get(key)
        if lease is not None:
            is_free = lease.session == session_id or not redis.is_alive(lease.session)
            if not is_free or lease.batch != batch_id:
                return 0
        fence = max(redis.now_us, lease.fence + 1 if lease else 1)
        redis.leases[key] = _StoredLease(
            session=session_id, fence=fence, state=LeaseState.DISPATCHED, batch=batch_id
        )
        return fence

    def _put_back(self, session_id: str, leases: Sequence[Lease], batches: Sequence[BatchRecord]) -> None:
        for batch in batches:
            for key, fence in zip(batch.keys, batch.fences, strict=True):
                if not fence:
                    continue
                self._redis.leases.setdefault(
                    key,
                    _StoredLease(
                        session=session_id, fence=fence, state=LeaseState.DISPATCHED, batch=batch.batch_id
                    ),
                )
            self._redis.batches.setdefault(batch.batch_id, batch)
        for lease in leases:
            self._redis.leases.setdefault(lease.key, _StoredLease(session=session_id, fence=lease.fence))


class MemoryInbox:
    """Inbox that keeps the messages' real form."""

    def __init__(self, redis: MemoryRedis) -> None:
        self._redis = redis

    async def push(self, answers: Mapping[str, Sequence[Answer]]) -> None:
        self._redis.reach()
        for session_id, given in answers.items():
            limits = self._redis.limits
            self._redis.inboxes[session_id] += answer_message.to_texts(
                given, inline_bytes=limits.reply_inline_bytes, message_bytes=limits.reply_message_bytes
            )

    async def pop(self, session_id: str, timeout_s: float) -> list[Answer]:
        self._redis.reach()
        texts = self._redis.inboxes[session_id][: self._redis.limits.inbox_pop]
        del self._redis.inboxes[session_id][: len(texts)]
        return [answer for text in texts for answer in answer_message.from_text(text)]


class ManualTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """A Clock that moves only by `advance`, and lets everything due run on its way."""

    def __init__(self, now_ms: float = 0.0) -> None:
        self._now_ms = now_ms
        self._timers: list[tuple[float, int, ManualTimer]] = []
        self._order = itertools.count()

    def now_ms(self) -> float:
        return self._now_ms

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> ManualTimer:
        timer = ManualTimer(callback)
        heapq.heappush(self._timers, (self._now_ms + delay_ms, next(self._order), timer))
        return timer

    async def sleep(self, delay_ms: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        timer = self.call_later(delay_ms, wake)
        try:
            await woken
        finally:
            timer.cancel()

    async def advance(self, delay_ms: float) -> None:
        end_ms = self._now_ms + delay_ms
        await settle()
        while self._timers and self._timers[0][0] <= end_ms:
            due_ms, _order, timer = heapq.heappop(self._timers)
            self._now_ms = max(self._now_ms, due_ms)
            if timer.callback is not None:
                timer.callback()
                await settle()
        self._now_ms = end_ms
        await settle()


async def settle(turns: int = 50) -> None:
    """Let everything that can run without time or IO run."""
    for _ in range(turns):
        await asyncio.sleep(0)


class ScriptedRequests:
    """Requests answered by a function; keeps what was sent."""

    def __init__(self, answer: Callable[[PhysicalRequest], PhysicalReply | Awaitable[PhysicalReply]]) -> None:
        self._answer = answer
        self.sent: list[PhysicalRequest] = []
        self.attests = False  # whether repeats of fenced requests are promised to be harmless

    async def send(self, request: PhysicalRequest) -> PhysicalReply:
        self.sent.append(request)
        reply = self._answer(request)
        return await reply if isinstance(reply, Awaitable) else reply

    async def attests_fence(self) -> bool:
        return self.attests
