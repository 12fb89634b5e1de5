"""Contract of WaitStore: events before, between and after are never lost, and each wait ends once."""

from dataclasses import replace

import pytest

from runtime.errors import AttemptLostError, SliceLostError
from runtime.model.boundary import BodyAt, BoundaryState, Event, RowAt
from runtime.model.row import RowState
from runtime.model.row_wait import NewBoundary, RowWait, WaitKind, WokenPage
from runtime.model.run import NewRun
from runtime.model.slice import TakenSlice
from runtime.ports import RowWrite, SliceRows
from tests.contract.stores_world import StoresWorld, finished, waiting

LATE = {"error": {"code": "event_timed_out", "message": "late"}}
AT = BodyAt(run_id="r1", key="event:a:0", attempt=1)


def event(event_id: str = "e1", key: str = "go", payload: object = None, org_id: str = "org") -> Event:
    return Event(org_id=org_id, event_id=event_id, key=key, payload=payload)


def wait_for(key: str = "col:a:0", event_key: str = "go", due_s: float = 60) -> NewBoundary:
    return NewBoundary(
        key=key, kind=WaitKind.EVENT, due_ms=due_s * 1000, event_key=event_key, timeout_outcome=LATE
    )


def sleep_for(seconds: float, key: str = "col:sleep:0") -> NewBoundary:
    return NewBoundary(key=key, kind=WaitKind.SLEEP, due_ms=seconds * 1000)


def row_wait(*boundaries: NewBoundary) -> RowWait:
    return RowWait(
        kind=boundaries[0].kind, due_ms=min(one.due_ms for one in boundaries), boundaries=boundaries
    )


async def resolved(world: StoresWorld, attempt: int = 1) -> list[tuple[str, object]]:
    return [
        (key, outcome.get("ok", "error")) for key, outcome in (await world.runs.poll("r1", attempt)).resolved
    ]


# ---- bodies


async def test_an_event_ends_a_bodys_wait_and_wakes_its_run_once(world: StoresWorld) -> None:
    await world.held_run()
    await world.waits.arm_event(AT, wait_for())
    assert await world.runs.suspend("r1", 1, 0)
    told = await world.waits.deliver(event(payload={"n": 2**70}))
    assert (told.bodies, told.rows, told.run_ids) == (1, 0, ("r1",))
    assert (await world.waits.deliver(event(payload="again"))).bodies == 0
    claimed = await world.runs.claim("r1", "s1")
    assert claimed is not None
    assert await resolved(world, 2) == [("event:a:0", {"n": 2**70})]
    await world.age(61)
    assert await resolved(world, 2) == [("event:a:0", {"n": 2**70})]


async def test_an_event_that_came_before_ends_the_wait_when_it_is_armed(world: StoresWorld) -> None:
    await world.held_run()
    assert (await world.waits.deliver(event(payload=1))).bodies == 0
    await world.waits.deliver(event("e2", payload=2))
    await world.waits.arm_event(AT, wait_for())
    await world.waits.arm_event(AT, wait_for())
    await world.waits.arm_event(BodyAt(run_id="r1", key="event:a:1", attempt=1), wait_for())
    await world.waits.arm_event(BodyAt(run_id="r1", key="event:a:2", attempt=1), wait_for())
    assert await resolved(world) == [("event:a:0", 1), ("event:a:1", 2)]
    assert not await world.runs.suspend("r1", 1, 0)


async def test_one_event_is_one_answer_for_each_body(world: StoresWorld) -> None:
    await world.held_run()
    await world.waits.arm_event(AT, wait_for())
    await world.waits.arm_event(BodyAt(run_id="r1", key="event:b:0", attempt=1), wait_for())
    assert (await world.waits.deliver(event(payload=1))).bodies == 1
    assert await resolved(world) == [("event:a:0", 1)]
    assert (await world.waits.deliver(event("e2", payload=2))).bodies == 1
    assert await resolved(world) == [("event:a:0", 1), ("event:b:0", 2)]


async def test_events_of_others_end_nothing(world: StoresWorld) -> None:
    await world.held_run()
    await world.waits.arm_event(AT, wait_for())
    assert (await world.waits.deliver(event("e1", org_id="other"))).bodies == 0
    assert (await world.waits.deliver(event("e2", key="no"))).bodies == 0
    assert await resolved(world) == []


