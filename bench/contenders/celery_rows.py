"""The peer: stock Celery, one task per row."""

import functools
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import psycopg

from bench.contenders import celery_app
from bench.contenders.tables import make_tables
from bench.measuring import BenchFailedError, RunRows
from bench.workload import Workload, read_items
from bench.world import World
from workers.stack.supervisor import Supervisor

BROKER_DATABASE = 9  # apart from playlane's, which are the first three
COUNT_EVERY_S = 0.05
MAX_WAIT_S = 300.0
READY_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CelerySetup:
    """`concurrency` threads or forks in each of `processes` workers."""

    processes: int = 2
    concurrency: int = 16
    pool: str = "threads"

    @property
    def described(self) -> str:
        size = f"{self.processes} x {self.concurrency} {self.pool}"
        return f"stock Celery, {size}: a task, a single call and an upsert a row; events on, results off"


@contextmanager
def ready(world: World, setup: CelerySetup) -> Iterator[RunRows]:
    """Tables made and workers up, on a Redis database of their own."""
    make_tables(world.servers.database_url)
    broker_url = _broker_url(world.servers.redis_url)
    celery_app.app.conf.update(broker_url=broker_url)
    with Supervisor() as supervisor:
        for number in range(1, setup.processes + 1):
            _spawn(supervisor, world, setup, broker_url, f"celery-{number}")
        yield functools.partial(_run, world=world, supervisor=supervisor)


def _broker_url(redis_url: str) -> str:
    return urlunsplit(urlsplit(redis_url)._replace(path=f"/{BROKER_DATABASE}"))


def _spawn(supervisor: Supervisor, world: World, setup: CelerySetup, broker_url: str, name: str) -> None:
    command = [
        *(sys.executable, "-m", "celery", "-A", "bench.contenders.celery_app", "worker"),
        *("--pool", setup.pool, "--concurrency", str(setup.concurrency), "--hostname", f"{name}@%h"),
        *("--loglevel", "info", "--without-gossip", "--without-mingle", "--without-heartbeat"),
    ]
    env = {
        **world.env,
        celery_app.BROKER_VARIABLE: broker_url,
        celery_app.DATABASE_VARIABLE: world.servers.database_url,
        celery_app.API_VARIABLE: world.api_url,
        celery_app.CONNECTIONS_VARIABLE: str(setup.concurrency if setup.pool == "threads" else 1),
    }
    supervisor.spawn(
        name,
        command,
        env=env,
        quiet=True,
        log=world.logs / f"{name}.log",
        ready_line=" ready.",
        ready_timeout_s=READY_S,
    )


def _run(workload: Workload, *, world: World, supervisor: Supervisor) -> None:
    with celery_app.app.producer_or_acquire() as producer:
        for item in read_items(workload.file):
            celery_app.app.send_task(celery_app.TASK, (workload.tag, item), producer=producer)
    with psycopg.connect(world.servers.database_url, autocommit=True) as connection:
        _wait_for_rows(connection, workload, supervisor)


def _wait_for_rows(connection: psycopg.Connection, workload: Workload, supervisor: Supervisor) -> None:
    deadline = time.monotonic() + MAX_WAIT_S
    while (written := _count(connection, workload.tag)) < workload.rows:
        if not supervisor.pids() or time.monotonic() > deadline:
            raise BenchFailedError(
                f"celery wrote {written} of {workload.rows} rows and no more: see its workers' logs"
            )
        time.sleep(COUNT_EVERY_S)


def _count(connection: psycopg.Connection, run_id: str) -> int:
    counted = connection.execute("select count(*) from bench_rows where run_id = %s", (run_id,)).fetchone()
    return int(counted[0]) if counted else 0
