"""What a watched run's events say between two looks at its counts; without Redis there are none."""

from collections.abc import Callable, Sequence

from runtime.errors import ServiceUnreachableError
from runtime.model.events import LaneActivity, Logged, RowUpdated, RunEvent
from runtime.policy.limits import DEFAULT_LIMITS, Limits
from runtime.policy.progress import spoken_time
from runtime.redis_store.event_stream import BEGINNING

ReadNews = Callable[[str, str], Sequence[tuple[str, RunEvent]]]


class News:
    """Reads on from where it was; says once that it can't."""

    def __init__(self, read: ReadNews, limits: Limits = DEFAULT_LIMITS) -> None:
        self._read = read
        self._limits = limits
        self._place = BEGINNING
        self._failures = 0
        self._is_away = False
        self._told: dict[tuple[str, str], int] = {}
        self._closed: dict[str, tuple[int, str]] = {}
        self._looks = 0

    def look(self, run_id: str) -> tuple[list[RunEvent], list[str]]:
        """(events since the last look, what of them people should read)."""
        self._looks += 1
        try:
            found = self._read(run_id, self._place)
        except ServiceUnreachableError as error:
            lines = [] if self._is_away else [f"{error}; watching by Postgres alone"]
            self._is_away = True
            return [], lines
        self._is_away = False
        if found:
            self._place = found[-1][0]
        events = [event for _, event in found]
        return events, [line for event in events if (line := self._line(event))]

    def closed(self, now_ms: int) -> tuple[str, ...]:
        """Lanes that the provider closed, and for how long still."""
        return tuple(
            f"{lane} closed for {spoken_time((until_ms - now_ms) / 1000)} ({reason})"
            for lane, (until_ms, reason) in sorted(self._closed.items())
            if until_ms > now_ms
        )

    def _line(self, told: RunEvent) -> str | None:
        match told.event:
            case LaneActivity() as activity:
                return self._activity(told.at_ms, activity)
            case Logged(level=level, message=message, scope=scope):
                return f"{scope}: {message}" if level == "info" else f"{scope}: {level}: {message}"
            case RowUpdated(error=str(error), row_key=row_key) if (
                self._failures < self._limits.watch_failures
            ):
                self._failures += 1
                return f"row {row_key} failed: {error}"
            case _:
                return None

    def _activity(self, at_ms: int, activity: LaneActivity) -> str | None:
        if activity.state == "closed":
            self._closed[activity.lane] = (activity.until_ms, activity.reason)
        key = (activity.lane, activity.state)
        last = self._told.get(key)
        if last is not None and self._looks - last < self._limits.watch_quiet_looks:
            return None
        self._told[key] = self._looks
        wait = spoken_time((activity.until_ms - at_ms) / 1000)
        return f"lane {activity.lane}: {activity.tool} {activity.state}, {activity.reason}, for {wait}"
