"""Durable outcomes of calls, and the leases under which they are made."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from runtime.model.budget import Charge
from runtime.model.call import Usage
from runtime.model.lease import BatchRecord, Claim, Lease, OrphanBatch
from runtime.model.receipt import Receipt


class ReceiptStore(Protocol):
    async def read(self, keys: Sequence[str]) -> dict[str, Receipt]:
        """Receipts that exist, by key; in chunks of `receipt_chunk` keys and `read_bytes`."""
        ...

    async def commit(
        self,
        session_id: str,
        receipts: Sequence[Receipt],
        usage: Sequence[Usage],
        charges: Sequence[Charge] = (),
    ) -> dict[str, Receipt]:
        """Store all outcomes and settle their charges in one transaction; returns what is stored now for every key.

        An outcome replaces: nothing, or a receipt that isn't completed and has no newer fence.
        A completed receipt gives way to a completed refresh of a newer fence only; else it is what is returned.
        """
        ...

    async def unmark(self, session_id: str, receipts: Sequence[Receipt]) -> None:
        """Remove `dispatched` receipts of these fences that this session stored: they were never sent."""
        ...


class LeaseStore(Protocol):
    """Leases, batch records and the epoch, in Redis; every script is safe to repeat."""

    async def register(self, session_id: str, *, first: bool = False) -> str:
        """Announce the session (heartbeat key) and see to the epoch, which is returned.

        A missing epoch means lost data, hence grace, unless `first`: no other session can hold leases.
        """
        ...

    async def renew(self, session_id: str, leases: Sequence[Lease], batches: Sequence[BatchRecord]) -> str:
        """Heartbeat; if Redis lost its data, re-create what this session holds. Returns the epoch."""
        ...

    async def forget(self, session_id: str) -> None:
        """The session ends: its heartbeat key goes, so its leases are dead."""
        ...

    async def claim(
        self, session_id: str, receipt_keys: Sequence[str], floors: Mapping[str, int]
    ) -> list[Claim]:
        """One script for all keys, aligned. fence = max(Redis time in us, last + 1, floor)."""
        ...

    async def seal(self, batch: BatchRecord) -> list[bool]:
        """Check each lease of the batch (session and fence); if all hold: mark dispatched and record the batch.

        If any doesn't hold nothing changes; the answer, aligned to `batch.keys`, says which hold.
        """
        ...

    async def release(self, session_id: str, leases: Sequence[Lease], batch_id: str | None = None) -> None:
        """Free leases still ours (session and fence) and drop the batch record."""
        ...

    async def adopt(self, session_id: str, batch_id: str) -> BatchRecord | None:
        """Take over a dead session's batch and its leases (new fences); None if alive, gone or another's."""
        ...

    async def orphans(self, limit: int) -> list[str]:
        """Ids of recorded batches whose session is dead."""
        ...

    async def orphans_of(self, batch_ids: Sequence[str]) -> dict[str, OrphanBatch]:
        """What is recorded of batches, by batch; one without a record is left out."""
        ...

    async def alive(self, receipt_keys: Sequence[str]) -> set[str]:
        """Those keys that some live session leases."""
        ...
