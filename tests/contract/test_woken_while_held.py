"""A row whose wait is over goes on while other rows of its slice still run: in the same holding, once, whoever dies."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from runtime.context.scope import current_scope
from runtime.context.waits import event_ask, sleep_ask
from runtime.engine.row_writer import RowWriter, SliceEnd
from runtime.engine.slice_run import RowProgram, SliceRunner
from runtime.errors import RunHaltedError, SliceLostError
from runtime.faults import no_fault
from runtime.model.boundary import Event
from runtime.model.dataset import FAIL_FAST, DatasetState, NewDataset
from runtime.model.row import RowState
from runtime.model.row_wait import RowWait, WaitKind
from runtime.model.slice import SliceId, TakenSlice
from runtime.play import Column
from runtime.ports import RowWrite, RowWriteAnswer, SliceRows
from tests.contract.stores_world import LIMITS, StoresWorld, finished, waiting
from tests.waiting import wait_until_async as wait_until

FAST = replace(
    LIMITS,
    slice_rows=4,
    row_rest_ms=1.0,
    row_short_sleep_s=0.001,
    writer_flush_ms=5.0,
    writer_woken_s=0.02,
    writer_look_s=0.02,
)
FAR = RowWait(kind=WaitKind.LANE, due_ms=60_000.0, detail="lane fakeprov")
Resolver = Callable[[Any], Awaitable[Any]]


async def sleep(seconds: float) -> None:
    scope = current_scope.get()
    assert scope is not None
    await scope.perform(sleep_ask(seconds, "sleep", FAST))


async def event(key: str) -> Any:
    scope = current_scope.get()
    assert scope is not None
    return await scope.perform(event_ask(key, key, 600, "error", FAST))


class Stage:
    """One slice of two rows: k0 waits, k1 is slow until it is let go."""

    def __init__(self, world: StoresWorld, dataset_id: int) -> None:
        self.world = world
        self.dataset_id = dataset_id
        self.slow = asyncio.Event()
        self.turns: list[str] = []
        self.tasks: dict[str, asyncio.Task[str]] = {}

    def runner(self, session_id: str) -> SliceRunner:
        writer = RowWriter(
            self.world.slices,
            session_id=session_id,
            limits=FAST,
            fault=no_fault,
            take_usage=tuple,
            give_back_usage=lambda usage: None,
        )
        calls: Any = None
        return SliceRunner(
            store=self.world.slices,
            writer=writer,
            calls=calls,
            session_id=session_id,
            limits=FAST,
            fault=no_fault,
            waits=self.world.waits,
        )

    async def begin(self, resolver: Resolver, session_id: str = "s1", **column: Any) -> TakenSlice:
        """The slice runs in a task of this session."""

        async def made(row: Any, ctx: Any, *, previous_cell: Any) -> Any:
            self.turns.append(row["k"])
            if row["k"] == "k1":
                await self.slow.wait()
                return "slow"
            return [await resolver(row), previous_cell and previous_cell.value]

        runner = self.runner(session_id)
        taken = await runner.take("r1", SliceId(dataset_id=self.dataset_id, page=0, slice=0))
        assert taken is not None
        program = RowProgram(columns=(Column("c", made, **column),), ctx=None)
        self.tasks[session_id] = asyncio.get_running_loop().create_task(runner.run(taken, program))
        return taken

    async def state(self, position: int = 0) -> RowState:
        return (await self.world.rows(self.dataset_id))[position].state

    async def until(self, state: RowState) -> None:
        async def reached() -> bool:
            return await self.state() is state

        await wait_until(reached, what=f"k0 {state.value}")

    async def wake(self, seconds: float = 61) -> None:
        await self.world.age(seconds)
        assert len(await self.world.settling.wake_rows()) == 1

    async def end(self, session_id: str = "s1") -> str:
        self.slow.set()
        return await asyncio.wait_for(self.tasks[session_id], 10)

    async def cells(self) -> dict[str, Any]:
        return {key: data["c"] for key, data in (await self.world.sheet("org", "play", "sheet")).items()}


async def staged(world: StoresWorld, on_row_error: str = "isolate") -> Stage:
    await world.held_run()
    new = NewDataset(
        run_id="r1", key="d", namespace="sheet", columns=("c",), source_hash="h", on_row_error=on_row_error
    )
    dataset_id = (await world.datasets.open(new, 1, "dataset:d")).dataset_id
    await world.seed(dataset_id, 0, ["k0", "k1"])
    await world.datasets.finish_seeding(dataset_id, 1)
    await world.settling.claim_pages(dataset_id)
    await world.due(dataset_id, 0)
    return Stage(world, dataset_id)


async def sleeps_twice(row: Any) -> str:
    await sleep(60)
    await sleep(60)
    return "up"


async def test_a_woken_row_ends_while_its_slice_still_runs_and_waits_again_if_it_must(
    world: StoresWorld,
) -> None:
    stage = await staged(world)
    await stage.begin(sleeps_twice)
    for _ in range(2):
        await stage.until(RowState.WAITING)
        await stage.wake()
        await stage.until(RowState.WAITING if stage.turns.count("k0") < 2 else RowState.COMPLETED)
    assert (stage.turns.count("k0"), stage.turns.count("k1")) == (3, 1)
    assert await stage.state(1) is RowState.PENDING, "the slow one has not ended"
    assert await stage.end() in (SliceEnd.DONE, SliceEnd.WAITS)
    assert await stage.cells() == {"k0": ["up", None], "k1": "slow"}
    assert stage.turns.count("k1") == 1


async def test_it_sees_the_event_that_woke_it_and_what_the_sheet_holds_now(world: StoresWorld) -> None:
    stage = await staged(world)

    async def resolver(row: Any) -> Any:
        return await event("go")

    taken = await stage.begin(resolver)
    await stage.until(RowState.WAITING)
    older = SliceRows(
        id=SliceId(dataset_id=await another_run(world), page=0, slice=0),
        fence=1,
        facts=replace(taken.facts, write_version=taken.facts.write_version - 1),
        rows=(finished(0, "k0", value="theirs"),),
        final=True,
    )
    await world.slices.flush(RowWrite(session_id="s1", slices=(older,)))
    await world.waits.deliver(Event(org_id="org", event_id="e1", key="go", payload={"by": "ann"}))
    await world.settling.wake_rows()
    await stage.until(RowState.COMPLETED)
    assert (await stage.cells())["k0"] == [{"by": "ann"}, "theirs:k0"]
    assert await stage.end() in (SliceEnd.DONE, SliceEnd.WAITS)


async def another_run(world: StoresWorld) -> int:
    """A held slice of a run with the same rows, under fence 1."""
    dataset_id = await world.seeded(1, run_id="r2", key="e")
    await world.settling.claim_pages(dataset_id)
    await world.due(dataset_id, 0)
    await world.taken(dataset_id, 0, 0, run_id="r2")
    return dataset_id


async def test_a_row_that_an_earlier_holder_let_wait_goes_on_in_this_one(world: StoresWorld) -> None:
    stage = await staged(world)
    await stage.begin(sleeps_twice)
    await stage.until(RowState.WAITING)
    stage.tasks["s1"].cancel()
    await asyncio.wait(stage.tasks.values())
    await world.session("s2")
    taken = await stage.begin(sleeps_twice, "s2")
    assert [row.row_key for row in taken.rows] == ["k1"]
    await wait_until(lambda: stage.turns.count("k1") == 2)
    await stage.wake()
    await wait_until(lambda: stage.turns.count("k0") == 2)
    await stage.until(RowState.WAITING)
    assert await stage.end("s2") == SliceEnd.WAITS


async def test_a_holder_that_dies_with_a_woken_row_leaves_it_to_the_next(world: StoresWorld) -> None:
    stage = await staged(world)
    stuck = asyncio.Event()

    async def resolver(row: Any) -> str:
        await sleep(60)
        await stuck.wait()
        return "up"

    await stage.begin(resolver)
    await stage.until(RowState.WAITING)
    await stage.wake()
    await wait_until(lambda: stage.turns.count("k0") == 2)
    await world.session("s2")
    await world.kill("s1")
    taken = await stage.begin(resolver, "s2")
    assert [row.row_key for row in taken.rows] == ["k0", "k1"]
    with pytest.raises(SliceLostError):
        await asyncio.wait_for(stage.tasks["s1"], 10)
    stuck.set()
    assert await stage.end("s2") == SliceEnd.DONE
    assert await stage.cells() == {"k0": ["up", None], "k1": "slow"}


async def test_the_end_of_the_run_ends_a_woken_row_too(world: StoresWorld) -> None:
    stage = await staged(world)

    async def resolver(row: Any) -> str:
        await sleep(60)
        await asyncio.Event().wait()
        return "never"

    await stage.begin(resolver)
    await stage.until(RowState.WAITING)
    await stage.wake()
    await wait_until(lambda: stage.turns.count("k0") == 2)
    await world.runs.cancel("r1")
    assert await asyncio.wait_for(stage.tasks["s1"], 10) == SliceEnd.ENDED
    assert await stage.state() is RowState.CANCELLED
    assert await stage.cells() == {}


async def test_what_a_woken_row_raises_against_the_run_ends_the_slice(world: StoresWorld) -> None:
    stage = await staged(world)

    async def resolver(row: Any) -> str:
        await sleep(60)
        raise RunHaltedError("no credits")

    await stage.begin(resolver)
    await stage.until(RowState.WAITING)
    await stage.wake()
    with pytest.raises(RunHaltedError):
        await asyncio.wait_for(stage.tasks["s1"], 10)
    assert await stage.state(1) is RowState.PENDING


async def test_a_woken_row_that_fails_under_fail_fast_stops_the_others(world: StoresWorld) -> None:
    stage = await staged(world, FAIL_FAST)

    async def resolver(row: Any) -> str:
        await sleep(60)
        raise ValueError("no")

    await stage.begin(resolver)
    await stage.until(RowState.WAITING)
    await stage.wake()
    await stage.until(RowState.FAILED)
    assert await world.dataset_state(stage.dataset_id) is DatasetState.FAILING
    assert await stage.end() in (SliceEnd.DONE, SliceEnd.WAITS)


async def asked(world: StoresWorld, taken: TakenSlice, *rows: Any, **part: Any) -> RowWriteAnswer:
    one = SliceRows(id=taken.id, fence=taken.fence, facts=taken.facts, rows=rows, **({"final": False} | part))
    return await world.slices.flush(RowWrite(session_id="s1", slices=(one,)))


async def test_a_write_tells_of_open_rows_that_have_waited_if_it_is_asked(world: StoresWorld) -> None:
    dataset_id = (await staged(world)).dataset_id
    taken = await world.taken(dataset_id, 0, 0)
    first = waiting(0, "k0", FAR)
    assert (await asked(world, taken, first, asks_woken=True)).woken == {}, "k1 has not waited, k0 does"
    await world.age(61)
    await world.settling.wake_rows()
    assert (await asked(world, taken)).woken == {}
    told = (await asked(world, taken, asks_woken=True)).woken[taken.id]
    assert [(row.position, row.row_key) for row in told] == [(0, "k0")]
    assert told[0].size_bytes > 0
    late = replace(taken, fence=taken.fence - 1)
    assert (await asked(world, late, asks_woken=True)).woken == {}
    assert (await asked(world, taken, finished(0, "k0"), asks_woken=True)).woken == {}
