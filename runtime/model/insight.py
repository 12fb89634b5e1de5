"""What a run's counts mean: how fast, how long, what it cost and saved, what holds it up."""

from dataclasses import dataclass, field

from runtime.model.boundary import Awaited
from runtime.model.status import ChildCounts, FailureKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """`credits_saved` is an estimate: what cached and followed calls would have cost at their tool's mean price."""

    calls: int  # asked for
    sent: int
    requests: int
    cached: int
    followed: int
    credits: float
    credits_saved: float

    @property
    def requests_saved(self) -> int:
        """By batches."""
        return self.sent - self.requests


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLane:
    """A lane that calls of the organisation wait for; `wait_s` None: nobody can say."""

    lane: str
    provider: str
    waiting: int
    reason: str
    wait_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInsight:
    """`rows_per_s` over the last while, or over the whole of an ended run; `left_s` None: nobody can say."""

    rows_per_s: float | None
    left_s: float | None
    active_s: float
    deadline_s: float | None
    spending: Spending
    slowest_lane: SlowLane | None
    failures: tuple[FailureKind, ...]
    awaited: tuple[Awaited, ...]
    children: ChildCounts = field(default_factory=ChildCounts)
