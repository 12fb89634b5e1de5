"""`python -m bench.lanes`: one lane, many processes: how much of a limit is used, how full batches are, lone calls."""

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from bench.contenders import playlane_run
from bench.fairness import LARGE_ROWS, SMALL_ROWS, measure_fairness
from bench.ledger import LEDGER_PATH, TIMEOUT_S, clear_ledger
from bench.lone_calls import lone_delays_ms
from bench.measuring import BenchFailedError
from bench.report import print_numbers
from bench.windows import fullest_window, limit_use, windows_over
from bench.workload import write_workload
from bench.world import LOGS, World, bench_world
from runtime.errors import PlaylaneError
from workers.stack.stack import Counts

PLAY = "bench_spine"
TOOL = "echo"
OPERATION = "echo_batch"
SECOND_MS = 1_000
WARM_ROWS = 200
UNDECLARED_BURST = 2  # what a provider without a burst bears
LONE_CALLS = 50
SMALL_RUNS = 5
FAILED = 1


def main() -> int:
    options = _options()
    try:
        with bench_world(latency_ms=options.latency_ms, durable=not options.fast) as world:
            numbers, notes = _measured(world, options)
    except PlaylaneError as error:
        print(f"bench: {error}\nlogs are in {LOGS}", file=sys.stderr)
        return FAILED
    print_numbers("lanes: one limit shared by all processes", numbers, notes)
    return 0


def _measured(world: World, options: argparse.Namespace) -> tuple[dict[str, float | None], list[str]]:
    _declare(world.api_url, limit=options.limit, burst=options.burst, batch=options.batch)
    counts = Counts(rows=options.rows_workers, lanes=options.lanes_workers)
    with playlane_run.ready(world, play=PLAY, counts=counts) as run_rows:
        run_rows(write_workload(world.folder, WARM_ROWS))
        clear_ledger(world.api_url)
        run_rows(write_workload(world.folder, options.rows))
        entries = _entries(world.api_url)
        lone = lone_delays_ms(world, tool=TOOL, calls=LONE_CALLS, pause_s=3 / options.limit)
        fairness = measure_fairness(world, play=PLAY, repeats=SMALL_RUNS)
    _check(entries, options.rows)
    times = [entry["time"] for entry in entries]
    bearable = options.limit + (options.burst or UNDECLARED_BURST)
    numbers: dict[str, float | None] = {
        "limit_use": round(limit_use(times, options.limit), 4),
        "fill": round(options.rows / (len(entries) * options.batch), 4),
        "windows_over": windows_over(times, bearable, SECOND_MS / 1000),
        "lone_ms_p50": round(statistics.median(lone), 2),
        "fairness_ratio": round(fairness.ratio, 2),
    }
    notes = [
        *world.notes,
        (
            f"{len(entries):,} requests of up to {options.batch}; limit {options.limit}/s, burst {options.burst:g}, "
            f"{options.lanes_workers} lane processes; fullest second: {fullest_window(times, SECOND_MS / 1000)}"
        ),
        (
            f"a run of {SMALL_ROWS} rows: {fairness.alone_s:.2f} s alone, "
            f"{fairness.beside_s:.2f} s behind one of {LARGE_ROWS:,}"
        ),
        f"lone calls: from the post to the provider's ledger, less the window; worst {max(lone):.1f} ms",
    ]
    return numbers, notes


def _declare(api_url: str, *, limit: float, burst: float, batch: int) -> None:
    """Tell the API what the tool declares from now on."""
    hint = {"provider": "fakeprov", "limit": limit, "perMs": SECOND_MS, "counts": "requests", "burst": burst}
    declared = {"batch": {"operation": OPERATION, "maxBatchSize": batch}, "queueHints": [hint]}
    reply = httpx.post(
        f"{api_url}/_control", json={"metadata": {TOOL: declared}}, timeout=TIMEOUT_S, trust_env=False
    )
    reply.raise_for_status()


def _entries(api_url: str) -> Sequence[Mapping[str, Any]]:
    reply = httpx.get(f"{api_url}{LEDGER_PATH}", timeout=TIMEOUT_S, trust_env=False).raise_for_status()
    return reply.json()["entries"]


def _check(entries: Sequence[Mapping[str, Any]], rows: int) -> None:
    charged = [item for entry in entries for item in entry["charged_items"]]
    if len(charged) != rows or len(set(charged)) != rows:
        raise BenchFailedError(f"{rows} items should be charged once each, but {len(charged)} were charged")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.lanes",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--limit", type=float, default=50.0, help="requests a second")
    parser.add_argument("--burst", type=float, default=0.0)
    parser.add_argument("--batch", type=int, default=25)
    parser.add_argument("--latency-ms", type=float, default=20.0, help="of the provider, per request")
    parser.add_argument("--lanes-workers", type=int, default=4)
    parser.add_argument("--rows-workers", type=int, default=1)
    parser.add_argument("--fast", action="store_true", help="Postgres without fsync")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("bench: interrupted; nothing is left running")
