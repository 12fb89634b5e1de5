"""Refreshed and forced calls in a lane: a shared result is bought again once, a private call is paid once."""

import asyncio
from dataclasses import replace

from runtime.model.call import Accepts, AnswerState, Call
from runtime.model.failure import FailureClass
from runtime.model.physical_request import PhysicalReply, PhysicalRequest
from runtime.model.receipt import Receipt, ReceiptState
from runtime.policy import identity
from tests.lane_stage import LaneStage, Receipts, call, echo, failing, items_of

EPOCH = 1_000
STRICT = Accepts(not_before_ms=EPOCH, failed_not_before_ms=EPOCH)


def fresh(item: str, run_id: str = "r2", inbox: str = "rows-1") -> Call:
    """A call of a run that wants results of its own time."""
    return replace(call(item, run_id=run_id, inbox=inbox), accepts=STRICT)


def forced(item: str, n: int = 0, run_id: str = "r2", inbox: str = "rows-1") -> Call:
    shared = call(item, run_id=run_id, inbox=inbox)
    keys = identity.private_keys(
        identity.CallKeys(receipt=shared.key, item=shared.idempotency_key),
        identity.PrivateCall(run_id=run_id, place=("row", "d", 0, "c", "id"), n=n, shares=True),
    )
    return replace(shared, key=keys.receipt, idempotency_key=keys.item, shared_key=shared.key)


def held(*items: str) -> Receipts:
    """Receipts of an earlier run, made before EPOCH."""
    receipts = Receipts()
    for item in items:
        made = call(item)
        receipts.stored[made.key] = Receipt(
            key=made.key,
            org_id="o",
            tool="echo",
            run_id="r1",
            state=ReceiptState.COMPLETED,
            fence=7,
            output=b'{"value":"old"}',
            produced_ms=1,
        )
    receipts.now_ms = EPOCH + 1
    return receipts


async def sent_with(stage: LaneStage, *posted: Call) -> list[PhysicalRequest]:
    before = len(stage.requests.sent)
    await stage.finish(await stage.post(posted), within_ms=50)
    return stage.requests.sent[before:]


async def test_a_shared_key_is_refreshed_once_a_run() -> None:
    stage = await LaneStage(receipts=held("a")).start()
    assert not await sent_with(stage, call("a", run_id="r2"))
    (request,) = await sent_with(stage, fresh("a"))
    assert not await sent_with(stage, fresh("a")), "produced by this run"
    assert not await sent_with(stage, fresh("a", run_id="r3")), "and since that one began"
    stored = stage.receipts.stored[call("a").key]
    assert (stored.output, stored.run_id) == (b'{"value":"v:a"}', "r2") and stored.fence > 7
    assert request.item_idempotency_keys != (call("a").idempotency_key,), "a new purchase"
    assert stage.balanced()


async def test_all_who_refresh_one_generation_use_one_provider_key() -> None:
    """The first try is lost with its outcome; the next run's try must not be another purchase."""
    failures = [failing(FailureClass.TRANSIENT)]

    def answer(request: PhysicalRequest) -> PhysicalReply:
        if failures:
            raise failures.pop()
        return echo(request)

    stage = await LaneStage(answer, receipts=held("a")).start()
    (first,) = await sent_with(stage, fresh("a", run_id="r2"))
    (second,) = await sent_with(stage, fresh("a", run_id="r3"))
    assert first.item_idempotency_keys == second.item_idempotency_keys


async def test_a_failed_refresh_keeps_what_was_there_and_tells_its_caller() -> None:
    def answer(request: PhysicalRequest) -> PhysicalReply:
        raise failing(FailureClass.REJECTED)

    stage = await LaneStage(answer, receipts=held("a")).start()
    await sent_with(stage, fresh("a"))
    assert (await stage.answers())[call("a").key].state is AnswerState.FAILED
    assert stage.receipts.stored[call("a").key].output == b'{"value":"old"}'
    assert stage.balanced()


async def test_those_whom_the_old_result_serves_are_answered_at_once() -> None:
    stage = await LaneStage(receipts=held("a")).start()
    accepted = await stage.post([call("a", run_id="r3", inbox="easy"), fresh("a", inbox="strict")])
    assert (await stage.answers("easy"))[call("a").key].output == b'{"value":"old"}'
    await stage.finish(accepted)
    answer = (await stage.answers("strict"))[call("a").key]
    assert (answer.output, answer.cached) == (b'{"value":"v:a"}', False)


async def test_an_older_version_s_receipt_answers_under_the_asked_key() -> None:
    receipts = held("a")
    asked = replace(call("new"), read_keys=("nothing", call("a").key))
    stage = await LaneStage(receipts=receipts).start()
    assert not await sent_with(stage, asked)
    assert (await stage.answers())[asked.key].output == b'{"value":"old"}'


async def test_a_forced_call_is_paid_once_and_refreshes_the_shared_result() -> None:
    stage = await LaneStage(receipts=held("a")).start()
    assert len(await sent_with(stage, forced("a"))) == 1
    assert not await sent_with(stage, forced("a")), "a replay reads its own receipt"
    assert len(await sent_with(stage, forced("a", n=1))) == 1, "another call of the same place"
    shared, own = stage.receipts.stored[call("a").key], stage.receipts.stored[forced("a").key]
    assert shared.output == own.output == b'{"value":"v:a"}'
    assert len({key for request in stage.requests.sent for key in request.item_idempotency_keys}) == 2
    assert stage.receipts.statements == 2, "both in one statement"
    assert stage.balanced()


async def test_a_forced_call_makes_the_shared_receipt_where_there_was_none() -> None:
    stage = await LaneStage().start()
    await sent_with(stage, forced("a"))
    assert not await sent_with(stage, call("a", run_id="r9"))


