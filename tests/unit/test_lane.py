"""The lane engine from a post to its answers."""

import asyncio
from dataclasses import replace

from runtime.model.call import AnswerState
from runtime.model.physical_request import PhysicalReply, PhysicalRequest
from runtime.model.receipt import ReceiptState
from runtime.policy.limits import Limits
from runtime.testing_redis import settle
from tests.lane_stage import LaneStage, Receipts, call, calls, echo, items_of, tool


async def test_a_post_becomes_one_batch_and_every_call_is_answered() -> None:
    stage = await LaneStage().start()
    accepted = await stage.post(calls(40))
    assert not accepted.is_done
    await stage.finish(accepted)
    answers = await stage.answers()
    assert [len(items_of(request)) for request in stage.requests.sent] == [40]
    assert {a.output for a in answers.values()} == {b'{"value":"v:i%d"}' % n for n in range(40)}
    assert all(a.state is AnswerState.COMPLETED and not a.cached for a in answers.values())
    assert {r.state for r in stage.receipts.stored.values()} == {ReceiptState.COMPLETED}
    (usage,) = stage.receipts.usage
    assert (usage.items, usage.batches, usage.capacity, usage.credits) == (40, 1, 100, 40.0)
    assert stage.balanced()


async def test_a_full_bucket_does_not_wait_for_its_window() -> None:
    stage = await LaneStage().start()
    await stage.post(calls(100))
    await settle()
    assert [len(items_of(request)) for request in stage.requests.sent] == [100]


async def test_the_window_is_never_reset_by_later_calls() -> None:
    stage = await LaneStage().start()
    await stage.post(calls(1, "a"))
    await stage.clock.advance(4.9)
    await stage.post(calls(1, "b"))
    assert not stage.requests.sent
    await stage.clock.advance(0.1)
    assert [items_of(request) for request in stage.requests.sent] == [["a0", "b0"]]


async def test_what_a_receipt_answers_is_not_sent() -> None:
    stage = await LaneStage().start()
    await stage.finish(await stage.post(calls(3)))
    await stage.answers()
    again = await stage.post(calls(4))
    await stage.finish(again)
    assert [items_of(request) for request in stage.requests.sent] == [["i0", "i1", "i2"], ["i3"]]
    cached = [answer.cached for answer in (await stage.answers()).values()]
    assert cached.count(True) == 3
    assert stage.balanced()


async def test_equal_calls_are_one_item_for_all_who_ask_even_on_the_wire() -> None:
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def slow(request: PhysicalRequest) -> PhysicalReply:
        await gate
        return echo(request)

    stage = await LaneStage(slow).start()
    first = await stage.post([call("a"), call("a")])
    await stage.clock.advance(10)
    second = await stage.post([call("a", run_id="r2", inbox="rows-2")])
    gate.set_result(None)
    await settle()
    assert first.is_done and second.is_done
    assert [items_of(request) for request in stage.requests.sent] == [["a"]]
    assert set(await stage.answers("rows-1")) == set(await stage.answers("rows-2")) == {call("a").key}


async def test_scarce_places_fill_batches() -> None:
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def slow(request: PhysicalRequest) -> PhysicalReply:
        await gate
        return echo(request)

    stage = await LaneStage(slow, groups=1, metadata=tool(10)).start()
    posts = []
    for n in range(7):
        posts.append(await stage.post(calls(3, f"p{n}-")))
        await stage.clock.advance(6)
    gate.set_result(None)
    await stage.clock.advance(10)
    assert all(post.is_done for post in posts)
    assert [len(items_of(request)) for request in stage.requests.sent] == [3, 10, 8]


async def test_runs_take_turns() -> None:
    stage = await LaneStage(metadata=tool(10), groups=1).start()
    await asyncio.gather(
        stage.post(calls(30, "big", run_id="big")), stage.post(calls(5, "small", run_id="small"))
    )
    await stage.clock.advance(20)
    first = items_of(stage.requests.sent[0])
    second = items_of(stage.requests.sent[1])
    assert sum(item.startswith("small") for item in first + second) == 5
    big = [item for request in stage.requests.sent for item in items_of(request) if item.startswith("big")]
    assert big == [f"big{n}" for n in range(30)]


async def test_groups_are_capped_per_lane() -> None:
    running = peak = 0

    async def counting(request: PhysicalRequest) -> PhysicalReply:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await settle(20)
        running -= 1
        return echo(request)

    stage = await LaneStage(counting, metadata=tool(2), groups=3).start()
    accepted = await stage.post(calls(40))
    for _ in range(40):
        await stage.clock.advance(1)
    assert accepted.is_done and peak == 3


