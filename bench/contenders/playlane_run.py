"""playlane itself: the product's own stack of processes, every guarantee on."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager

from bench.measuring import BenchFailedError, RunRows
from bench.workload import Workload
from bench.world import World
from runtime.client import PlayClient
from runtime.model.run import RunState
from workers.stack.stack import MODULES_VARIABLE, Counts, start_stack
from workers.stack.supervisor import Supervisor

MODULES = "bench.plays"
MAX_WAIT_S = 120.0
POLL_S = 0.05


def described(counts: Counts) -> str:
    processes = f"control {counts.control}, plays {counts.plays}, rows {counts.rows}, lanes {counts.lanes}"
    return f"processes: {processes}; journal, receipts, leases, fenced writes on"


@contextmanager
def ready(world: World, *, play: str, counts: Counts) -> Iterator[RunRows]:
    """Database migrated and all processes ready; no Flower."""
    with Supervisor() as supervisor:
        start_stack(
            supervisor,
            world.servers,
            counts=counts,
            flower=False,
            api=False,
            quiet=True,
            logs=world.logs,
            env={**world.env, MODULES_VARIABLE: MODULES},
        )
        servers = world.servers
        with PlayClient(database_url=servers.database_url, redis_url=servers.redis_url) as client:
            yield functools.partial(_run, client=client, play=play)


def _run(workload: Workload, *, client: PlayClient, play: str) -> None:
    run_id = client.enqueue(play, {"file": str(workload.file)})
    status = client.wait(run_id, MAX_WAIT_S, poll_s=POLL_S)
    if status.state is not RunState.COMPLETED:
        raise BenchFailedError(f"playlane: run {run_id} ended {status.state}: {status.error}")
