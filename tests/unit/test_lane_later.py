"""Calls whose turn is far away: given back with the moment to ask again, the newest of the longest first."""

from math import inf
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from runtime.model.call import AnswerState
from runtime.model.rate_scope import RateScope
from runtime.policy.coalescing import BucketKey, Coalescer
from runtime.policy.limits import Limits
from runtime.policy.pacing import later_ms
from tests.lane_stage import LIMITS, LaneStage, calls, tool

SPACING_MS = 20_000.0


class LinePacer:
    """Tickets of one line, one each `SPACING_MS`; `closed_ms` holds back who is due."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.line: list[float] = []
        self.closed_ms = 0.0
        self.last_ms: float | None = None

    async def reserve(self, scope: RateScope, items: int, turn: object = "") -> "LineTicket":
        return LineTicket(self)

    def in_use(self, lane: str) -> int:
        return 0


class LineTicket:
    def __init__(self, pacer: LinePacer) -> None:
        self.pacer = pacer
        self.due_ms: float | None = None

    async def due(self, hold_ms: float = inf) -> float:
        line, now_ms = self.pacer.line, self.pacer.clock.now_ms()
        due_ms = self.due_ms = max([now_ms, *(at + SPACING_MS for at in line)])
        line.append(due_ms)
        wait_ms = due_ms - now_ms
        if wait_ms > hold_ms:
            return wait_ms
        if wait_ms:
            await self.pacer.clock.sleep(wait_ms)
        return 0.0

    def spacing_ms(self, items: int) -> float:
        return SPACING_MS

    async def later(self, items: int, due_ms: float) -> float:
        pacer, now_ms = self.pacer, self.pacer.clock.now_ms()
        wait_ms = later_ms(
            due_ms=due_ms, now_ms=now_ms, last_ms=pacer.last_ms, spacing_ms=SPACING_MS, limits=LIMITS
        )
        pacer.last_ms = now_ms + wait_ms
        return wait_ms

    async def confirm(self, most: int, *, whole: bool = False) -> tuple[int, float]:
        if self.pacer.closed_ms > self.pacer.clock.now_ms():
            return 0, self.pacer.closed_ms - self.pacer.clock.now_ms()
        self.due_ms = None
        return most, 0.0

    def sent(self) -> None: ...

    async def limited(self, retry_after_ms: float | None) -> None: ...

    async def succeeded(self) -> None: ...

    def free(self) -> None:
        if self.due_ms is not None:
            self.pacer.line.remove(self.due_ms)
            self.due_ms = None


async def stage_in_line() -> tuple[LaneStage, LinePacer]:
    stage = await LaneStage(metadata=tool(max_batch_size=1)).start()
    pacer: Any = LinePacer(stage.clock)
    object.__setattr__(stage.engine._parts, "pacer", pacer)
    return stage, pacer


async def test_what_is_near_is_held_what_is_far_comes_back_at_the_lanes_rate() -> None:
    stage, pacer = await stage_in_line()
    posted = calls(6)
    accepted = await stage.post(posted)
    await stage.clock.advance(6)
    answers = await stage.answers()
    assert {key: one.state for key, one in answers.items() if one.state is AnswerState.COMPLETED} == {
        posted[0].key: AnswerState.COMPLETED
    }
    later = [one for one in answers.values() if one.state is AnswerState.TRY_LATER]
    assert len(later) == 4
    untils_ms = sorted(one.until_ms or 0 for one in later)
    assert untils_ms == [25_000.0 + n * SPACING_MS for n in range(4)]
    assert {one.key for one in later} == {call.key for call in posted[2:]}, "the newest are put off"
    assert not accepted.is_done
    await stage.clock.advance(SPACING_MS)
    assert accepted.is_done
    assert stage.balanced()
    assert not [at for at in pacer.line if at > stage.clock.now_ms()]


async def test_a_lane_closed_for_long_puts_off_what_was_due() -> None:
    stage, pacer = await stage_in_line()
    pacer.closed_ms = 90_000.0
    accepted = await stage.post(calls(1))
    await stage.clock.advance(6)
    assert accepted.is_done
    (answer,) = (await stage.answers()).values()
    assert answer.state is AnswerState.TRY_LATER
    assert 70_000 < (answer.until_ms or 0) <= 75_000
    assert stage.balanced()


async def test_a_lane_closed_for_a_moment_keeps_its_calls() -> None:
    stage, pacer = await stage_in_line()
    pacer.closed_ms = LIMITS.hold_ms - 1_000
    accepted = await stage.post(calls(1))
    await stage.clock.advance(6)
    assert not accepted.is_done
    await stage.clock.advance(LIMITS.hold_ms)
    assert accepted.is_done


KEY = BucketKey(
    lane="l",
    origin="",
    org_id="o",
    integration_mode=None,
    contract="c",
    response_revision=None,
    auth_scope=None,
    operation="op",
    strategy="s",
    strategy_revision="1",
    bucket="",
    tool="t",
)


def test_a_small_run_keeps_its_place_beside_a_large_one() -> None:
    coalescer: Coalescer[str] = Coalescer(5)
    coalescer.add(KEY, 2, [("large", f"l{n}") for n in range(8)] + [("small", f"s{n}") for n in range(2)], 0)
    assert len(coalescer.tickets_wanted(10)) == 5
    assert coalescer.take_newest(KEY, 2) == ["l6", "l7"]
    assert coalescer.take_newest(KEY, 2) == ["l4", "l5"]
    assert coalescer.take(KEY) == ["l0", "s0"]
    assert coalescer.take(KEY) == ["l1", "s1"]
    assert coalescer.take(KEY) == ["l2", "l3"]
    assert len(coalescer) == 0


@given(
    due_ms=st.floats(30_000, 1e9),
    last_ms=st.none() | st.floats(0, 1e9),
    spacing_ms=st.floats(0, 1e8),
    now_ms=st.floats(0, 1e6),
)
def test_the_moment_to_ask_again_is_ahead_bounded_and_spread(
    due_ms: float, last_ms: float | None, spacing_ms: float, now_ms: float
) -> None:
    limits = Limits()
    until_ms = later_ms(due_ms=due_ms, now_ms=now_ms, last_ms=last_ms, spacing_ms=spacing_ms, limits=limits)
    assert limits.hold_ms / 2 - 1 <= until_ms <= limits.later_max_ms
    if last_ms is not None and until_ms < limits.later_max_ms:
        assert now_ms + until_ms >= last_ms + spacing_ms - 1
