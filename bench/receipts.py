"""`python -m bench.receipts`: a run that makes scalar calls, and the same run again over their receipts."""

import argparse
import gc
import sys
import time
from dataclasses import dataclass

import psycopg

from bench.contenders import playlane_run
from bench.ledger import Account, clear_ledger, complaint, read_account
from bench.measuring import BenchFailedError
from bench.report import print_numbers
from bench.workload import Workload, write_workload
from bench.world import LOGS, World, bench_world
from runtime.errors import PlaylaneError
from workers.stack.stack import Counts

PLAY = "bench_receipts"
WARM_ROWS = 200
GOAL_RATIO = 5.0
QUERIES_A_ROW = 0.25  # one query a row would be 1 and more
FAILED = 1

TRANSACTIONS = "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One run: how long it took, what it made the API do, and the transactions of its stack's whole life."""

    seconds: float
    account: Account
    queries: int


def main() -> int:
    options = _options()
    try:
        with bench_world(latency_ms=options.latency_ms, durable=not options.fast) as world:
            numbers, notes = _measured(world, options)
    except PlaylaneError as error:
        print(f"bench: {error}\nlogs are in {LOGS}", file=sys.stderr)
        return FAILED
    print_numbers("receipts: scalar calls made, and answered by their receipts", numbers, notes)
    return 0


def _measured(world: World, options: argparse.Namespace) -> tuple[dict[str, float | None], list[str]]:
    counts = Counts(rows=options.rows_workers, lanes=options.lanes_workers)
    workload = write_workload(world.folder, options.rows)
    made = _timed(world, counts, workload)
    wrong = complaint(made.account, workload)
    if wrong is not None:
        raise BenchFailedError(wrong)
    recovered = _timed(world, counts, workload)
    if recovered.account.requests or recovered.account.charged:
        raise BenchFailedError(
            f"the rerun made {recovered.account.requests} requests; receipts should answer all"
        )
    if recovered.queries > options.rows * QUERIES_A_ROW:
        raise BenchFailedError(
            f"the rerun took {recovered.queries} queries for {options.rows} rows: its reads are not in bulk"
        )
    ratio = made.seconds / recovered.seconds
    notes = [
        *world.notes,
        playlane_run.described(counts),
        f"{options.rows:,} rows; processes start anew for each run, with {WARM_ROWS} rows of warm-up",
        f"made:      {made.seconds:6.2f} s, {made.account.requests:,} requests, {made.queries:,} queries",
        f"recovered: {recovered.seconds:6.2f} s, no request, {recovered.queries:,} queries",
        f"goal: {GOAL_RATIO:g} times faster{'' if ratio >= GOAL_RATIO else ' (MISSED)'}",
    ]
    numbers = {
        "made_per_s": round(options.rows / made.seconds, 1),
        "recovered_per_s": round(options.rows / recovered.seconds, 1),
        "ratio": round(ratio, 2),
    }
    return numbers, notes


def _timed(world: World, counts: Counts, workload: Workload) -> Timed:
    """Processes end before queries are counted, for then each has told the database of all of its own."""
    with playlane_run.ready(world, play=PLAY, counts=counts) as run_rows:
        run_rows(write_workload(world.folder, WARM_ROWS))
        clear_ledger(world.api_url)
        before = _queries(world)
        gc.collect()
        started = time.perf_counter()
        run_rows(workload)
        seconds = time.perf_counter() - started
        account = read_account(world.api_url)
    return Timed(seconds=seconds, account=account, queries=_queries(world) - before)


def _queries(world: World) -> int:
    with psycopg.connect(world.servers.database_url) as connection:
        (transactions,) = connection.execute(TRANSACTIONS).fetchone() or (0,)
    return transactions


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.receipts",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--latency-ms", type=float, default=20.0, help="of the provider, per request")
    parser.add_argument("--fast", action="store_true", help="Postgres without fsync")
    parser.add_argument("--rows-workers", type=int, default=2)
    parser.add_argument("--lanes-workers", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("bench: interrupted; nothing is left running")
