"""The lane while Postgres or Redis is away, loses its data, or a worker dies."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from runtime.faults import InjectedFaultError
from runtime.model.call import AnswerState
from runtime.model.lease import BatchRecord, Lease
from runtime.model.physical_request import PhysicalReply, PhysicalRequest
from runtime.model.receipt import ReceiptState
from runtime.model.tool import BatchRule, ToolMetadata
from runtime.testing_redis import settle
from tests.lane_stage import LaneStage, calls, echo, items_of

Stop = Callable[[str], object]


async def never(_request: PhysicalRequest) -> PhysicalReply:
    return await asyncio.get_running_loop().create_future()


async def test_while_postgres_is_away_the_lane_waits_and_keeps_its_leases() -> None:
    stage = await LaneStage().start()
    stage.receipts.away = 5
    posting = asyncio.get_running_loop().create_task(stage.post(calls(3)))
    await stage.clock.advance(3_000)
    assert not posting.done() and len(stage.redis.leases) == 3
    await stage.clock.advance(3_000)
    await stage.finish(await posting)
    assert {a.state for a in (await stage.answers()).values()} == {AnswerState.COMPLETED}


async def test_postgres_away_too_long_gives_the_calls_back() -> None:
    stage = await LaneStage().start()
    stage.receipts.away = 10_000
    posting = asyncio.get_running_loop().create_task(stage.post(calls(3)))
    await stage.clock.advance(62_000)
    assert (await posting).is_done
    assert {a.state for a in (await stage.answers()).values()} == {AnswerState.RETURNED}
    assert stage.balanced() and not stage.requests.sent


async def test_a_commit_whose_answer_was_lost_is_read_back_and_counted_once() -> None:
    stage = await LaneStage().start()
    stage.receipts.lose_answers = 1
    accepted = await stage.post(calls(3))
    await stage.finish(accepted, within_ms=3_000)
    assert stage.receipts.statements == 1
    assert sum(usage.items for usage in stage.receipts.usage) == 3
    assert len(await stage.answers()) == 3 and stage.balanced()


async def test_nothing_is_admitted_or_sent_while_a_commit_is_retried() -> None:
    def answer(request: PhysicalRequest) -> PhysicalReply:
        stage.receipts.away = 4
        return echo(request)

    stage = await LaneStage(answer).start()
    first = await stage.post(calls(2))
    await stage.clock.advance(10)
    second = asyncio.get_running_loop().create_task(stage.post(calls(2, "later")))
    await stage.clock.advance(2_000)
    assert len(stage.requests.sent) == 1 and not second.done() and not stage.engine.snapshot().commits_work
    await stage.clock.advance(20_000)
    assert first.is_done and (await second).is_done and len(stage.requests.sent) == 2


async def test_the_latch_keeps_leases_record_and_outcomes_and_a_sweep_stores_them() -> None:
    def answer(request: PhysicalRequest) -> PhysicalReply:
        stage.receipts.away = 10_000
        return echo(request)

    stage = await LaneStage(answer).start()
    accepted = await stage.post(calls(3))
    await stage.finish(accepted, within_ms=70_000)
    answers = (await stage.answers()).values()
    assert {(a.state, (a.error or {})["code"]) for a in answers} == {(AnswerState.FAILED, "persistence_lost")}
    assert len(stage.redis.leases) == 3 and len(stage.redis.batches) == 1
    leases, batches = stage.engine.held()
    assert (len(leases), len(batches)) == (3, 1)
    stage.receipts.away = 0
    stage.requests._answer = echo
    other_run = asyncio.get_running_loop().create_task(stage.post(calls(2, "other", run_id="r2")))
    await stage.clock.advance(5_000)
    assert not other_run.done(), "nothing is admitted until outcomes can be stored"
    refused = await stage.post(calls(2, "more"))
    assert refused.is_done and stage.engine.snapshot().prevented == 2
    await stage.engine.sweep()
    assert {r.state for r in stage.receipts.stored.values()} == {ReceiptState.COMPLETED}
    assert len(stage.requests.sent) == 1
    await stage.clock.advance(2_000)
    await stage.finish(await other_run)
    assert stage.balanced() and len(stage.requests.sent) == 2


async def test_redis_away_for_a_while_delays_and_loses_nothing() -> None:
    stage = await LaneStage().start()
    posting = await stage.post(calls(3))
    stage.redis.is_away = True
    await stage.clock.advance(5_000)
    assert not stage.requests.sent
    stage.redis.is_away = False
    await stage.finish(posting, within_ms=2_000)
    assert len(await stage.answers()) == 3 and stage.balanced()


async def test_answers_that_cannot_be_pushed_are_found_by_polling_and_leases_are_freed_later() -> None:
    def answer(request: PhysicalRequest) -> PhysicalReply:
        stage.redis.is_away = True
        return echo(request)

    stage = await LaneStage(answer).start()
    accepted = await stage.post(calls(3))
    await stage.finish(accepted)
    assert len(stage.receipts.stored) == 3 and len(stage.redis.leases) == 3
    stage.redis.is_away = False
    await stage.engine.sweep()
    assert stage.balanced()


async def test_queued_calls_survive_a_loss_of_redis_data() -> None:
    stage = await LaneStage().start()
    accepted = await stage.post(calls(3))
    stage.redis.flush()
    await stage.finish(accepted)
    assert [items_of(request) for request in stage.requests.sent] == [["i0", "i1", "i2"]]
    assert stage.balanced()


async def test_new_claims_wait_unadmitted_for_the_grace_and_are_never_returned() -> None:
    stage = await LaneStage().start()
    stage.redis.flush()
    posting = asyncio.get_running_loop().create_task(stage.post(calls(3)))
    await stage.clock.advance(10_000)
    assert not posting.done() and not stage.requests.sent and not await stage.answers()
    stage.redis.now_us += 31_000_000
    await stage.clock.advance(11_000)
    await stage.finish(await posting)
    assert {a.state for a in (await stage.answers()).values()} == {AnswerState.COMPLETED}


async def test_what_a_dead_process_had_sent_is_sent_again_verbatim() -> None:
    one = await LaneStage(never).start()
    await one.post(calls(5))
    await one.clock.advance(10)
    two = await LaneStage(session="lane-2", redis=one.redis, receipts=one.receipts, clock=one.clock).start()
    asking = await two.post(calls(2, inbox="rows-2"))
    assert asking.is_done, "the owner lives"
    await one.die()
    await two.engine.sweep()
    await two.clock.advance(10)
    sent_before, sent_after = one.requests.sent[0], two.requests.sent[0]
    assert (
        sent_before.idempotency_key == sent_after.idempotency_key
        and sent_before.payload == sent_after.payload
    )
    assert sent_before.item_idempotency_keys == sent_after.item_idempotency_keys
    assert len(await two.answers("rows-1")) == 5, "the recorded inboxes are told"
    assert two.balanced()


async def test_an_asker_adopts_the_batch_that_its_call_belongs_to() -> None:
    one = await LaneStage(never).start()
    await one.post(calls(5))
    await one.clock.advance(10)
    await one.die()
    two = await LaneStage(session="lane-2", redis=one.redis, receipts=one.receipts, clock=one.clock).start()
    asking = await two.post(calls(7, inbox="rows-2"))
    await two.finish(asking, within_ms=20)
    assert sorted(len(items_of(request)) for request in two.requests.sent) == [2, 5]
    assert len(await two.answers("rows-2")) == 7 and two.balanced()


async def test_what_was_committed_before_the_death_is_only_released() -> None:
    one = await LaneStage(never).start()
    posted = calls(3)
    await one.post(posted)
    await one.clock.advance(10)
    record = next(iter(one.redis.batches.values()))
    done = await LaneStage().start()
    await done.finish(await done.post(posted))
    one.receipts.stored = {
        key: receipt
        for key, receipt in done.receipts.stored.items()
        if key in {m["key"] for m in record.members}
    }
    await one.die()
    two = await LaneStage(session="lane-2", redis=one.redis, receipts=one.receipts, clock=one.clock).start()
    await two.engine.sweep()
    await two.clock.advance(10)
    assert not two.requests.sent and two.balanced()
    assert len(await two.answers("rows-1")) == 3


async def test_another_strategy_revision_ends_unknown_and_sends_nothing() -> None:
    one = await LaneStage(never).start()
    await one.post(calls(3))
    await one.clock.advance(10)
    await one.die()
    newer = ToolMetadata(
        tool="echo",
        provider="fakeprov",
        batch=BatchRule(operation="echo_batch", max_batch_size=100, revision="2"),
    )
    two = await LaneStage(
        session="lane-2", redis=one.redis, receipts=one.receipts, clock=one.clock, metadata=newer
    ).start()
    await two.engine.sweep()
    await two.clock.advance(10)
    assert not two.requests.sent
    assert {r.state for r in two.receipts.stored.values()} == {ReceiptState.UNKNOWN} and two.balanced()


async def test_a_takeover_waits_for_postgres_and_is_not_forgotten() -> None:
    one = await LaneStage(never).start()
    await one.post(calls(3))
    await one.clock.advance(10)
    await one.die()
    two = await LaneStage(session="lane-2", redis=one.redis, receipts=one.receipts, clock=one.clock).start()
    two.receipts.away = 10_000
    await two.engine.sweep()
    await two.clock.advance(70_000)
    two.receipts.away = 0
    two.redis.touch("lane-2")
    await two.engine.sweep()
    await two.clock.advance(10)
    assert len(two.requests.sent) == 1 and two.balanced()


@pytest.mark.parametrize(
    "broken", ["lane.after_admit", "lane.after_seal", "lane.after_answer", "lane.after_commit"]
)
async def test_an_error_at_a_fault_point_loses_no_call(broken: str) -> None:
    failed = False

    async def fault(point: str) -> None:
        nonlocal failed
        if point == broken and not failed:
            failed = True
            raise InjectedFaultError(point)

    stage = await LaneStage(fault=fault).start()
    try:
        await stage.post(calls(3))
    except InjectedFaultError:
        assert broken == "lane.after_admit"
    await stage.clock.advance(20)
    again = await stage.post(calls(3))
    await stage.finish(again)
    await settle()
    assert len({request.idempotency_key for request in stage.requests.sent}) == 1
    assert len(stage.requests.sent) == 1
    assert len(stage.receipts.stored) == 3 and stage.balanced()


async def test_what_ended_while_lost_leases_were_put_back_is_freed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A heartbeat has read what is held and learns that Redis lost its data; before it puts that back, the batch is
    answered, committed and released. Put back afterwards, its leases would be held until the process ends."""
    replied = asyncio.get_running_loop().create_future()

    async def late(request: PhysicalRequest) -> PhysicalReply:
        await replied
        return echo(request)

    stage = await LaneStage(late).start()
    accepted = await stage.post(calls(2))
    await stage.clock.advance(10)
    stage.redis.flush()
    put_back = stage.leases.renew

    async def after_the_end(session_id: str, leases: Sequence[Lease], batches: Sequence[BatchRecord]) -> str:
        assert (len(leases), len(batches)) == (2, 1)
        replied.set_result(None)
        await settle()
        assert accepted.is_done
        return await put_back(session_id, leases, batches)

    monkeypatch.setattr(stage.leases, "renew", after_the_end)
    await stage.engine.renew()
    assert stage.balanced()
