"""A small run beside a large one on the same lane: how much longer it takes than alone."""

import statistics
import time
from dataclasses import dataclass

from bench.ledger import read_account
from bench.measuring import BenchFailedError
from bench.workload import write_workload
from bench.world import World
from runtime.client import PlayClient
from runtime.model.run import ENDED_RUNS, RunState

SMALL_ROWS = 10
LARGE_ROWS = 100_000  # more than a lane makes while this is measured
UNDER_WAY = 100  # requests of the large run before the small one starts
WAIT_S = 120.0
POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Fairness:
    """Seconds of the small run, medians."""

    alone_s: float
    beside_s: float

    @property
    def ratio(self) -> float:
        return self.beside_s / self.alone_s


def measure_fairness(world: World, *, play: str, repeats: int) -> Fairness:
    """Small runs alone, then behind a large run that fills the lane, which is cancelled in the end."""
    servers = world.servers
    with PlayClient(database_url=servers.database_url, redis_url=servers.redis_url) as client:
        alone = [_small_run(client, world, play) for _ in range(repeats)]
        large = client.enqueue(play, {"file": str(write_workload(world.folder, LARGE_ROWS).file)})
        _under_way(world)
        beside = [_small_run(client, world, play) for _ in range(repeats)]
        if client.status(large).state in ENDED_RUNS:
            raise BenchFailedError("the large run did not last as long as the small ones were measured")
        client.cancel(large)
        client.wait(large, WAIT_S)
    return Fairness(alone_s=statistics.median(alone), beside_s=statistics.median(beside))


def _small_run(client: PlayClient, world: World, play: str) -> float:
    workload = write_workload(world.folder, SMALL_ROWS)
    started = time.perf_counter()
    run_id = client.enqueue(play, {"file": str(workload.file)})
    status = client.wait(run_id, WAIT_S, poll_s=POLL_S)
    if status.state is not RunState.COMPLETED:
        raise BenchFailedError(f"playlane: run {run_id} ended {status.state}: {status.error}")
    return time.perf_counter() - started


def _under_way(world: World) -> None:
    deadline = time.monotonic() + WAIT_S
    seen = read_account(world.api_url).requests
    while read_account(world.api_url).requests < seen + UNDER_WAY:
        if time.monotonic() > deadline:
            raise BenchFailedError(f"the large run made no {UNDER_WAY} requests within {WAIT_S:g} s")
        time.sleep(0.1)
