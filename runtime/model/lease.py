"""A lease: who may produce a receipt key now, in Redis; alive while its session's key is."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


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
    fences: tuple[int, ...]
