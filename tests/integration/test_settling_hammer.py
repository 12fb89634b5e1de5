"""Many connections settle, claim, take, write and end the same dataset at once, and everything happens once.

Triggers audit every move in the database itself, so that no reader's timing can hide a double one.
"""

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from runtime.model import json_value
from runtime.model.dataset import NewDataset, SeedPage, SeedRow
from runtime.model.row import FinishedRow, RowState
from runtime.model.row_wait import RowWait, WaitKind
from runtime.model.run import NewRun, RunState
from runtime.model.slice import SliceId, TakenSlice
from runtime.policy.limits import Limits
from runtime.ports import RowWrite, SliceRows
from runtime.postgres_store.datasets import PostgresDatasets
from runtime.postgres_store.pool import Pool, open_pool
from runtime.postgres_store.runs import PostgresRuns
from runtime.postgres_store.sessions import PostgresSessions
from runtime.postgres_store.settling import PostgresSettling
from runtime.postgres_store.slices import PostgresSlices

LIMITS = Limits(slice_rows=3, slices_per_page=2, pages_in_flight=4)
PAGES = 60
WORKERS = 8


class Fleet:
    """Eight workers over one pool, each with its own random order."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.sessions = PostgresSessions(pool, LIMITS)
        self.runs = PostgresRuns(pool, LIMITS)
        self.datasets = PostgresDatasets(pool, LIMITS)
        self.settling = PostgresSettling(pool, LIMITS)
        self.slices = PostgresSlices(pool, LIMITS)
        self.dataset_id = 0
        self.ends = 0
        self.waits = False

    async def audit(self) -> Counter[str]:
        async with self.pool.connection() as connection:
            cursor = await connection.execute("select what, count(*) from audit group by what")
            return Counter(dict(await cursor.fetchall()))

    async def query(self, statement: bytes) -> tuple[object, ...] | None:
        async with self.pool.connection() as connection:
            return await (await connection.execute(statement)).fetchone()

    async def seed(self) -> None:
        for worker in range(WORKERS):
            await self.sessions.open(f"w{worker}", role="rows", hostname="h", pid=1, ttl_s=60)
        await self.runs.insert(NewRun(run_id="r1", org_id="o", play="p", input=None))
        await self.runs.claim("r1", "w0")
        new = NewDataset(run_id="r1", key="d", namespace="d", columns=("c",), source_hash="h")
        self.dataset_id = (await self.datasets.open(new, 1, "dataset:d")).dataset_id
        for page in range(PAGES):
            first = page * LIMITS.page_rows
            positions = range(first, first + LIMITS.page_rows)
            await self.datasets.seed_page(
                SeedPage(
                    dataset_id=self.dataset_id,
                    run_id="r1",
                    attempt=1,
                    page=page,
                    first_position=first,
                    end_position=first + LIMITS.page_rows,
                    rows=tuple(SeedRow(position=at, row_key=f"k{at}", input=b"{}") for at in positions),
                    input_digest="x",
                )
            )
        await self.datasets.finish_seeding(self.dataset_id, 1)
        assert await self.runs.suspend("r1", 1, 0)

    async def work(self, worker: int) -> None:
        order = random.Random(worker)
        while not self.ends:
            pages = await self.settling.claim_pages(self.dataset_id)
            stale = await self.settling.stale_pages("e", queue_empty=False)
            for page in {*pages, *(page for _, _, page in stale), order.randrange(PAGES)}:
                await self.settling.due_slices(self.dataset_id, page, "e", queue_empty=False)
                await self.run_slices(worker, page, order)
                await self.settling.settle_page(self.dataset_id, page)
            if self.waits:
                for woken in [*await self.settling.wake_rows(), *await self.settling.wake_budget("r1")]:
                    await self.settling.settle_page(self.dataset_id, woken.page)
            if await self.settling.end_dataset(self.dataset_id):
                self.ends += 1

    async def run_slices(self, worker: int, page: int, order: random.Random) -> None:
        numbers = [0, 1]
        order.shuffle(numbers)
        for number in numbers:
            slice_id = SliceId(dataset_id=self.dataset_id, page=page, slice=number)
            taken = await self.slices.take("r1", slice_id, f"w{worker}")
            if taken is None:
                continue
            if order.random() < 0.2:
                await self.slices.release([(slice_id, taken.fence)])
            part = rows_of(taken, order if self.waits else None)
            answer = await self.slices.flush(RowWrite(session_id=f"w{worker}", slices=(part,)))
            if slice_id not in answer.done | answer.lost:
                await self.slices.release([(slice_id, taken.fence)])


KINDS = (WaitKind.LANE, WaitKind.SLEEP, WaitKind.BUDGET)


def rows_of(taken: TakenSlice, order: random.Random | None = None) -> SliceRows:
    """Its rows, ended; with `order` about a third of them wait instead."""
    rows = tuple(
        FinishedRow(
            position=row.position,
            row_key=row.row_key,
            state=RowState.WAITING,
            data=b"",
            cell_meta=b"",
            wait=RowWait(kind=order.choice(KINDS), due_ms=order.random() * 20),
        )
        if order and order.random() < 0.35
        else FinishedRow(
            position=row.position,
            row_key=row.row_key,
            state=RowState.COMPLETED,
            data=json_value.dumps({"c": row.row_key}),
            cell_meta=b"{}",
        )
        for row in taken.rows
    )
    return SliceRows(id=taken.id, fence=taken.fence, facts=taken.facts, rows=rows, final=True)


@pytest.fixture
async def fleet(database_url: str):
    pool = open_pool(database_url, LIMITS)
    await pool.open()
    async with pool.connection() as connection:
        await connection.execute((Path(__file__).parent / "settling_audit.sql").read_bytes())
    made = Fleet(pool)
    await made.seed()
    try:
        yield made
    finally:
        await pool.close()


async def test_everything_happens_once(fleet: Fleet) -> None:
    await asyncio.wait_for(asyncio.gather(*(fleet.work(worker) for worker in range(WORKERS))), 30)
    rows = PAGES * LIMITS.page_rows
    assert fleet.ends == 1
    assert await fleet.audit() == {
        "row ended": rows,
        "page cut": PAGES,
        "page settled": PAGES,
        "dataset settled": 1,
        "run claimed": 1,
    }
    assert await fleet.query(b"select sum(completed), sum(failed) from dataset_counts") == (rows, 0)
    assert await fleet.query(b"select wakes, state from runs") == (1, "waiting")
    assert await fleet.query(
        b"select count(*) from slices where state <> 'done' or session_id is not null"
    ) == (0,)


async def test_rows_that_wait_and_wake_at_random_end_once(fleet: Fleet) -> None:
    """Pages park and come back, slices open again under whoever holds them, and nothing is lost or done twice."""
    fleet.waits = True
    await asyncio.wait_for(asyncio.gather(*(fleet.work(worker) for worker in range(WORKERS))), 60)
    rows = PAGES * LIMITS.page_rows
    assert await fleet.audit() == {
        "row ended": rows,
        "page cut": PAGES,
        "page settled": PAGES,
        "dataset settled": 1,
        "run claimed": 1,
    }
    assert await fleet.query(b"select sum(completed), sum(failed) from dataset_counts") == (rows, 0)
    assert await fleet.query(b"select count(*) from row_waits") == (0,)
    assert await fleet.query(b"select pages_parked from datasets") == (0,)


@pytest.mark.parametrize("waits", [False, True])
async def test_a_run_cancelled_in_the_middle_leaves_nothing_open(fleet: Fleet, waits: bool) -> None:
    fleet.waits = waits

    async def cancel() -> None:
        while (await fleet.audit())["page settled"] < PAGES // 3:
            await asyncio.sleep(0)
        assert await fleet.runs.cancel("r1") is RunState.CANCELLED
        fleet.ends = 1

    await asyncio.wait_for(asyncio.gather(cancel(), *(fleet.work(worker) for worker in range(WORKERS))), 30)
    while stale := await fleet.settling.stale_pages("e", queue_empty=False):
        for _, dataset_id, page in stale:
            await fleet.settling.settle_page(dataset_id, page)
    audit = await fleet.audit()
    assert {what for what in audit if what.isupper()} == set()
    assert audit["row ended"] == PAGES * LIMITS.page_rows
    assert await fleet.query(b"select count(*) from run_rows where state in ('pending', 'waiting')") == (0,)
    assert await fleet.query(b"select count(*) from row_waits") == (0,)
    assert await fleet.query(b"select sum(completed + cancelled) from dataset_counts") == (
        PAGES * LIMITS.page_rows,
    )
    assert await fleet.query(b"select count(*) from pages where state <> 'settled'") == (0,)
    assert await fleet.query(b"select state, winding from datasets") == ("cancelled", False)


async def test_suspending_never_loses_a_wake(fleet: Fleet) -> None:
    """Each round a timer comes due while the body suspends: one of the two sees the other."""
    for round_ in range(30):
        run_id = f"t{round_}"
        await fleet.runs.insert(NewRun(run_id=run_id, org_id="o", play="p", input=None))
        await fleet.runs.claim(run_id, "w0")
        await fleet.runs.arm_timer(run_id, 1, "timer:0", 0)
        suspended, _ = await asyncio.gather(fleet.runs.suspend(run_id, 1, 0), fleet.settling.resolve_timers())
        if suspended:
            await fleet.settling.resolve_timers()
            assert await fleet.runs.claim(run_id, "w1") is not None
        else:
            assert (await fleet.runs.poll(run_id, 1)).wakes == 1


async def test_one_of_many_resumes_gets_the_run(fleet: Fleet) -> None:
    for round_ in range(20):
        run_id = f"c{round_}"
        await fleet.runs.insert(NewRun(run_id=run_id, org_id="o", play="p", input=None))
        claims = await asyncio.gather(*(fleet.runs.claim(run_id, f"w{worker}") for worker in range(WORKERS)))
        assert sum(claim is not None for claim in claims) == 1