async def test_calls_that_another_process_works_for_are_left_to_it() -> None:
    one = await LaneStage().start()
    two = await LaneStage(session="lane-2", redis=one.redis, receipts=one.receipts, clock=one.clock).start()
    await one.post(calls(5))
    left = await two.post(calls(5, inbox="rows-2"))
    assert left.is_done
    await one.clock.advance(20)
    assert len(one.requests.sent) == 1 and not two.requests.sent
    assert await two.answers("rows-2") == {}


async def test_a_stored_newer_generation_raises_the_fence() -> None:
    stage = await LaneStage().start()
    first = call("a")
    await stage.finish(await stage.post([first]))
    stored = stage.receipts.stored[first.key]
    stage.receipts.stored[first.key] = replace(
        stored, state=ReceiptState.FAILED, output=None, error={}, fence=stored.fence + 10**12, run_id="old"
    )
    await stage.finish(await stage.post([first]))
    now = stage.receipts.stored[first.key]
    assert now.state is ReceiptState.COMPLETED and now.fence == stored.fence + 10**12 + 1


async def test_too_large_an_output_fails_its_call_alone() -> None:
    def answer(request: PhysicalRequest) -> PhysicalReply:
        reply = echo(request)
        reply.result["items"][1]["result"]["value"] = "x" * 5000
        return reply

    stage = await LaneStage(answer, limits=Limits(receipt_output_bytes=1000)).start()
    posted = calls(3)
    await stage.finish(await stage.post(posted))
    answers = await stage.answers()
    assert [answers[c.key].state for c in posted] == ["completed", "failed", "completed"]
    error = answers[posted[1].key].error
    assert error is not None and error["code"] == "output_too_large" and "5012" in error["message"]
    assert stage.receipts.stored[posted[1].key].terminal


async def test_a_large_output_travels_as_a_reference() -> None:
    def answer(request: PhysicalRequest) -> PhysicalReply:
        reply = echo(request)
        reply.result["items"][0]["result"]["value"] = "x" * 70_000
        return reply

    stage = await LaneStage(answer).start()
    await stage.finish(await stage.post(calls(1)))
    (answer_,) = (await stage.answers()).values()
    assert answer_.state is AnswerState.STORED and answer_.output is None


async def test_single_calls_travel_alone() -> None:
    stage = await LaneStage(metadata=tool(1)).start()
    await stage.finish(await stage.post(calls(3)))
    assert sorted(items_of(request)[0] for request in stage.requests.sent) == ["i0", "i1", "i2"]
    assert all(request.receipt_key for request in stage.requests.sent)
    assert len(await stage.answers()) == 3


async def test_drain_gives_queued_calls_back_and_finishes_what_is_on_the_wire() -> None:
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def slow(request: PhysicalRequest) -> PhysicalReply:
        await gate
        return echo(request)

    stage = await LaneStage(slow, metadata=tool(10), groups=1).start()
    accepted = await stage.post(calls(25))
    await stage.clock.advance(6)
    draining = asyncio.get_running_loop().create_task(stage.engine.drain(5))
    await settle()
    gate.set_result(None)
    await draining
    assert accepted.is_done
    states = [answer.state for answer in (await stage.answers()).values()]
    assert (states.count(AnswerState.COMPLETED), states.count(AnswerState.RETURNED)) == (10, 15)
    assert stage.balanced()
    late = await stage.post(calls(2, "late"))
    assert late.is_done and {a.state for a in (await stage.answers()).values()} == {AnswerState.RETURNED}


async def test_a_lost_session_sends_nothing_more() -> None:
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def slow(request: PhysicalRequest) -> PhysicalReply:
        await gate
        return echo(request)

    stage = await LaneStage(slow, metadata=tool(10), groups=1).start()
    accepted = await stage.post(calls(25))
    await stage.clock.advance(6)
    stage.engine.session_lost()
    gate.set_result(None)
    await stage.clock.advance(50)
    assert accepted.is_done and len(stage.requests.sent) == 1
    assert len(stage.receipts.stored) == 10, "what was on the wire is committed"


async def test_queued_calls_of_ended_runs_are_given_back() -> None:
    class Runs:
        async def ended(self, run_ids: list[str]) -> set[str]:
            return {"r1"} & set(run_ids)

    stage = await LaneStage(runs=Runs(), receipts=Receipts()).start()
    gone = await stage.post(calls(3, "a"))
    kept = await stage.post(calls(3, "b", run_id="r2"))
    await stage.engine.sweep()
    assert gone.is_done and not kept.is_done
    await stage.finish(kept)
    assert [items_of(request) for request in stage.requests.sent] == [["b0", "b1", "b2"]]
    assert stage.balanced()
