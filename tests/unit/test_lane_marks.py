"""When a fenced call's durable mark is written, what takes it back, and what it says of a refresh that was lost."""

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import pytest

from runtime.engine.plain_pacer import PlainPacer, PlainTicket
from runtime.errors import ServiceUnreachableError
from runtime.model.call import AnswerState
from runtime.model.failure import FailureClass
from runtime.model.rate_scope import RateScope
from runtime.model.receipt import ReceiptState
from runtime.model.tool import BatchRule
from tests.lane_stage import LaneStage, calls, echo, failing
from tests.unit.test_lane_fence import FENCED, never, stage_of
from tests.unit.test_lane_refresh import fresh, held

FENCED_BATCH = replace(FENCED, batch=BatchRule(operation="echo_batch", max_batch_size=10))


class SlowPacer(PlainPacer):
    """Notes what was marked when a ticket was reserved and confirmed."""

    def __init__(self, stage: LaneStage) -> None:
        super().__init__(lambda _lane: 8, 8)
        self.stage = stage
        self.seen: list[tuple[str, int]] = []

    def marks(self) -> int:
        return sum(
            receipt.state is ReceiptState.DISPATCHED for receipt in self.stage.receipts.stored.values()
        )

    async def reserve(self, scope: RateScope, items: int, turn: Hashable = "") -> PlainTicket:
        self.seen.append(("reserved", self.marks()))
        ticket = await super().reserve(scope, items, turn)
        confirm = ticket.confirm

        async def late_confirm(most: int, *, whole: bool = False) -> tuple[int, float]:
            self.seen.append(("confirmed", self.marks()))
            return await confirm(most, whole=whole)

        async def slow_due(hold_ms: float = 0.0) -> float:
            await self.stage.clock.sleep(50)
            return 0.0

        ticket.confirm, ticket.due = late_confirm, slow_due  # type: ignore[method-assign]
        return ticket


async def slow_stage(**options: Any) -> tuple[LaneStage, SlowPacer]:
    stage = await stage_of(metadata=FENCED_BATCH, **options)
    pacer = SlowPacer(stage)
    object.__setattr__(stage.engine._parts, "pacer", pacer)
    return stage, pacer


async def test_marks_are_stored_before_the_ticket_is_reserved_and_late_joiners_before_it_is_confirmed() -> (
    None
):
    stage, pacer = await slow_stage()
    first = await stage.post(calls(3, "a"))
    await stage.clock.advance(10)
    second = await stage.post(calls(2, "b"))
    await stage.clock.advance(100)
    assert pacer.seen[0] == ("reserved", 3)
    assert ("confirmed", 5) in pacer.seen, (
        "who joined while the ticket waited is marked too, in one statement"
    )
    assert first.is_done and second.is_done
    assert [len(request.item_idempotency_keys) for request in stage.requests.sent] == [5]
    assert stage.receipts.statements == 3, "two of marks, one of outcomes"


async def test_what_is_given_back_unsent_leaves_no_mark() -> None:
    stage, pacer = await slow_stage()
    await stage.post(calls(3))
    await stage.clock.advance(10)
    assert pacer.marks() == 3
    await stage.engine.drain(0)
    assert stage.receipts.stored == {} and not stage.requests.sent
    assert {one.state for one in (await stage.answers()).values()} == {AnswerState.RETURNED}


@pytest.mark.parametrize("attests", [True, False])
async def test_a_refresh_that_was_lost_with_its_worker_and_redis_is_not_silently_repeated(
    attests: bool,
) -> None:
    """The kept result says nothing of it; the mark beside it does."""
    one = await stage_of(never, receipts=held("a"))
    await one.post([fresh("a")])
    await one.clock.advance(10)
    await one.die()
    one.redis.flush()
    two = await stage_of(
        attests=attests, session="lane-2", redis=one.redis, receipts=one.receipts, clock=one.clock
    )
    await two.finish(await two.post([fresh("a", inbox="rows-2")]), within_ms=50)
    sent = [request.idempotency_key for request in two.requests.sent]
    assert sent == ([one.requests.sent[0].idempotency_key] if attests else [])
    (answer,) = (await two.answers("rows-2")).values()
    assert answer.state is (AnswerState.COMPLETED if attests else AnswerState.UNKNOWN)
    kept = [r.output for r in two.receipts.stored.values() if r.state is ReceiptState.COMPLETED]
    assert kept == ([b'{"value":"v:a"}'] if attests else [b'{"value":"old"}'])


async def test_a_refresh_whose_outcome_is_known_leaves_no_mark() -> None:
    for answer in (None, failing(FailureClass.REJECTED)):

        def reply(request: Any, error: Any = answer) -> Any:
            if error is not None:
                raise error
            return echo(request)

        stage = await stage_of(reply, receipts=held("a"))
        await stage.finish(await stage.post([fresh("a")]), within_ms=50)
        assert len(stage.receipts.stored) == 1 and stage.balanced()


async def test_nothing_is_lined_up_while_marks_cannot_be_stored() -> None:
    stage, pacer = await slow_stage()

    async def refused(*_: Any) -> Any:
        raise ServiceUnreachableError("Postgres is away; it is tried again")

    commit = stage.receipts.commit
    stage.receipts.commit = refused  # type: ignore[method-assign]
    await stage.post(calls(1))
    await stage.clock.advance(2_000)
    assert pacer.seen == []
    stage.receipts.commit = commit  # type: ignore[method-assign]
    await stage.clock.advance(2_000)
    assert len(stage.requests.sent) == 1
