"""A process whose rows make no progress says which phase holds the oldest."""

import asyncio
from typing import Any

from structlog.testing import capture_logs

from runtime.engine.byte_room import ByteRoom
from runtime.engine.row_scope import RowScope
from runtime.engine.row_writer import RowWriter
from runtime.engine.stall_watch import StallWatch
from runtime.engine.tool_calls import CallContext
from runtime.faults import no_fault
from runtime.policy.limits import Limits
from runtime.policy.stalling import Phase, PhaseLook, stall_of
from tests.unit.test_row_writer import Store, row, taken
from tests.waiting import wait_until_async


def look(phase: Phase, since_s: float, count: int = 1) -> PhaseLook:
    return PhaseLook(phase=phase, count=count, since_s=since_s, what=phase.value)


def test_nothing_is_said_while_rows_are_written_or_nothing_is_held() -> None:
    held = [look(Phase.CALL, 0.0)]
    assert stall_of(held, now_s=100.0, written_s=50.0, every_s=60.0) is None
    assert stall_of([], now_s=100.0, written_s=0.0, every_s=60.0) is None
    assert stall_of([look(Phase.CALL, 0.0, count=0)], now_s=100.0, written_s=0.0, every_s=60.0) is None
    assert stall_of([look(Phase.CALL, 90.0)], now_s=100.0, written_s=0.0, every_s=60.0) is None


def test_the_phase_of_the_oldest_is_named() -> None:
    looks = [look(Phase.RESOLVER, 30.0, 2), look(Phase.COMMIT, 10.0, 5), look(Phase.CALL, 20.0, 1)]
    stall = stall_of(looks, now_s=100.0, written_s=1.0, every_s=60.0)
    assert stall is not None
    assert (stall.phase, stall.oldest_s, stall.last_written_s) == (Phase.COMMIT, 90.0, 99.0)
    assert stall.counts == {"resolver": 2, "commit": 5, "call": 1}


def watch(every_s: float = 0.05) -> tuple[StallWatch, RowWriter]:
    writer = RowWriter(
        Store(),  # type: ignore[arg-type]
        session_id="me",
        limits=Limits(),
        fault=no_fault,
        take_usage=tuple,
        give_back_usage=lambda usage: None,
    )
    return StallWatch(writer=writer, room=ByteRoom(10), every_s=every_s), writer


def scope(row_key: str) -> RowScope:
    calls: Any = None
    context = CallContext(org_id="o", run_id="r")
    return RowScope(
        calls=calls, context=context, position=0, limits=Limits(), logs=[], dataset="d", row_key=row_key
    )


async def test_a_stalled_process_says_so_each_time_it_looks_and_stops_when_nothing_is_held() -> None:
    stalls, _ = watch()
    held = scope("k1")
    held.column = "email"
    with capture_logs() as lines:
        stalls.begin(held)
        stalls.begin(scope("k2"))
        await wait_until_async(lambda: len(lines) >= 2)
        stalls._rows.clear()
        await wait_until_async(lambda: stalls._timer is None)
    assert {line["phase"] for line in lines} == {"resolver"}
    assert lines[0]["oldest"] == 'row "k1", column "email" of dataset "d"'
    assert lines[0]["held"] == {"resolver": 2}


async def test_every_phase_is_seen() -> None:
    stalls, writer = watch()
    writer.open(taken())
    calling = scope("k2")
    calling._open.append(("id", "tool", None))
    stalls.begin(scope("k1"))
    stalls.begin(calling)
    await writer.add(taken().id, row(0))
    async with stalls._room.held(10):
        waiting = asyncio.get_running_loop().create_task(stalls._room._enter(5))
        await wait_until_async(stalls._room.waiting)
        found = {one.phase: one.count for one in stalls.looks()}
        waiting.cancel()
    assert found == {Phase.RESOLVER: 1, Phase.CALL: 1, Phase.COMMIT: 1, Phase.MEMORY: 1}
