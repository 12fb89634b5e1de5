"""A lease: who may produce a receipt key now, in Redis; alive while its session's key is."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

T = TypeVar("T")


class LeaseState(StrEnum):
    QUEUED = "queued"  # claimed, not sent: may be given back
    DISPATCHED = "dispatched"  # part of a recorded batch that is or was on the wire


LEASE_MOVES = {
    LeaseState.QUEUED: frozenset({LeaseState.DISPATCHED}),
    LeaseState.DISPATCHED: frozenset[LeaseState](),
}


class ClaimVerdict(StrEnum):
    GRANTED = "granted"  # ours now (or ours already)
    HELD = "held"  # a live session has it
    TAKEOVER = "takeover"  # dead and dispatched: its batch must be adopted
    GRACE = "grace"  # Redis lost its data: no claim is granted for one TTL


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    key: str
    verdict: ClaimVerdict
    fence: int = 0
    batch_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A lease that this session holds."""

    key: str
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord:
    """One physical request as recorded before it is sent: enough to send it again verbatim.

    `members` are ordered call objects (JSON); payload and batch key are pure functions of the record.
    """

    batch_id: str
    session_id: str
    lane: str
    operation: str
    strategy: str
    revision: str
    members: tuple[dict[str, Any], ...]
    fences: tuple[int, ...]  # of `keys`

    @property
    def keys(self) -> tuple[str, ...]:
        """Receipt keys leased for it: each member's own, then the shared ones of forced members."""
        own = tuple(member["key"] for member in self.members)
        return own + tuple(member["shared_key"] for member in self.members if member.get("shared_key"))

    def per_member(self, values: Sequence[T]) -> list[tuple[T, T | None]]:
        """Values aligned to `keys` as pairs (own, shared or None), aligned to members."""
        shared = iter(values[len(self.members) :])
        return [
            (own, next(shared) if member.get("shared_key") else None)
            for own, member in zip(values[: len(self.members)], self.members, strict=True)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanBatch:
    """What a sweep must know of a dead session's batch: the runs behind it, and its members as recorded."""

    runs: frozenset[str]
    members: tuple[dict[str, Any], ...]