async def test_an_event_from_before_a_run_is_not_its_own(world: StoresWorld) -> None:
    await world.waits.deliver(event())
    await world.age(1)
    await world.held_run()
    await world.waits.arm_event(AT, wait_for())
    assert await resolved(world) == []


async def test_a_wait_whose_time_is_up_ends_as_it_was_told(world: StoresWorld) -> None:
    await world.held_run()
    await world.waits.arm_event(AT, wait_for())
    await world.age(61)
    assert await resolved(world) == [("event:a:0", "error")]
    assert (await world.waits.deliver(event())).bodies == 0
    found = await world.waits.find(AT)
    assert found is not None
    assert (found.state, found.outcome) == (BoundaryState.TIMED_OUT, LATE)


async def test_sweeps_end_waits_of_suspended_bodies(world: StoresWorld) -> None:
    await world.held_run()
    await world.waits.arm_event(AT, wait_for())
    assert await world.runs.suspend("r1", 1, 0)
    await world.age(61)
    await world.settling.resolve_timers()
    assert await world.settling.due_runs() == ["r1"]


async def test_a_cancelled_wait_ends_cancelled(world: StoresWorld) -> None:
    await world.held_run()
    await world.waits.arm_event(AT, wait_for())
    await world.runs.cancel_boundary("r1", 1, AT.key)
    assert (await world.waits.deliver(event())).bodies == 0
    found = await world.waits.find(AT)
    assert found is not None
    assert found.state is BoundaryState.CANCELLED


async def test_the_end_of_a_run_ends_its_waits(world: StoresWorld) -> None:
    await world.held_run()
    await world.waits.arm_event(AT, wait_for())
    assert [(one.where, one.name, one.count) for one in await world.waits.awaited("r1")] == [
        ("body", "go", 1)
    ]
    await world.runs.cancel("r1")
    assert (await world.waits.deliver(event())).bodies == 0
    assert await world.waits.awaited("r1") == []


async def test_a_wait_is_fenced(world: StoresWorld) -> None:
    await world.held_run()
    with pytest.raises(AttemptLostError):
        await world.waits.arm_event(BodyAt(run_id="r1", key="event:a:0", attempt=0), wait_for())


# ---- waits that are armed outside


async def test_arming_that_its_holder_ends(world: StoresWorld) -> None:
    await world.held_run()
    found = await world.waits.prepare(AT, "go", {"boundaryId": "b"})
    assert (found.state, found.holder, found.prepared) == (BoundaryState.ARMING, 1, {"boundaryId": "b"})
    await world.waits.deliver(event(payload=7))
    assert await resolved(world) == []
    assert (await world.waits.armed(AT, wait_for())).outcome == {"ok": 7}
    assert await resolved(world) == [("event:a:0", 7)]


async def test_arming_of_a_lost_holder_is_taken_over_once(world: StoresWorld) -> None:
    await world.held_run()
    await world.waits.prepare(AT, "go", {"n": 1})
    await world.session("s2")
    await world.kill("s1")
    assert await world.runs.claim("r1", "s2") is not None
    later = BodyAt(run_id="r1", key=AT.key, attempt=2)
    found = await world.waits.prepare(later, "go", {"n": 2})
    assert (found.holder, found.prepared) == (1, {"n": 1})
    with pytest.raises(AttemptLostError):
        await world.waits.armed(AT, wait_for())
    assert await world.waits.adopt(later, 1)
    assert (await world.waits.armed(later, wait_for())).state is BoundaryState.ARMED
    told = await world.waits.close(later, {"error": {"code": "x"}})
    assert (told.state, told.outcome) == (BoundaryState.CANCELLED, {"error": {"code": "x"}})
    assert (await world.waits.close(later, {"ok": 1})).outcome == {"error": {"code": "x"}}


# ---- rows


async def held_slice(world: StoresWorld) -> TakenSlice:
    dataset_id = await world.seeded(1)
    await world.settling.claim_pages(dataset_id)
    await world.due(dataset_id, 0)
    return await world.taken(dataset_id, 0, 0)


