"""How many child plays ended is told with what is kept of them: once, of rows and of bodies."""

from typing import Any

from runtime.engine.body_attempt import DriveEnd
from runtime.model.events import ChildPlaysEnded, Event
from runtime.play import PlayRegistry, define
from tests.property.test_cut_rows import Rows, sheet_of
from tests.unit.body_world import RUN, World, bridge, runner


class Told:
    def __init__(self) -> None:
        self.counts: list[tuple[int, int]] = []

    def emit(self, run_id: str, event: Event) -> None:
        if isinstance(event, ChildPlaysEnded):
            self.counts.append((event.ok, event.failed))

    @property
    def total(self) -> tuple[int, int]:
        return sum(ok for ok, _ in self.counts), sum(failed for _, failed in self.counts)


def test_children_of_a_body_with_those_inside_them() -> None:
    async def leaf(ctx: Any, input: Any) -> Any:
        if input == "bad":
            raise ValueError("no")
        return input

    async def child(ctx: Any, input: Any) -> Any:
        return [await ctx.run_play("leaf", "leaf", 1), await ctx.run_play("leaf", "leaf", 2)]

    async def it(ctx: Any, input: Any) -> Any:
        found = await ctx.run_play("c", "child", {})
        await ctx.sleep(60)
        try:
            await ctx.run_play("bad", "leaf", "bad")
        except Exception:
            return found

    registry, told, world = PlayRegistry(), Told(), World()
    for name, function in {"it": it, "child": child, "leaf": leaf}.items():
        registry.add(define(name, function))
    with bridge() as on:
        body = runner(world, it, on, registry=registry, events=told)
        assert body.drive(RUN) is DriveEnd.WAITING
        assert told.counts == [(3, 0)]
        world.sleep_until_due()
        assert body.drive(RUN) is DriveEnd.ENDED
    assert told.counts == [(3, 0), (0, 1)]


def test_children_of_rows_that_ended() -> None:
    told = Told()
    sheet_of(Rows(("one by one", ["child", "sleep", "child"])), [], told)
    assert told.total == (8, 0), "a row that waits runs its children again, and tells them once"
