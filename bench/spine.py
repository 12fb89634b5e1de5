"""`python -m bench.spine`: one batched call a row; playlane beside Celery and a hand-written process."""

import argparse
import sys
from functools import partial

from bench.contenders import celery_rows, floor, playlane_run
from bench.measuring import Contender, Measurement, measure
from bench.report import print_report, spine_numbers
from bench.world import LOGS, bench_world
from runtime.errors import PlaylaneError
from workers.stack.stack import Counts

MAX_BATCH_SIZE = 100
WARM_ROWS = 500
NAMES = ("floor", "celery", "celery-2", "playlane")


def main() -> int:
    options = _options()
    notes: list[str] = []
    done: list[Measurement] = []
    failure: PlaylaneError | None = None
    try:
        with bench_world(latency_ms=options.latency_ms, durable=not options.fast) as world:
            notes += world.notes
            for contender in _contenders(options):
                done.append(measure(contender, world, warm_rows=WARM_ROWS, repeats=options.repeats))
    except PlaylaneError as error:
        failure = error
    if done:
        notes.append(f"each after a warm-up of {WARM_ROWS} rows; median of {options.repeats}")
        numbers = spine_numbers({one.name: one.rows_per_s for one in done})
        print_report("spine: one batched call a row", done, notes, numbers)
    if failure is not None:
        print(f"bench: {failure}\nlogs are in {LOGS}", file=sys.stderr)
    return 0 if failure is None else 1


def _contenders(options: argparse.Namespace) -> list[Contender]:
    """In the order in which they run: playlane last, its processes are up only while it is measured."""
    plain = celery_rows.CelerySetup(
        processes=options.celery_processes, concurrency=options.celery_concurrency, pool=options.celery_pool
    )
    # The same peer spread over both cores, as the best that was found for it here; in the table beside the plain one.
    spread = celery_rows.CelerySetup(processes=2, concurrency=16, pool=options.celery_pool)
    counts = Counts(rows=options.rows_workers, lanes=options.lanes_workers)
    all_of_them = (
        Contender(
            name="floor",
            table="bench_rows",
            setup=floor.SETUP,
            rows=options.rows,
            batch_size=floor.BATCH_ROWS,
            ready=floor.ready,
        ),
        _celery("celery", plain, options),
        _celery("celery-2", spread, options),
        Contender(
            name="playlane",
            table="sheet_rows",
            setup=playlane_run.described(counts),
            rows=options.rows,
            batch_size=MAX_BATCH_SIZE,
            ready=partial(playlane_run.ready, play="bench_spine", counts=counts),
        ),
    )
    return [contender for contender in all_of_them if contender.name in options.only]


def _celery(name: str, setup: celery_rows.CelerySetup, options: argparse.Namespace) -> Contender:
    return Contender(
        name=name,
        table="bench_rows",
        setup=setup.described,
        rows=options.celery_rows,
        batch_size=1,
        ready=partial(celery_rows.ready, setup=setup),
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.spine",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--rows", type=_positive, default=10_000)
    parser.add_argument("--celery-rows", type=_positive, default=2_000, help="its rate doesn't depend on it")
    parser.add_argument("--repeats", type=_positive, default=3, help="timed runs of each; the median counts")
    parser.add_argument("--latency-ms", type=float, default=20.0, help="of the provider, per request")
    parser.add_argument("--fast", action="store_true", help="Postgres without fsync, for all contenders")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=list(NAMES), help="contenders to run")
    parser.add_argument("--rows-workers", type=_positive, default=2, help="playlane's row processes")
    parser.add_argument("--lanes-workers", type=_positive, default=1, help="playlane's lane processes")
    parser.add_argument("--celery-processes", type=_positive, default=1)
    parser.add_argument("--celery-concurrency", type=_positive, default=32, help="threads or forks in each")
    parser.add_argument("--celery-pool", choices=("threads", "prefork"), default="threads")
    options = parser.parse_args()
    options.celery_rows = min(options.celery_rows, options.rows)
    return options


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not at least 1")
    return number


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("bench: interrupted; nothing is left running")