async def test_a_failed_forced_call_leaves_the_shared_receipt() -> None:
    def answer(request: PhysicalRequest) -> PhysicalReply:
        raise failing(FailureClass.REJECTED)

    stage = await LaneStage(answer, receipts=held("a")).start()
    await sent_with(stage, forced("a"))
    assert stage.receipts.stored[call("a").key].output == b'{"value":"old"}'
    assert stage.receipts.stored[forced("a").key].state is ReceiptState.FAILED
    assert stage.balanced()


class Gate:
    """Requests wait until it opens; then each is answered."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def __call__(self, request: PhysicalRequest) -> PhysicalReply:
        await self.open.wait()
        return echo(request)


async def test_a_forced_call_waits_for_who_works_on_its_key_in_this_process() -> None:
    gate = Gate()
    stage = await LaneStage(gate).start()
    first = await stage.post([call("a", inbox="other")])
    await stage.clock.advance(10)
    posting = asyncio.create_task(stage.post([forced("a")]))
    await stage.clock.advance(5_000)
    assert [items_of(request) for request in stage.requests.sent] == [["a"]] and not posting.done()
    gate.open.set()
    await stage.clock.advance(1_100)
    await stage.finish(await posting)
    assert first.is_done and len(stage.requests.sent) == 2
    assert stage.balanced()


async def test_a_plain_call_waits_for_a_forced_one_of_this_process_by_polling() -> None:
    gate = Gate()
    stage = await LaneStage(gate).start()
    going = await stage.post([forced("a")])
    await stage.clock.advance(10)
    left = await stage.post([call("a", inbox="other")])
    assert left.is_done and not await stage.answers("other")
    gate.open.set()
    await stage.finish(going)
    assert len(stage.requests.sent) == 1 and call("a").key in stage.receipts.stored
    assert stage.balanced()


async def test_a_forced_call_waits_for_another_process() -> None:
    gate = Gate()
    one = await LaneStage(gate).start()
    two = await LaneStage(session="lane-2", redis=one.redis, receipts=one.receipts, clock=one.clock).start(
        first=False
    )
    await one.post([call("a", inbox="other")])
    await one.clock.advance(10)
    posting = asyncio.create_task(two.post([forced("a")]))
    await one.clock.advance(3_000)
    assert not two.requests.sent and forced("a").key not in one.redis.leases, "it holds nothing meanwhile"
    gate.open.set()
    await one.clock.advance(1_100)
    await two.finish(await posting)
    assert len(two.requests.sent) == 1 and two.balanced()


async def test_a_dead_process_s_forced_call_is_taken_over_with_both_its_keys() -> None:
    gate = Gate()
    one = await LaneStage(gate, receipts=held("a")).start()
    await one.post([forced("a", inbox="rows-9")])
    await one.clock.advance(10)
    (sent,) = one.requests.sent
    await one.die()
    two = await LaneStage(session="lane-2", redis=one.redis, receipts=one.receipts, clock=one.clock).start(
        first=False
    )
    await two.engine.sweep()
    await two.clock.advance(50)
    (again,) = two.requests.sent
    assert (again.payload, again.idempotency_key) == (sent.payload, sent.idempotency_key)
    assert two.receipts.stored[call("a").key].output == b'{"value":"v:a"}'
    assert (await two.answers("rows-9"))[forced("a").key].state is AnswerState.COMPLETED
    assert two.balanced()


async def test_a_dead_process_s_refresh_is_taken_over_though_an_old_result_is_stored() -> None:
    one = await LaneStage(Gate(), receipts=held("a")).start()
    await one.post([fresh("a", inbox="rows-9")])
    await one.clock.advance(10)
    await one.die()
    two = await LaneStage(session="lane-2", redis=one.redis, receipts=one.receipts, clock=one.clock).start(
        first=False
    )
    await two.engine.sweep()
    await two.clock.advance(50)
    assert two.requests.sent[0].item_idempotency_keys == one.requests.sent[0].item_idempotency_keys
    assert two.receipts.stored[call("a").key].run_id == "r2"
    assert (await two.answers("rows-9"))[call("a").key].output == b'{"value":"v:a"}'
    assert two.balanced()


async def test_a_batch_waits_as_long_as_its_most_patient_member() -> None:
    stage = await LaneStage().start()
    hasty = [replace(call(item), timeout_ms=ms) for item, ms in (("a", 1_000.0), ("b", 2_000.0))]
    (request,) = await sent_with(stage, *hasty)
    assert request.timeout_ms == 2_000
    (request,) = await sent_with(stage, replace(call("c"), timeout_ms=1_000.0), call("d"))
    assert request.timeout_ms == 930_000


async def test_calls_under_other_credentials_never_share_a_request() -> None:
    stage = await LaneStage().start()
    sent = await sent_with(stage, replace(call("a"), auth_scope="one"), replace(call("b"), auth_scope="two"))
    assert sorted(items_of(request) for request in sent) == [["a"], ["b"]]


async def test_queued_calls_of_an_ended_run_are_given_back_within_a_second() -> None:
    ended: set[str] = set()

    class Runs:
        async def ended(self, run_ids: list[str]) -> set[str]:
            return ended & set(run_ids)

    stage = await LaneStage(Gate(), groups=1, runs=Runs()).start()
    await stage.post([call("first", run_id="busy")])
    await stage.clock.advance(10)
    gone = await stage.post([call("gone", run_id="ending")])
    await stage.clock.advance(3_000)
    assert not gone.is_done
    ended.add("ending")
    await stage.clock.advance(1_000)
    assert gone.is_done and (await stage.answers())[call("gone").key].state is AnswerState.RETURNED
    assert call("gone").key not in stage.redis.leases
    await stage.die()
