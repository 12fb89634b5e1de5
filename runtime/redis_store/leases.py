"""Leases, batch records and the epoch in Redis."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

from redis.asyncio import Redis

from runtime.model import batch_record
from runtime.model.lease import BatchRecord, Claim, ClaimVerdict, Lease, OrphanBatch
from runtime.policy.limits import Limits
from runtime.redis_store import keys
from runtime.redis_store.gathered import Gathered
from runtime.redis_store.scripts import Script, reaching_redis

_HEARTBEAT = Script("heartbeat")
_CLAIM = Script("claim")
_SEAL = Script("seal")
_RELEASE = Script("release")
_RECREATE = Script("recreate")
_ADOPT = Script("adopt")
_ORPHANS = Script("orphans")
_ALIVE = Script("alive")


class RedisLeases:
    """The LeaseStore. `now_us` replaces the server's clock, in tests only."""

    def __init__(self, redis: Redis, limits: Limits, *, now_us: int | None = None) -> None:
        self._redis = redis
        self._limits = limits
        self.now_us = now_us
        self._epoch: str | None = None
        self._sealing: Gathered[str, BatchRecord, list[bool]] = Gathered(self._seal_all, limits.lease_asks)
        self._releasing: Gathered[str, tuple[Sequence[Lease], str | None], None] = Gathered(
            self._release_all, limits.lease_asks
        )

    async def register(self, session_id: str, *, first: bool = False) -> str:
        """Announce the session; returns the epoch. `first`: no other session can have data to lose."""
        epoch, _in_grace = await self._heartbeat(session_id, first=first)
        self._epoch = epoch
        return epoch

    async def renew(self, session_id: str, leases: Sequence[Lease], batches: Sequence[BatchRecord]) -> str:
        """Heartbeat; if the epoch is another than before, put back what this session holds. Returns the epoch."""
        epoch, in_grace = await self._heartbeat(session_id, first=False)
        if epoch != self._epoch and self._epoch is not None and in_grace:
            await self._recreate(session_id, epoch, leases, batches)
        self._epoch = epoch
        return epoch

    async def forget(self, session_id: str) -> None:
        """The session ends: its leases are dead at once."""
        with reaching_redis("forgetting a session"):
            await self._redis.delete(keys.session(session_id))

    async def claim(
        self, session_id: str, receipt_keys: Sequence[str], floors: Mapping[str, int]
    ) -> list[Claim]:
        """One script for all keys, aligned."""
        listed = ",".join(str(floors.get(key, 0)) for key in receipt_keys) if floors else ""
        found: bytes = await _CLAIM.run(
            self._redis,
            [keys.session(session_id), keys.EPOCH, keys.GRACE],
            [*self._clock(), session_id, ",".join(receipt_keys), listed],
        )
        verdicts = found.decode().split(",") if found else []
        return [_claim_of(key, verdict) for key, verdict in zip(receipt_keys, verdicts, strict=True)]

    async def seal(self, batch: BatchRecord) -> list[bool]:
        """Mark the members' leases dispatched and record the batch, if all of them hold; says which hold."""
        return await self._sealing.ask(batch.session_id, batch)

    async def release(self, session_id: str, leases: Sequence[Lease], batch_id: str | None = None) -> None:
        """Free leases still ours and drop the batch record."""
        await self._releasing.ask(session_id, (leases, batch_id))

    async def adopt(self, session_id: str, batch_id: str) -> BatchRecord | None:
        """Take over a dead session's batch; a member whose lease is another's comes with fence 0."""
        found = await _ADOPT.run(
            self._redis,
            [keys.session(session_id), keys.GRACE, keys.batch(batch_id), keys.BATCHES],
            [self._now(), self._lease_ttl_s, self._session_ttl_ms, self._record_ttl_s, session_id, batch_id],
        )
        if not found:
            return None
        fences = tuple(int(fence) for fence in found[1].split(b","))
        return batch_record.from_text(found[0], session_id=session_id, fences=fences)

    async def orphans(self, limit: int) -> list[str]:
        """Ids of recorded batches whose session is dead, oldest first."""
        found = await _ORPHANS.run(self._redis, [keys.BATCHES, keys.GRACE], [limit, self._limits.orphan_scan])
        return [batch_id.decode() for batch_id in found]

    async def orphans_of(self, batch_ids: Sequence[str]) -> dict[str, OrphanBatch]:
        """What is recorded of batches; one without a record is left out."""
        with reaching_redis("reading batch records"):
            async with self._redis.pipeline(transaction=False) as pipeline:
                for batch_id in batch_ids:
                    pipeline.hget(keys.batch(batch_id), "record")
                texts = await pipeline.execute()
        return {
            batch_id: batch_record.orphan_of_text(text)
            for batch_id, text in zip(batch_ids, texts, strict=True)
            if text is not None
        }

    async def alive(self, receipt_keys: Sequence[str]) -> set[str]:
        """Those keys that some live session leases."""
        alive: set[str] = set()
        for chunk in _chunks(receipt_keys, self._limits.receipt_chunk):
            flags = await _ALIVE.run(self._redis, [], [",".join(chunk)])
            alive.update(key for key, flag in zip(chunk, flags, strict=True) if flag == 49)
        return alive

    async def _seal_all(self, session_id: str, batches: Sequence[BatchRecord]) -> list[list[bool]]:
        holds: list[list[bool]] = []
        for chunk in _chunks_of_bytes([_sealed(batch) for batch in batches], self._limits.read_bytes):
            found = await _SEAL.run(
                self._redis,
                [keys.session(session_id), keys.BATCHES],
                [
                    self._now(),
                    self._lease_ttl_s,
                    self._session_ttl_ms,
                    self._record_ttl_s,
                    session_id,
                    *(argument for one in chunk for argument in one),
                ],
            )
            holds += [[flag == 49 for flag in flags] for flags in found]  # 49 = "1"
        return holds

    async def _release_all(
        self, session_id: str, released: Sequence[tuple[Sequence[Lease], str | None]]
    ) -> list[None]:
        leases = [lease for some, _batch_id in released for lease in some]
        batch_ids = ",".join(batch_id for _some, batch_id in released if batch_id)
        chunks = list(_chunks(leases, self._limits.receipt_chunk)) or [()]
        for position, chunk in enumerate(chunks):
            drop = batch_ids if position == len(chunks) - 1 else ""
            await _RELEASE.run(self._redis, [keys.BATCHES], [session_id, drop, *_listed_leases(chunk)])
        return [None] * len(released)

    async def _heartbeat(self, session_id: str, *, first: bool) -> tuple[str, bool]:
        epoch, in_grace = await _HEARTBEAT.run(
            self._redis,
            [keys.session(session_id), keys.EPOCH, keys.GRACE],
            [*self._clock(), "1" if first else "0"],
        )
        return epoch.decode(), in_grace == b"1"

    async def _recreate(
        self, session_id: str, epoch: str, leases: Sequence[Lease], batches: Sequence[BatchRecord]
    ) -> None:
        for batch in batches:
            arguments = [batch.batch_id, batch_record.to_text(batch), *_listed(batch)]
            await self._put_back(session_id, epoch, arguments)
        dispatched = {key for batch in batches for key in batch.keys}
        queued = [lease for lease in leases if lease.key not in dispatched]
        for chunk in _chunks(queued, self._limits.receipt_chunk):
            await self._put_back(session_id, epoch, ["", "", *_listed_leases(chunk)])

    async def _put_back(self, session_id: str, epoch: str, arguments: list[Any]) -> None:
        await _RECREATE.run(
            self._redis,
            [keys.session(session_id), keys.EPOCH, keys.GRACE, keys.batch(arguments[0]), keys.BATCHES],
            [
                self._now(),
                self._lease_ttl_s,
                self._session_ttl_ms,
                self._record_ttl_s,
                session_id,
                epoch,
                *arguments,
            ],
        )

    def _clock(self) -> list[Any]:
        return [self._now(), uuid4().hex, self._lease_ttl_s, self._session_ttl_ms]

    def _now(self) -> int | str:
        return "" if self.now_us is None else self.now_us

    @property
    def _lease_ttl_s(self) -> int:
        return int(self._limits.lease_ttl_s)

    @property
    def _record_ttl_s(self) -> int:
        return int(self._limits.batch_record_ttl_s)

    @property
    def _session_ttl_ms(self) -> int:
        return int(self._limits.session_ttl_s * 1000)


