"""One contender measured: warm-up, then one timed run over fresh items, then the ledger's word on it."""

import gc
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import psycopg
from psycopg import sql

from bench.ledger import Account, clear_ledger, complaint, read_account
from bench.workload import Workload, write_workload
from bench.world import World
from runtime.errors import PlaylaneError

RunRows = Callable[[Workload], None]

RIGHT_VALUES = """
select count(distinct data ->> 'value') from {table} where starts_with(data ->> 'value', %s)
"""


class BenchFailedError(PlaylaneError):
    """A contender did not do what it was measured for; its number would mean nothing."""

    code = "bench_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """`ready` yields a function that returns once every row of a workload is written to `table`."""

    name: str
    table: str
    setup: str
    rows: int
    batch_size: int  # items that one of its requests may hold
    ready: Callable[[World], AbstractContextManager[RunRows]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    name: str
    setup: str
    rows: int
    batch_size: int
    seconds: float
    account: Account

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds

    @property
    def fill(self) -> float | None:
        """Items against what its requests could have held; None where each holds one."""
        requests = self.account.requests
        return self.account.items / (requests * self.batch_size) if requests and self.batch_size > 1 else None


def measure(contender: Contender, world: World, *, warm_rows: int, repeats: int = 1) -> Measurement:
    """The median of `repeats` runs.

    Raises BenchFailedError unless each item was charged once and its right value is in the table.
    """
    with contender.ready(world) as run_rows:
        run_rows(write_workload(world.folder, warm_rows))
        return median([_measure_once(contender, world, run_rows) for _ in range(repeats)])


def median(measurements: Sequence[Measurement]) -> Measurement:
    """The one in the middle by rate; of an even number the slower."""
    return sorted(measurements, key=lambda one: one.rows_per_s)[(len(measurements) - 1) // 2]


def _measure_once(contender: Contender, world: World, run_rows: RunRows) -> Measurement:
    workload = write_workload(world.folder, contender.rows)
    clear_ledger(world.api_url)
    gc.collect()
    started = time.perf_counter()
    run_rows(workload)
    seconds = time.perf_counter() - started
    account = read_account(world.api_url)
    wrong = complaint(account, workload) or _missing_values(contender, world, workload)
    if wrong is not None:
        raise BenchFailedError(f"{contender.name}: {wrong}")
    return Measurement(
        name=contender.name,
        setup=contender.setup,
        rows=contender.rows,
        batch_size=contender.batch_size,
        seconds=seconds,
        account=account,
    )


def _missing_values(contender: Contender, world: World, workload: Workload) -> str | None:
    query = sql.SQL(RIGHT_VALUES).format(table=sql.Identifier(contender.table))
    with psycopg.connect(world.servers.database_url) as connection:
        (right,) = connection.execute(query, (f"v:{workload.tag}-",)).fetchone() or (0,)
    return None if right == workload.rows else f"{right} of {workload.rows} rows hold their right value"
