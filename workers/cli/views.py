"""How `watch` shows a run: bars on a terminal, lines in a pipe, JSON for machines."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from runtime.model.events import RunEvent, wire
from runtime.model.status import RunStatus
from runtime.policy.limits import Limits
from runtime.policy.progress import (
    Sample,
    datasets_progress,
    ending_line,
    error_line,
    progress_lines,
    usage_line,
)
from workers.cli.summary import status_json, summary

Write = Callable[[str], None]
WriteJson = Callable[[Any], None]


class View(Protocol):
    """Shown every look at the run, with some before it; `end` once, after the last."""

    def show(self, samples: Sequence[Sample]) -> None: ...

    def note(self, text: str) -> None: ...

    def event(self, event: RunEvent) -> None: ...

    def end(self, status: RunStatus) -> None: ...

    def close(self) -> None: ...


class JsonView:
    """One JSON object for every change; the last line is the final status."""

    def __init__(self, write: WriteJson) -> None:
        self._write = write
        self._shown: dict[str, Any] | None = None

    def show(self, samples: Sequence[Sample]) -> None:
        status = status_json(samples[-1].status)
        changed = {name: value for name, value in status.items() if name != "now"}
        if changed != self._shown:
            self._shown = changed
            self._write(status)

    def note(self, text: str) -> None:
        self._write({"note": text})

    def event(self, event: RunEvent) -> None:
        self._write({"event": wire.dump_python(event, mode="json")})

    def end(self, status: RunStatus) -> None:
        """Nothing: what `show` wrote last is the final status."""

    def close(self) -> None:
        """Nothing is open."""


class LinesView:
    """Plain lines, when something changed and not more often than `watch_line_s`."""

    def __init__(self, write: Write, console: Console, limits: Limits) -> None:
        self._write = write
        self._console = console
        self._limits = limits
        self._shown: tuple[str, ...] = ()
        self._shown_at_s = float("-inf")

    def show(self, samples: Sequence[Sample]) -> None:
        now = samples[-1]
        if now.at_s - self._shown_at_s < self._limits.watch_line_s:
            return
        lines = progress_lines(samples)
        if lines != self._shown:
            self._shown, self._shown_at_s = lines, now.at_s
            for line in lines:
                self._write(line)

    def note(self, text: str) -> None:
        self._write(text)

    def event(self, event: RunEvent) -> None:
        """People read notes."""

    def end(self, status: RunStatus) -> None:
        tell_end(self._console, status)

    def close(self) -> None:
        """Nothing is open."""


class BarsView:
    """A bar for each dataset and a line of calls, redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[detail]}", markup=False),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {}
        self._line = Text(no_wrap=True, overflow="ellipsis")
        self._live = Live(Group(self._bars, self._line), console=console, refresh_per_second=8)
        self._live.start()

    def show(self, samples: Sequence[Sample]) -> None:
        for one in datasets_progress(samples):
            if one.key not in self._tasks:
                self._tasks[one.key] = self._bars.add_task(one.key, total=None, detail="")
            total = one.rows or None
            self._bars.update(self._tasks[one.key], completed=one.done, total=total, detail=one.detail)
        status = samples[-1].status
        usage = usage_line(status.usage)
        self._line.plain = "  ".join(
            (f"{status.run_id} {status.state.value}", *((usage,) if usage else ()), *samples[-1].closed)
        )

    def note(self, text: str) -> None:
        self._console.print(Text(text, style="yellow"))

    def event(self, event: RunEvent) -> None:
        """People read notes."""

    def end(self, status: RunStatus) -> None:
        self.close()
        tell_end(self._console, status)

    def close(self) -> None:
        self._live.stop()


def tell_end(console: Console, status: RunStatus) -> None:
    """The summary, and in plain words why a run failed."""
    for table in summary(status):
        console.print(table)
    good = status.error is None and status.state.value == "completed"
    console.print(Text(ending_line(status), style="green" if good else "red"), soft_wrap=True)
    reason = error_line(status)
    if reason:
        console.print(Text(f"error: {reason}", style="red"), soft_wrap=True)
    if any(dataset.failed for dataset in status.datasets):
        console.print(
            Text(f"  playlane rows {status.run_id} --failed    which rows failed, and why"), soft_wrap=True
        )