async def let_wait(world: StoresWorld, taken: TakenSlice, *waits: RowWait, final: bool = True) -> None:
    rows = tuple(
        waiting(row.position, row.row_key, wait) for row, wait in zip(taken.rows, waits, strict=False)
    )
    part = SliceRows(id=taken.id, fence=taken.fence, facts=taken.facts, rows=rows, final=final)
    await world.slices.flush(RowWrite(session_id="s1", slices=(part,)))


def page_of(taken: TakenSlice) -> WokenPage:
    return WokenPage(run_id="r1", dataset_id=taken.id.dataset_id, page=0)


async def known(world: StoresWorld, taken: TakenSlice, position: int) -> dict[str, BoundaryState]:
    found = await world.waits.row_boundaries(taken.id.dataset_id, [position])
    return {key: one.state for (_, key), one in found.items()}


async def test_an_event_wakes_all_rows_that_wait_for_it_and_each_once(world: StoresWorld) -> None:
    taken = await held_slice(world)
    await let_wait(world, taken, row_wait(wait_for()), row_wait(wait_for()))
    assert await world.settling.wake_rows() == []
    told = await world.waits.deliver(event(payload="yes"))
    assert (told.rows, told.run_ids) == (2, ())
    assert await world.settling.wake_rows() == [page_of(taken)]
    assert await world.settling.wake_rows() == []
    found = await world.waits.row_boundaries(taken.id.dataset_id, [0, 1])
    assert {one.outcome["ok"] for one in found.values() if one.outcome} == {"yes"}
    assert {row.state for row in (await world.rows(taken.id.dataset_id)).values()} == {RowState.PENDING}


async def test_an_event_that_came_before_wakes_a_row_as_soon_as_it_waits(world: StoresWorld) -> None:
    taken = await held_slice(world)
    await world.waits.deliver(event())
    await let_wait(world, taken, row_wait(wait_for()))
    assert await world.settling.wake_rows() == [page_of(taken)]
    assert await known(world, taken, 0) == {"col:a:0": BoundaryState.RESOLVED}


async def test_a_sleep_is_over_in_time_however_often_it_is_asked(world: StoresWorld) -> None:
    taken = await held_slice(world)
    await let_wait(world, taken, row_wait(sleep_for(60), wait_for()), final=False)
    await world.age(30)
    await world.sessions.renew("s1", 60)
    assert await known(world, taken, 0) == {
        "col:sleep:0": BoundaryState.ARMED,
        "col:a:0": BoundaryState.ARMED,
    }
    await world.waits.deliver(event())
    await world.settling.wake_rows()
    assert await known(world, taken, 0) == {
        "col:sleep:0": BoundaryState.ARMED,
        "col:a:0": BoundaryState.RESOLVED,
    }
    await let_wait(world, taken, row_wait(sleep_for(60)))
    assert await world.settling.wake_rows() == []
    await world.age(31)
    await world.sessions.renew("s1", 60)
    assert await world.settling.wake_rows() == [page_of(taken)]
    assert (await known(world, taken, 0))["col:sleep:0"] is BoundaryState.RESOLVED


async def test_a_row_that_was_woken_by_one_wait_hears_of_the_other(world: StoresWorld) -> None:
    taken = await held_slice(world)
    both = row_wait(wait_for("col:a:0", "go"), wait_for("col:b:0", "stop"))
    await let_wait(world, taken, both, final=False)
    await world.waits.deliver(event("e1", "go"))
    await world.settling.wake_rows()
    await world.waits.deliver(event("e2", "stop"))  # while the row runs
    await let_wait(world, taken, row_wait(wait_for("col:b:0", "stop")))
    assert await world.settling.wake_rows() == [page_of(taken)]
    assert set((await known(world, taken, 0)).values()) == {BoundaryState.RESOLVED}


async def test_events_of_one_key_go_to_a_rows_waits_in_turn(world: StoresWorld) -> None:
    taken = await held_slice(world)
    await world.waits.deliver(event("e1", payload=1))
    await world.waits.deliver(event("e2", payload=2))
    await let_wait(world, taken, row_wait(wait_for("col:a:0"), wait_for("col:a:1"), wait_for("col:a:2")))
    found = await world.waits.row_boundaries(taken.id.dataset_id, [0])
    assert {key: one.outcome and one.outcome["ok"] for (_, key), one in found.items()} == {
        "col:a:0": 1,
        "col:a:1": 2,
        "col:a:2": None,
    }


