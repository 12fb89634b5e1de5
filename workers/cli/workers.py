"""`playlane workers`: who works, and what each holds."""

from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from runtime.model.health import LiveWorker
from runtime.postgres_store.health import live_workers
from workers.cli.connection import sender_settings
from workers.cli.options import AsJson
from workers.cli.terminal import plain_table, say, say_json


def workers(as_json: AsJson = False) -> None:
    """List the worker processes that live by Postgres, true without Flower: role, host, age, what each holds."""
    from workers.configuration import limits_of

    settings = sender_settings()
    found = live_workers(settings.database_url.get_secret_value(), limits_of(settings))
    if as_json:
        for one in found:
            say_json(worker_json(one))
    elif found:
        Console().print(table(found, datetime.now(UTC)))
    else:
        say("no worker is alive: start some with `playlane up`, or `playlane worker ROLE`")


def worker_json(one: LiveWorker) -> dict[str, object]:
    return {
        "session_id": one.session_id,
        "role": one.role,
        "hostname": one.hostname,
        "pid": one.pid,
        "started_at": one.started_at.isoformat(),
        "renewed_s": round(one.renewed_s, 1),
        "runs": one.runs,
        "slices": one.slices,
    }


def table(found: list[LiveWorker], now: datetime) -> Table:
    """A line a process."""
    shown = plain_table()
    for name in ("role", "host", "pid", "session", "up", "renewed", "runs", "slices"):
        shown.add_column(
            name, no_wrap=True, justify="left" if name in ("role", "host", "session") else "right"
        )
    for one in found:
        shown.add_row(
            one.role,
            Text(one.hostname),
            str(one.pid),
            one.session_id,
            _span((now - one.started_at).total_seconds()),
            f"{one.renewed_s:.0f} s ago",
            str(one.runs),
            str(one.slices),
        )
    return shown


def _span(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{max(0, seconds):.0f} s"
