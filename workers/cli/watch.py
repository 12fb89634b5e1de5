"""`playlane watch RUN`."""

import time
from collections.abc import Callable

import typer
from rich.console import Console

from runtime.errors import ServiceUnreachableError
from runtime.model.run import ENDED_RUNS, RunState
from runtime.model.status import RunStatus
from runtime.policy.limits import DEFAULT_LIMITS, Limits
from runtime.policy.progress import Sample, rate_window, spoken_time
from workers.cli.connection import connect
from workers.cli.news import News, ReadNews
from workers.cli.options import AsJson, RunId
from workers.cli.terminal import FAILED, INTERRUPTED, OK, say, say_json
from workers.cli.views import BarsView, JsonView, LinesView, View

Read = Callable[[str], RunStatus]


def watch(run_id: RunId, as_json: AsJson = False) -> None:
    """Show a run's progress until it ends; exits 0 only if it completed."""
    with connect() as client:
        raise typer.Exit(follow(client.status, run_id, as_json=as_json, news=client.news))


def follow(read: Read, run_id: str, *, as_json: bool, news: ReadNews | None = None) -> int:
    """Watch to the end on this process's stdout; returns the exit code."""
    view = view_for(Console(), as_json=as_json)
    try:
        status = watched(read, run_id, view, news)
    except KeyboardInterrupt:
        view.note(f"no longer watched; run {run_id} goes on")
        return INTERRUPTED
    return OK if status.state is RunState.COMPLETED else FAILED


def watched(read: Read, run_id: str, view: View, news: ReadNews | None = None) -> RunStatus:
    """The ended run, after the view has shown every look at it and its end."""
    try:
        status = Watcher(read, view, news=news).to_end(run_id, read(run_id))
    finally:
        view.close()
    view.end(status)
    return status


def view_for(console: Console, *, as_json: bool, limits: Limits = DEFAULT_LIMITS) -> View:
    """Bars only where they can be redrawn."""
    if as_json:
        return JsonView(say_json)
    return BarsView(console) if console.is_terminal else LinesView(say, console, limits)


class Watcher:
    """Looks at a run until it ends and shows each look; outlives short absences of Postgres."""

    def __init__(
        self,
        read: Read,
        view: View,
        *,
        news: ReadNews | None = None,
        limits: Limits = DEFAULT_LIMITS,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._read = read
        self._view = view
        self._news = None if news is None else News(news, limits)
        self._limits = limits
        self._clock = clock
        self._pause = pause
        self._samples: tuple[Sample, ...] = ()
        self._changed_at_s = clock()
        self._noted_at_s = self._changed_at_s

    def to_end(self, run_id: str, first: RunStatus) -> RunStatus:
        """The ended run's status."""
        status = first
        self._look(status)
        while status.state not in ENDED_RUNS:
            self._pause(self._limits.watch_poll_s)
            status = self._read_patiently(run_id)
            self._look(status)
        return status

    def _look(self, status: RunStatus) -> None:
        closed = self._tell_news(status)
        now = Sample(at_s=self._clock(), status=status, closed=closed)
        if not self._samples or _counts(self._samples[-1].status) != _counts(status):
            self._changed_at_s = self._noted_at_s = now.at_s
        self._samples = (*rate_window(self._samples, now.at_s, self._limits.watch_rate_window_s), now)
        self._view.show(self._samples)
        self._note_stall(now)

    def _tell_news(self, status: RunStatus) -> tuple[str, ...]:
        """Show what the run's events say; lanes that are closed now."""
        if self._news is None:
            return ()
        events, lines = self._news.look(status.run_id)
        for event in events:
            self._view.event(event)
        for line in lines:
            self._view.note(line)
        return self._news.closed(int(status.now.timestamp() * 1000))

    def _note_stall(self, now: Sample) -> None:
        if now.at_s - self._noted_at_s >= self._limits.watch_stall_s:
            self._noted_at_s = now.at_s
            idle = spoken_time(now.at_s - self._changed_at_s)
            self._view.note(f"no progress for {idle}: the run is {now.status.state.value}")

    def _read_patiently(self, run_id: str) -> RunStatus:
        away_since_s: float | None = None
        while True:
            try:
                return self._read(run_id)
            except ServiceUnreachableError as error:
                now_s = self._clock()
                if away_since_s is None:
                    away_since_s = now_s
                    self._view.note(f"{error}; looking again for {self._limits.watch_unreachable_s:g} s")
                if now_s - away_since_s >= self._limits.watch_unreachable_s:
                    raise
                self._pause(self._limits.watch_line_s)


def _counts(status: RunStatus) -> tuple[object, ...]:
    return (status.state, status.attempt, status.datasets, status.usage)