async def test_a_rows_event_wait_times_out(world: StoresWorld) -> None:
    taken = await held_slice(world)
    await let_wait(world, taken, row_wait(wait_for()))
    await world.age(61)
    await world.sessions.renew("s1", 60)
    assert (await world.waits.deliver(event())).rows == 0
    assert await world.settling.wake_rows() == [page_of(taken)]
    found = await world.waits.row_boundaries(taken.id.dataset_id, [0])
    assert [(one.state, one.outcome) for one in found.values()] == [(BoundaryState.TIMED_OUT, LATE)]


async def test_a_row_that_ends_ends_its_waits(world: StoresWorld) -> None:
    taken = await held_slice(world)
    await let_wait(world, taken, row_wait(wait_for(), sleep_for(5)), final=False)
    await world.age(6)
    await world.sessions.renew("s1", 60)
    await world.settling.wake_rows()
    assert (await known(world, taken, 0))["col:a:0"] is BoundaryState.ARMED
    row = taken.rows[0]
    done = finished(row.position, row.row_key)
    part = SliceRows(
        id=taken.id, fence=taken.fence, facts=taken.facts, rows=(replace(done, waited=True),), final=False
    )
    await world.slices.flush(RowWrite(session_id="s1", slices=(part,)))
    states = await known(world, taken, 0)
    assert states == {"col:a:0": BoundaryState.CANCELLED, "col:sleep:0": BoundaryState.RESOLVED}


async def test_the_end_of_a_run_ends_waits_of_rows(world: StoresWorld) -> None:
    taken = await held_slice(world)
    await let_wait(world, taken, row_wait(wait_for()), row_wait(sleep_for(60)))
    names = {(one.where, one.kind, one.count) for one in await world.waits.awaited("r1")}
    assert names == {("body", "dataset", 1), ("d", "event", 1), ("d", "sleep", 1)}
    await world.runs.cancel("r1")
    assert (await world.waits.deliver(event())).rows == 0
    for position in (0, 1):
        assert set((await known(world, taken, position)).values()) == {BoundaryState.CANCELLED}


async def test_waits_of_rows_that_are_armed_outside_are_fenced_by_their_slice(world: StoresWorld) -> None:
    taken = await held_slice(world)
    at = RowAt(dataset_id=taken.id.dataset_id, page=0, slice=0, position=0, key="col:t:0", fence=taken.fence)
    assert (await world.waits.prepare(at, "go", {"id": 1})).holder == taken.fence
    assert (await world.waits.armed(at, wait_for("col:t:0"))).state is BoundaryState.ARMED
    await let_wait(world, taken, row_wait(wait_for("col:t:0")))
    assert (await world.waits.deliver(event(payload=3))).rows == 1
    assert await world.settling.wake_rows() == [page_of(taken)]
    await world.slices.release([(taken.id, taken.fence)])
    again = await world.taken(taken.id.dataset_id, 0, 0)
    with pytest.raises(SliceLostError):
        await world.waits.close(at, {"ok": 1})
    assert again.fence > taken.fence
    found = await world.waits.find(at)
    assert found is not None
    assert found.outcome == {"ok": 3}


# ---- events


async def test_a_stored_event_is_delivered_by_whoever_finds_it(world: StoresWorld) -> None:
    await world.held_run()
    assert await world.waits.store_event(event(payload=1))
    assert not await world.waits.store_event(event(payload=2))
    await world.waits.arm_event(AT, wait_for(event_key="other"))
    await world.waits.arm_event(BodyAt(run_id="r1", key="event:z:0", attempt=1), wait_for())
    assert await resolved(world) == [("event:z:0", 1)]
    assert await world.waits.undelivered() == []
    await world.age(60)
    [found] = await world.waits.undelivered()
    assert found == event(payload=1)
    assert (await world.waits.deliver(found)).bodies == 0
    assert await world.waits.undelivered() == []


async def test_old_events_are_forgotten(world: StoresWorld) -> None:
    await world.waits.deliver(event())
    assert await world.waits.prune() == 0
    await world.age(8 * 24 * 3600)
    assert await world.waits.prune() == 1
    await world.runs.insert(NewRun(run_id="r9", org_id="org", play="p", input=None))
