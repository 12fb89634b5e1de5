"""When a play starts by itself."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A cron expression in a time zone."""

    cron: str
    timezone: str = "UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaySchedule:
    """A schedule of one play of one org; another expression is another schedule."""

    org_id: str
    play: str
    schedule: Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenSchedule:
    """A schedule as it is stored: its last tick, or when it was first seen; `now` by the database's clock."""

    of: PlaySchedule
    last_tick: datetime
    now: datetime
