"""`python -m examples.demo --rows N`: enrich a table of real airports with a whole stack of one's own."""

import argparse
import csv
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from types import FrameType
from typing import Any, NoReturn

import airportsdata
import orjson
from rich.console import Console as Screen

from examples import killing
from examples.flower_report import read_report
from runtime.client import PlayClient
from runtime.errors import PlaylaneError, StackError
from runtime.model.run import RunState
from runtime.model.status import RunStatus, SheetRow
from runtime.policy.progress import fill
from workers.cli.terminal import INTERRUPTED
from workers.cli.watch import view_for, watched
from workers.stack.console import Console
from workers.stack.folders import temporary_state
from workers.stack.servers import Servers, running_servers
from workers.stack.stack import Counts, StackPorts, start_stack
from workers.stack.supervisor import Supervisor

PLAY = "airports"
ZONE_TOOL = "timezone_at"
COLUMNS = ("icao", "name", "city", "country", "lat", "lon", "tz")
STATE = Path(".playlane")
LONGEST_S = 3600.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; 0 only if every run completed. The last line printed is one JSON object."""
    options = parse(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return run_demo(options)
    except KeyboardInterrupt:
        print("interrupted; nothing is left running", file=sys.stderr)
        return INTERRUPTED
    except PlaylaneError as error:
        print(f"error: {error}\nlogs: {STATE / 'logs'}", file=sys.stderr)
        return 1


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--rows", type=_positive, default=None, help="airports to enrich; all if not given")
    parser.add_argument("--again", action="store_true", help="run a second time over the same input")
    parser.add_argument("--kill", action="store_true", help="kill -9 workers while the run goes on")
    parser.add_argument("--rows-workers", type=_positive, default=1)
    parser.add_argument("--lanes-workers", type=_positive, default=1)
    return parser.parse_args(arguments)


def run_demo(options: argparse.Namespace) -> int:
    """The whole demo: table, stack, run, Flower, result."""
    table = (STATE / "demo" / f"airports-{options.rows or 'all'}.csv").absolute()
    count = write_airports(table, options.rows)
    print(f"{count:,} airports in {table}")
    counts = Counts(rows=options.rows_workers, lanes=options.lanes_workers)
    limits = {"PLAYLANE_LIMITS": killing.LIMITS} if options.kill else {}
    with demo_stack(counts, limits) as stack, stack.client() as client:
        status = stack.run(client, table, kill_of=count if options.kill else 0)
        print(read_report(stack.flower_url).line())
        result = result_of(status, agreement(sheet_of(client, status)))
        codes = [status.state]
        if options.again:
            again = stack.run(client, table)
            codes.append(again.state)
            print(again_line(again))
            result |= {"again_calls": calls_of(again), "again_seconds": seconds_of(again)}
        print("stopping the stack")
    print(orjson.dumps(result).decode(), flush=True)
    return 0 if all(code is RunState.COMPLETED for code in codes) else 1


def write_airports(path: Path, limit: int | None = None) -> int:
    """Write the first `limit` airports as CSV; returns how many there are."""
    airports = [dict(airport) for airport in list(airportsdata.load("ICAO").values())[:limit]]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows([airport[column] for column in COLUMNS] for airport in airports)
    return len(airports)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoStack:
    """A running stack; `supervisor` tells when it can't go on."""

    servers: Servers
    ports: StackPorts
    supervisor: Supervisor

    @property
    def flower_url(self) -> str:
        return self.ports.flower_url or ""

    def client(self) -> PlayClient:
        # An org of its own: receipts of an earlier demo in named servers don't make this one free.
        return PlayClient(
            redis_url=self.servers.redis_url,
            database_url=self.servers.database_url,
            org_id=f"demo-{token_hex(4)}",
        )

    def run(self, client: PlayClient, table: Path, *, kill_of: int = 0) -> RunStatus:
        """Enqueue the play over the table and watch it to its end; of `kill_of` rows, kill workers on the way."""
        view = view_for(Screen(), as_json=False)
        kills = killing.Killings(total=kill_of, pids=self.supervisor.pids, say=view.note)
        run_id = client.enqueue(PLAY, {"file": str(table)})
        deadline = time.monotonic() + LONGEST_S

        def look(run_id: str) -> RunStatus:
            if self.supervisor.failure:
                raise StackError(self.supervisor.failure)
            if time.monotonic() > deadline:
                raise StackError(f"the demo took longer than {LONGEST_S:g} s and is given up")
            status = client.status(run_id)
            if kill_of:
                kills.look(status)
            return status

        return watched(look, run_id, view)


@contextmanager
def demo_stack(counts: Counts | None = None, env: Mapping[str, str] | None = None) -> Iterator[DemoStack]:
    """Servers and workers of its own, quiet, with logs in `.playlane/logs`; all stopped on leaving."""
    logs = (STATE / "logs").absolute()
    logs.mkdir(parents=True, exist_ok=True)
    with ExitStack() as opened:
        # Restarts are told in a file of their own: on the terminal they would tear the bars.
        told = opened.enter_context((logs / "system.log").open("w", encoding="utf-8"))
        supervisor = Supervisor(Console(told))
        state = opened.enter_context(temporary_state())
        servers = opened.enter_context(running_servers(state, fast=True, supervisor=supervisor, logs=logs))
        for note in servers.notes:
            print(note)
        ports = start_stack(
            supervisor,
            servers,
            counts=counts,
            quiet=True,
            logs=logs,
            # Flower listens on this machine only, for as long as the demo runs.
            env=env or {},
        )
        supervisor.start_watching()
        print(f"Flower on {ports.flower_url}, logs in {logs}")
        yield DemoStack(servers=servers, ports=ports, supervisor=supervisor)


def sheet_of(client: PlayClient, status: RunStatus) -> Iterator[SheetRow]:
    """The stored rows of the run's first dataset."""
    if status.datasets:
        yield from client.sheet(status.play, status.datasets[0].namespace)


def agreement(rows: Iterable[SheetRow]) -> float | None:
    """Share of rows whose own zone is the data set's; None if there is no row."""
    verdicts = [row.data.get("agrees") is True for row in rows]
    return round(sum(verdicts) / len(verdicts), 4) if verdicts else None


def result_of(status: RunStatus, agree: float | None) -> dict[str, Any]:
    """The demo's result as printed last."""
    zone = fill([tool for tool in status.usage if tool.tool == ZONE_TOOL])
    return {
        "status": status.state.value,
        "rows": sum(dataset.rows for dataset in status.datasets),
        "failed": sum(dataset.failed for dataset in status.datasets),
        "calls": calls_of(status),
        "batches": sum(tool.batches for tool in status.usage),
        "fill": None if zone is None else round(zone, 4),
        "cached": sum(tool.cached for tool in status.usage),
        "seconds": seconds_of(status),
        "agree": agree,
    }


def again_line(status: RunStatus) -> str:
    """What the second run over the same input cost."""
    calls = calls_of(status)
    return f"second run over the same input: {calls:,} provider calls were made, {seconds_of(status):g} s"


def calls_of(status: RunStatus) -> int:
    """Calls sent to providers for this run."""
    return sum(tool.items for tool in status.usage)


def seconds_of(status: RunStatus) -> float:
    """From admission to end, by the database's clock."""
    return round(((status.ended_at or status.now) - status.created_at).total_seconds(), 2)


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


if __name__ == "__main__":
    sys.exit(main())
