"""Ticks of schedules. Of several missed ones only the last is made up for."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from runtime.errors import PlayDefinitionError
from runtime.model.run import NewRun
from runtime.model.schedule import PlaySchedule, Schedule, SeenSchedule

ORG_CHARS = 60
DEFAULT_ORG = "default"


def checked(cron: str | None, timezone: str | None, what: str) -> Schedule | None:
    """The schedule, or None where there is none; raises PlayDefinitionError."""
    if cron is None:
        if timezone is not None:
            raise PlayDefinitionError(f"{what}: timezone={timezone!r} says nothing without cron")
        return None
    schedule = Schedule(cron=cron, timezone=timezone or "UTC")
    try:
        zone = ZoneInfo(schedule.timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise PlayDefinitionError(
            f'{what}: there is no time zone {schedule.timezone!r}: write one such as "Europe/Berlin"'
        ) from None
    try:
        next(CronSim(cron, datetime(2025, 1, 1, tzinfo=zone)), None)
    except (CronSimError, AttributeError, TypeError) as error:
        raise PlayDefinitionError(
            f'{what}: cron={cron!r} is no cron expression ({error}): write five fields such as "0 6 * * *"'
        ) from None
    return schedule


def due_tick(seen: SeenSchedule) -> datetime | None:
    """The newest tick that is over and was not taken; earlier missed ones are left out."""
    zone = ZoneInfo(seen.of.schedule.timezone)
    ticks = CronSim(seen.of.schedule.cron, seen.now.astimezone(zone) + timedelta(seconds=1), reverse=True)
    for tick in ticks:
        if tick <= seen.now:
            return tick.astimezone(UTC) if tick > seen.last_tick else None
    return None


def run_of_tick(of: PlaySchedule, tick: datetime) -> NewRun:
    """The one run of a tick; its id is the tick's."""
    org = "" if of.org_id == DEFAULT_ORG else f"{of.org_id[:ORG_CHARS]}."
    return NewRun(
        run_id=f"{org}{of.play}.{tick:%Y%m%dT%H%M%SZ}",
        org_id=of.org_id,
        play=of.play,
        input={"scheduled_at": tick.isoformat()},
    )
