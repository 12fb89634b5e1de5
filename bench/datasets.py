"""`python -m bench.datasets`: one pure column over many rows; rate, memory of the workers, cost of the last page."""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from bench.measuring import BenchFailedError
from bench.report import print_numbers
from bench.resources import Resources
from bench.statements import page_cost_ratio
from bench.workload import Workload, write_workload
from bench.world import LOGS, World, bench_world
from runtime.client import PlayClient
from runtime.errors import PlaylaneError
from runtime.model.run import ENDED_RUNS, RunState
from workers.stack.stack import MODULES_VARIABLE, Counts, start_stack
from workers.stack.supervisor import Supervisor

SMALL_ROWS = 20_000
WAIT_S = 3_600.0
POLL_S = 0.1
WORKERS = ("control", "plays", "rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class PureRun:
    """One run over a pure column, and what the workers took for it."""

    run_id: str
    rows: int
    seconds: float
    resources: Resources

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds

    def told(self) -> str:
        return f"{self.rows:,} rows in {self.seconds:.1f} s: {self.rows_per_s:,.0f} rows/s; {self.resources.told()}"


def main() -> int:
    options = _options()
    try:
        with bench_world(latency_ms=0, durable=not options.fast) as world, Supervisor() as supervisor:
            start_stack(
                supervisor,
                world.servers,
                counts=Counts(rows=options.rows_workers),
                flower=False,
                api=False,
                quiet=True,
                logs=world.logs,
                env={**world.env, MODULES_VARIABLE: "bench.plays"},
            )
            numbers, notes = _measure(world, supervisor, options.rows)
            print_numbers("datasets: one pure column", numbers, (*world.notes, *notes))
    except PlaylaneError as error:
        print(f"bench: {error}\nlogs are in {LOGS}", file=sys.stderr)
        return 1
    return 0


def _measure(
    world: World, supervisor: Supervisor, rows: int
) -> tuple[dict[str, float | None], Sequence[str]]:
    """A warm-up, the small run, then the large one in the same processes."""
    run = partial(_run, world=world, supervisor=supervisor)
    run(write_workload(world.folder, SMALL_ROWS // 4))
    small = run(write_workload(world.folder, SMALL_ROWS))
    large = run(write_workload(world.folder, rows))
    ratios = {
        name: large.resources.rss[name] / rss
        for name, rss in small.resources.rss.items()
        if name.startswith(WORKERS)
    }
    name = max(ratios, key=lambda name: ratios[name], default="")
    notes = [small.told(), large.told(), f"memory_ratio is that of {name}, the worker that grew most"]
    return {
        "pure_rows_per_s": round(large.rows_per_s, 1),
        "memory_ratio": round(ratios[name], 3) if name else None,
        "page_cost_ratio": page_cost_ratio(world.servers.database_url, large.run_id),
    }, notes


def _run(workload: Workload, *, world: World, supervisor: Supervisor) -> PureRun:
    servers = world.servers
    resources = Resources(pids=supervisor.pids())
    started = time.perf_counter()
    with PlayClient(database_url=servers.database_url, redis_url=servers.redis_url) as client:
        run_id = client.enqueue("bench_pure", {"file": str(workload.file)})
        while (status := client.status(run_id)).state not in ENDED_RUNS:
            resources.look()
            if time.perf_counter() - started > WAIT_S:
                raise BenchFailedError(f"run {run_id} is {status.state} after {WAIT_S:.0f} s")
            time.sleep(POLL_S)
    seconds = time.perf_counter() - started
    if status.state is not RunState.COMPLETED or status.result["completed"] != workload.rows:
        raise BenchFailedError(f"run {run_id} ended {status.state}: {status.error or status.result}")
    return PureRun(run_id=run_id, rows=workload.rows, seconds=seconds, resources=resources)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.datasets",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=150_000, help="of the large run")
    parser.add_argument("--rows-workers", type=int, default=1, help="row processes")
    parser.add_argument("--fast", action="store_true", help="Postgres without fsync")
    options = parser.parse_args()
    options.rows = max(options.rows, SMALL_ROWS)
    return options


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("bench: interrupted; nothing is left running")
