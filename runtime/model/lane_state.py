"""What one organisation's calls to one provider are up to on a lane, fleet wide."""

from dataclasses import dataclass
from enum import StrEnum


class RateReason(StrEnum):
    RULE = "rule"  # the declared rate
    AIMD = "aimd"  # lowered by refusals without a wait, recovering
    CLOSED = "closed"  # the provider said when to come back
    OPEN = "open"  # no rule: only so many requests at once


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotHolder:
    """A session that holds one of the provider's concurrency slots."""

    session_id: str
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneState:
    """Times are milliseconds of Redis' clock; counts begin anew after a day without any."""

    lane: str
    org_id: str
    provider: str
    is_fixture: bool = False
    rules: str  # as declared, readable
    rate_per_s: float | None  # requests a second now; None: no rule
    full_rate_per_s: float | None
    reason: RateReason
    closed_until_ms: int | None
    in_flight: int
    waiting: int  # tickets that are not due yet, and what waits in front of them
    requests: int
    items: int
    capacity: int  # items that the requests had room for
    concurrency: int | None
    holders: tuple[SlotHolder, ...]
    now_ms: int

    @property
    def name(self) -> str:
        """The provider, told apart from its fixtures."""
        return f"{self.provider} (fixture)" if self.is_fixture else self.provider

    @property
    def fill(self) -> float | None:
        """How full its requests were; None before the first."""
        return self.items / self.capacity if self.capacity else None
