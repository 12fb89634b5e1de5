"""Takeover: which dead batches are swept, and a batch of which one member went to another session."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from runtime.model.lease import Claim
from runtime.model.physical_request import PhysicalReply, PhysicalRequest
from runtime.model.receipt import Receipt, ReceiptState
from tests.lane_stage import LaneStage, calls, echo, items_of


class Runs:
    """Which runs have ended."""

    def __init__(self, *ended: str) -> None:
        self.over = set(ended)

    async def ended(self, run_ids: Sequence[str]) -> set[str]:
        return self.over & set(run_ids)


async def never(_request: PhysicalRequest) -> PhysicalReply:
    return await asyncio.get_running_loop().create_future()


async def dead_batch(count: int, run_id: str = "r1") -> LaneStage:
    stage = await LaneStage(never).start()
    await stage.post(calls(count, run_id, run_id=run_id))
    await stage.clock.advance(10)
    await stage.die()
    return stage


async def heir(
    of: LaneStage, runs: Runs | None = None, session: str = "lane-2", answer: Any = echo
) -> LaneStage:
    stage = LaneStage(
        answer, session=session, redis=of.redis, receipts=of.receipts, clock=of.clock, runs=runs
    )
    return await stage.start()


async def test_a_batch_whose_runs_have_all_ended_waits_for_the_next_asker() -> None:
    one = await dead_batch(3)
    two = await heir(one, Runs("r1"))
    await two.engine.sweep()
    await two.clock.advance(10)
    assert not two.requests.sent and one.redis.batches, "left as it is"
    asking = await two.post(calls(2, "r1", run_id="r2", inbox="rows-2"))
    await two.finish(asking, within_ms=20)
    assert [len(items_of(request)) for request in two.requests.sent] == [3]
    assert len(await two.answers("rows-2")) == 2 and two.balanced()


async def test_a_committed_batch_of_an_ended_run_leaves_no_lease() -> None:
    """Killed between its commit and its release, and found only after its callers had read the receipts and ended."""
    one = await dead_batch(3)
    (record,) = one.redis.batches.values()
    stored = [
        Receipt(
            key=member["key"],
            org_id="o",
            tool="echo",
            run_id="r1",
            state=ReceiptState.COMPLETED,
            fence=member["fence"],
            output=b"1",
        )
        for member in record.members
    ]
    await one.receipts.commit("lane-1", stored, ())
    two = await heir(one, Runs("r1"))
    await two.engine.sweep()
    await two.clock.advance(10)
    assert not two.requests.sent and not one.redis.batches and not one.redis.leases


async def test_one_live_run_behind_a_batch_is_enough() -> None:
    one = await LaneStage(never).start()
    await one.post([*calls(1, "a", run_id="r1"), *calls(1, "b", run_id="r2")])
    await one.clock.advance(10)
    await one.die()
    two = await heir(one, Runs("r1"))
    await two.engine.sweep()
    await two.clock.advance(10)
    assert len(two.requests.sent) == 1 and two.balanced()


async def test_batches_that_wait_for_an_asker_hide_no_other() -> None:
    one = await dead_batch(1, "old")
    later = await LaneStage(never, session="lane-1b", redis=one.redis, clock=one.clock).start()
    await later.post(calls(1, "new", run_id="new"))
    await later.clock.advance(10)
    await later.die()
    runs = Runs("old")
    two = await heir(one, runs)
    await two.engine.sweep()
    await two.clock.advance(10)
    assert [items_of(request) for request in two.requests.sent] == [["new0"]]


async def test_a_member_that_went_to_another_session_stays_in_the_payload_only() -> None:
    """Its lease key was lost and another session claimed it: that session answers for it, this one for the rest."""
    one = await dead_batch(3)
    posted = calls(3, "r1")
    del one.redis.leases[posted[1].key]
    other = await LaneStage(never, session="lane-9", redis=one.redis, clock=one.clock).start()
    await other.post([posted[1]])
    await other.clock.advance(10)
    two = await heir(one)
    await two.engine.sweep()
    await two.clock.advance(10)
    assert [r.payload for r in two.requests.sent] == [r.payload for r in one.requests.sent]
    assert {r.idempotency_key for r in two.requests.sent} == {r.idempotency_key for r in one.requests.sent}
    stored = two.receipts.stored
    assert set(stored) == {posted[0].key, posted[2].key}
    assert {receipt.state for receipt in stored.values()} == {ReceiptState.COMPLETED}
    assert one.redis.leases[posted[1].key].session == "lane-9"
    assert not two.engine.held()[0]


async def test_a_batch_adopted_while_a_post_asks_for_its_calls_stays_whole() -> None:
    """The post's claim is answered by Redis before the adoption and read after it: its calls are the batch's by then.

    Their leases would be forgotten, and held as long as the process lives.
    """
    one = await dead_batch(3)
    may_answer = asyncio.Event()

    async def late(request: PhysicalRequest) -> PhysicalReply:
        await may_answer.wait()
        return echo(request)

    two = await heir(one, answer=late)
    claim, asked, may_read = two.leases.claim, asyncio.Event(), asyncio.Event()

    async def read_late(
        session_id: str, receipt_keys: Sequence[str], floors: Mapping[str, int]
    ) -> list[Claim]:
        found = await claim(session_id, receipt_keys, floors)
        asked.set()
        await may_read.wait()
        return found

    two.leases.claim = read_late
    posting = asyncio.create_task(two.post(calls(3, "r1", inbox="rows-2")))
    await asked.wait()
    await two.engine.sweep()
    await two.clock.advance(0)
    may_read.set()
    accepted = await posting
    may_answer.set()
    await two.finish(accepted, within_ms=20)
    assert [len(items_of(request)) for request in two.requests.sent] == [3]
    assert len(await two.answers("rows-2")) == 3 and two.balanced()
