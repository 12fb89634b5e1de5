"""Looks at runs and lanes that were kept, for curves over time."""

from dataclasses import dataclass, field
from datetime import datetime

from runtime.model.status import CellCount, ToolUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSample:
    """Counts of a run at a moment."""

    at: datetime
    completed: int
    failed: int
    cancelled: int
    usage: tuple[ToolUsage, ...] = field(default=())

    @property
    def ended(self) -> int:
        return self.completed + self.failed + self.cancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSample:
    """A lane of an organisation and provider at a moment; counts are totals."""

    lane: str
    provider: str
    at: datetime
    requests: int
    items: int
    capacity: int
    in_flight: int
    waiting: int
    rate_per_s: float | None
    reason: str
    closed_until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHistory:
    """What was kept of a run over time."""

    samples: tuple[RunSample, ...] = ()
    lanes: tuple[LaneSample, ...] = ()
    cells: tuple[CellCount, ...] = ()