_VERDICTS = {"h": ClaimVerdict.HELD, "t": ClaimVerdict.TAKEOVER, "g": ClaimVerdict.GRACE}


def _claim_of(key: str, verdict: str) -> Claim:
    kind = _VERDICTS.get(verdict[:1])
    if kind is None:
        return Claim(key=key, verdict=ClaimVerdict.GRANTED, fence=int(verdict))
    return Claim(key=key, verdict=kind, batch_id=verdict[1:] or None)


def _listed(batch: BatchRecord) -> tuple[str, str]:
    return ",".join(batch.keys), ",".join(str(fence) for fence in batch.fences)


def _sealed(batch: BatchRecord) -> tuple[str, str | bytes, str, str]:
    listed, fences = _listed(batch)
    return batch.batch_id, batch_record.to_text(batch), listed, fences


def _listed_leases(leases: Sequence[Lease]) -> tuple[str, str]:
    return ",".join(lease.key for lease in leases), ",".join(str(lease.fence) for lease in leases)


def _chunks(values: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (values[start : start + size] for start in range(0, len(values), size))


def _chunks_of_bytes(
    batches: Sequence[tuple[str, str | bytes, str, str]], most: int
) -> Iterator[list[tuple[str, str | bytes, str, str]]]:
    chunk: list[tuple[str, str | bytes, str, str]] = []
    size = 0
    for batch in batches:
        bytes_ = len(batch[1])
        if chunk and size + bytes_ > most:
            yield chunk
            chunk, size = [], 0
        chunk.append(batch)
        size += bytes_
    if chunk:
        yield chunk
