"""Rows that sleep and wait for events: their turn ends, and what had ended is passed when they run again."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from runtime.context.scope import current_scope
from runtime.context.waits import event_ask, sleep_ask
from runtime.engine.event_delivery import EventDelivery
from runtime.engine.row_writer import RowWriter, SliceEnd
from runtime.engine.settling import Settling
from runtime.engine.slice_run import RowProgram, SliceRunner
from runtime.faults import no_fault
from runtime.model.boundary import Event
from runtime.model.row import RowState
from runtime.model.slice import SliceId
from runtime.play import Column
from runtime.policy.limits import Limits
from tests.contract.memory_world import memory_world
from tests.contract.stores_world import LIMITS, StoresWorld
from tests.unit.test_slice_waits import Calls, Epoch, Published

FAST = replace(LIMITS, row_rest_ms=1.0, row_short_sleep_s=0.001)


async def sleep(seconds: float, id: str = "sleep") -> None:
    scope = current_scope.get()
    assert scope is not None
    await scope.perform(sleep_ask(seconds, id, FAST))


async def event(id: str, key: str | None = None, timeout: float = 600, on_timeout: Any = "error") -> Any:
    scope = current_scope.get()
    assert scope is not None
    return await scope.perform(event_ask(id, key, timeout, on_timeout, FAST))


async def tool(input: str) -> Any:
    scope = current_scope.get()
    assert scope is not None
    return await scope.tool(id="x", tool="t", input=input)


class Stage:
    def __init__(self, world: StoresWorld, calls: Any) -> None:
        self.world = world
        self.published = Published()
        epoch: Any = Epoch()
        self.settling = Settling(world.settling, self.published, epoch, no_fault)
        self.events = EventDelivery(waits=world.waits, settling=self.settling, publisher=self.published)
        writer = RowWriter(
            world.slices,
            session_id="s1",
            limits=FAST,
            fault=no_fault,
            take_usage=tuple,
            give_back_usage=lambda usage: None,
        )
        self.runner = SliceRunner(
            store=world.slices,
            writer=writer,
            calls=calls,
            session_id="s1",
            limits=FAST,
            fault=no_fault,
            waits=world.waits,
        )
        self.dataset_id = 0
        self.turns: list[str] = []

    async def run_due(self, resolver: Callable[..., Any]) -> list[str]:
        """Run what is sent; how its slices ended."""

        async def found(row: Any, ctx: Any) -> Any:
            self.turns.append(row["k"])
            return await resolver(row)

        ends: list[str] = []
        while self.published.pages:
            page = self.published.pages.pop(0)
            for number in page.slices:
                slice_id = SliceId(dataset_id=self.dataset_id, page=page.page, slice=number)
                taken = await self.runner.take("r1", slice_id)
                assert taken is not None
                program = RowProgram(columns=(Column("found", found),), ctx=None)
                ends.append(await self.runner.run(taken, program))
                await self.settling.settle("r1", self.dataset_id, page.page)
        return ends

    async def later(self, seconds: float) -> None:
        await self.world.age(seconds)
        await self.world.sessions.renew("s1", 60)
        await self.settling.wake()

    async def tell(self, key: str, payload: Any, event_id: str = "e1") -> None:
        await self.events.deliver(Event(org_id="org", event_id=event_id, key=key, payload=payload))

    async def cells(self) -> dict[str, Any]:
        return {key: data["found"] for key, data in (await self.world.sheet("org", "play", "sheet")).items()}


async def staged(calls: Any = None, limits: Limits = LIMITS) -> Stage:
    world = memory_world(limits)
    stage = Stage(world, calls or Calls({}))
    stage.dataset_id = await world.seeded(1)
    await stage.settling.advance(stage.dataset_id)
    return stage


async def test_a_row_sleeps_outside_its_slice_and_wakes_once() -> None:
    stage = await staged()

    async def resolver(row: Any) -> Any:
        if row["k"] == "k0":
            await sleep(60)
            await sleep(60)
        return "up"

    assert await stage.run_due(resolver) == [SliceEnd.WAITS, SliceEnd.DONE]
    assert stage.runner.held() == 0
    await stage.later(59)
    assert stage.published.pages == []
    await stage.later(2)
    assert await stage.run_due(resolver) == [SliceEnd.WAITS]
    await stage.later(61)
    assert await stage.run_due(resolver) == [SliceEnd.DONE]
    assert stage.turns.count("k0") == 3
    assert await stage.cells() == dict.fromkeys(("k0", "k1", "k2", "k3"), "up")


async def test_a_row_whose_input_is_read_later_wakes_once_too() -> None:
    stage = await staged(limits=replace(LIMITS, slice_read_bytes=1))

    async def resolver(row: Any) -> Any:
        await sleep(60)
        return "up"

    await stage.run_due(resolver)
    await stage.later(61)
    assert await stage.run_due(resolver) == [SliceEnd.DONE, SliceEnd.DONE]
    assert len(stage.turns) == 8


async def test_a_short_sleep_stays_in_its_slot() -> None:
    stage = await staged()

    async def resolver(row: Any) -> Any:
        return await sleep(0.001)

    assert await stage.run_due(resolver) == [SliceEnd.DONE, SliceEnd.DONE]


async def test_an_event_wakes_every_row_that_waits_for_it() -> None:
    stage = await staged()

    async def resolver(row: Any) -> Any:
        return await event("go")

    assert await stage.run_due(resolver) == [SliceEnd.WAITS, SliceEnd.WAITS]
    await stage.tell("go", {"yes": True})
    await stage.tell("go", {"yes": False})
    assert await stage.run_due(resolver) == [SliceEnd.DONE, SliceEnd.DONE]
    assert await stage.cells() == {key: {"yes": True} for key in ("k0", "k1", "k2", "k3")}
    assert len(stage.turns) == 8


async def test_an_event_that_came_first_is_met_at_once() -> None:
    stage = await staged()
    await stage.tell("go", 1)

    async def resolver(row: Any) -> Any:
        return await event("go")

    assert await stage.run_due(resolver) == [SliceEnd.WAITS, SliceEnd.WAITS]
    await stage.settling.wake()
    assert await stage.run_due(resolver) == [SliceEnd.DONE, SliceEnd.DONE]


async def test_waits_and_calls_asked_together_wait_together() -> None:
    calls = Calls({})
    stage = await staged(calls)

    async def resolver(row: Any) -> Any:
        parts = await asyncio.gather(event("a"), tool(row["k"]), sleep(60), event("b"))
        return [parts[0], parts[1], parts[3]]

    await stage.run_due(resolver)
    await stage.tell("b", 2, "e2")
    await stage.tell("a", 1, "e1")
    await stage.run_due(resolver)
    assert await stage.cells() == {}
    await stage.later(61)
    assert set(await stage.run_due(resolver)) == {SliceEnd.DONE}
    assert await stage.cells() == {k: [1, f"v:{k}", 2] for k in ("k0", "k1", "k2", "k3")}


async def test_a_wait_that_times_out_fails_its_row_or_gives_none() -> None:
    stage = await staged()

    async def resolver(row: Any) -> Any:
        return await event("go", timeout=60, on_timeout="none" if row["k"] == "k0" else "error")

    await stage.run_due(resolver)
    await stage.later(61)
    await stage.run_due(resolver)
    rows = await stage.world.rows(stage.dataset_id)
    assert [rows[at].state for at in range(4)] == [RowState.COMPLETED, *[RowState.FAILED] * 3]


async def test_a_swallowed_wait_is_still_a_wait() -> None:
    stage = await staged()

    async def resolver(row: Any) -> Any:
        try:
            await sleep(60)
        except BaseException:
            return "swallowed"
        return "slept"

    await stage.run_due(resolver)
    assert await stage.cells() == {}
    await stage.later(61)
    await stage.run_due(resolver)
    assert set((await stage.cells()).values()) == {"slept"}


async def test_a_call_that_waits_for_its_lane_keeps_a_sleep_beside_it_running() -> None:
    stage = await staged(Calls({"k0": 30_000.0}))

    async def resolver(row: Any) -> Any:
        if row["k"] == "k0":
            await asyncio.gather(sleep(60), tool("k0"))
        return 1

    await stage.run_due(resolver)
    await stage.later(31)
    await stage.run_due(resolver)
    await stage.later(30)
    await stage.run_due(resolver)
    assert (await stage.cells())["k0"] == 1


async def test_a_wait_given_up_by_its_row_does_not_end_the_turn() -> None:
    stage = await staged()

    async def resolver(row: Any) -> Any:
        task = asyncio.ensure_future(sleep(60))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return "went on"

    assert set(await stage.run_due(resolver)) == {SliceEnd.DONE}


@pytest.mark.parametrize("n", range(3))
async def test_equal_waits_of_a_row_are_told_apart(n: int) -> None:
    stage = await staged()
    for at in range(3):
        await stage.tell("next", at, f"e{at}")

    async def resolver(row: Any) -> Any:
        return [await event("next") for _ in range(n + 1)]

    for _ in range(n + 2):
        await stage.run_due(resolver)
        await stage.settling.wake()
    assert set(map(str, (await stage.cells()).values())) == {str(list(range(n + 1)))}
