"""Calls of runs that have ended: a post that waited longer than its run lived, and a batch that would be repeated."""

from collections.abc import Sequence

from runtime.model.failure import FailureClass
from runtime.model.physical_request import PhysicalReply, PhysicalRequest
from tests.lane_stage import LIMITS, LaneStage, call, calls, echo, failing, items_of


class Runs:
    """Which runs have ended, and how often that was asked."""

    def __init__(self, *ended: str) -> None:
        self.over = set(ended)
        self.asked = 0

    async def ended(self, run_ids: Sequence[str]) -> set[str]:
        self.asked += 1
        return self.over & set(run_ids)


async def test_a_post_that_outlived_its_run_is_not_sent() -> None:
    """The lane's processes were away while a run was cancelled: its posts are in the queue still. No answer asks for
    them again; a caller that doesn't know yet polls."""
    stage = await LaneStage(runs=Runs("gone")).start()
    accepted = await stage.post([*calls(3, run_id="gone"), call("wanted", run_id="live")])
    await stage.finish(accepted)
    assert [items_of(request) for request in stage.requests.sent] == [["wanted"]]
    assert len(await stage.answers()) == 1 and stage.balanced()


async def test_runs_are_asked_after_once_a_second() -> None:
    runs = Runs()
    stage = await LaneStage(runs=runs).start()
    for n in range(5):
        await stage.finish(await stage.post(calls(2, f"a{n}-")))
    assert runs.asked == 1
    await stage.clock.advance(LIMITS.ended_runs_ms)
    runs.over.add("r1")
    await stage.finish(await stage.post(calls(2, "late")))
    assert runs.asked == 2 and len(stage.requests.sent) == 5 and stage.balanced()


async def test_a_refused_batch_is_not_repeated_for_runs_that_have_ended() -> None:
    runs = Runs()
    answers = iter([failing(FailureClass.RATE_LIMITED, retry_after_ms=5_000)])

    def limited_once(request: PhysicalRequest) -> PhysicalReply:
        for error in answers:
            raise error
        return echo(request)

    stage = await LaneStage(limited_once, runs=runs).start()
    accepted = await stage.post(calls(3))
    await stage.clock.advance(10)
    runs.over.add("r1")
    await stage.finish(accepted, within_ms=6_000)
    assert len(stage.requests.sent) == 1 and not stage.receipts.stored and stage.balanced()


async def test_a_refused_batch_is_repeated_for_one_live_run() -> None:
    runs = Runs()
    answers = iter([failing(FailureClass.RATE_LIMITED, retry_after_ms=5_000)])

    def limited_once(request: PhysicalRequest) -> PhysicalReply:
        for error in answers:
            raise error
        return echo(request)

    stage = await LaneStage(limited_once, runs=runs).start()
    accepted = await stage.post([call("a"), call("b", run_id="live")])
    await stage.clock.advance(10)
    runs.over.add("r1")
    await stage.finish(accepted, within_ms=6_000)
    assert [len(items_of(request)) for request in stage.requests.sent] == [2, 2]
    assert len(await stage.answers()) == 2 and stage.balanced()
