"""A lane and the budgets of the runs that it works for."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from runtime.model.budget import Account, Caps
from runtime.model.call import Answer, AnswerState, Call
from runtime.model.failure import FailureClass
from runtime.model.physical_request import PhysicalReply, PhysicalRequest
from runtime.policy.limits import Limits
from runtime.testing import MemoryStores
from runtime.testing.budgets import MemoryBudgets
from runtime.testing_redis import ManualClock
from tests.lane_stage import LIMITS, LaneStage, call, calls, echo, failing, items_of, tool

DAY_S = 24 * 3600.0


def counted(one: Call, *accounts: str) -> Call:
    return replace(one, accounts=accounts or (one.run_id,))


class Budgets:
    """A lane with accounts of one or more runs; time is the clock's."""

    def __init__(
        self, answer: Callable[[PhysicalRequest], Any] = echo, *, limits: Limits = LIMITS, **stage: Any
    ) -> None:
        self.clock = ManualClock()
        stores = MemoryStores(lambda: self.clock.now_ms() / 1000, limits)
        self.store: MemoryBudgets = stores.budgets
        self.lane = LaneStage(answer, clock=self.clock, budgets=self.store, limits=limits, **stage)

    async def open(self, run_id: str = "r1", *callers: str, **caps: Any) -> None:
        await self.store.open(run_id, Caps(**caps), callers)

    async def answers(self, *posted: Call, within_ms: float = 20.0) -> dict[str, Answer]:
        accepted = await self.lane.post(posted)
        await self.lane.finish(accepted, within_ms=within_ms)
        found = await self.lane.answers()
        return {one.input["item"]: found[one.key] for one in posted}

    def account(self, run_id: str = "r1") -> Account:
        return self.store.accounts[run_id].now

    @property
    def sent(self) -> list[str]:
        return [item for request in self.lane.requests.sent for item in items_of(request)]


def states(answers: dict[str, Answer]) -> dict[str, AnswerState]:
    return {item: answer.state for item, answer in answers.items()}


async def test_calls_beyond_the_cap_are_not_made_and_say_so() -> None:
    stage = Budgets()
    await stage.lane.start()
    await stage.open(credits=2)
    found = await stage.answers(*(counted(one) for one in calls(4)))
    assert states(found) == {
        "i0": AnswerState.COMPLETED,
        "i1": AnswerState.COMPLETED,
        "i2": AnswerState.OVER_BUDGET,
        "i3": AnswerState.OVER_BUDGET,
    }
    assert stage.sent == ["i0", "i1"]
    refused = found["i2"]
    assert refused.run_id == "r1"
    assert refused.until_ms == LIMITS.budget_wait_s * 1000
    assert refused.error is not None
    assert "run r1 has used 2 of its 2 credits" in refused.error["message"]
    assert "`playlane budget r1 --credits N`" in refused.error["message"]
    assert refused.error["details"] == {
        "account": "r1",
        "cap": "credits",
        "used": 2,
        "most": 2,
        "needs": 1,
    }
    assert (stage.account().credits_spent, stage.account().credits_held) == (2, 0)
    assert stage.lane.balanced()


async def test_a_run_without_caps_asks_no_budget() -> None:
    stage = Budgets()
    await stage.lane.start()
    await stage.open(credits=0)

    async def refuse(*_: Any) -> Any:
        raise AssertionError("no budget is asked")

    stage.store.reserve = stage.store.free = refuse  # type: ignore[method-assign]
    found = await stage.answers(*calls(3))
    assert set(states(found).values()) == {AnswerState.COMPLETED}


async def test_followers_and_stored_results_pay_nothing() -> None:
    stage = Budgets()
    await stage.lane.start()
    await stage.open("r1", credits=1)
    await stage.open("r2", credits=0)
    mine, other = counted(call("a")), counted(call("a", run_id="r2", inbox="rows-2"))
    accepted = await stage.lane.post([mine, other])
    await stage.lane.finish(accepted)
    assert (await stage.lane.answers("rows-2"))[other.key].state is AnswerState.COMPLETED
    await stage.lane.answers()
    again = await stage.answers(counted(call("a", run_id="r2")))
    assert again["a"].cached
    assert (stage.account("r1").credits, stage.account("r2").credits) == (1, 0)


async def test_another_run_is_not_told_of_a_budget_that_is_not_its_own() -> None:
    """The answer names the run that has no room; a caller of another run posts its own call."""
    stage = Budgets()
    await stage.lane.start()
    await stage.open("poor", credits=0)
    poor = counted(call("a", run_id="poor"))
    rich = call("a", run_id="rich", inbox="rows-2")
    accepted = await stage.lane.post([poor, rich])
    await stage.lane.finish(accepted)
    told = (await stage.lane.answers("rows-2"))[rich.key]
    assert (told.state, told.run_id) == (AnswerState.OVER_BUDGET, "poor")
    await stage.lane.finish(await stage.lane.post([rich]))
    assert (await stage.lane.answers("rows-2"))[rich.key].state is AnswerState.COMPLETED


async def test_what_a_reply_charges_is_what_counts() -> None:
    def cheap(request: PhysicalRequest) -> PhysicalReply:
        return replace(echo(request), credits=0.5)

    stage = Budgets(cheap, metadata=replace(tool(1), credits_at_most=3.0))
    await stage.lane.start()
    await stage.open(credits=4)
    found = await stage.answers(counted(call("a")), counted(call("b")))
    assert sorted(states(found).values()) == [AnswerState.COMPLETED, AnswerState.OVER_BUDGET]
    assert stage.account().credits == 0.5
    assert [one.rows for one in await stage.store.waiting()] == [1]
    found = await stage.answers(counted(call("b")))
    assert found["b"].state is AnswerState.COMPLETED


async def test_a_reply_that_proves_no_charge_frees_the_call() -> None:
    stage = Budgets(lambda _request: _raise(failing(FailureClass.NOT_FOUND)))
    await stage.lane.start()
    await stage.open(credits=5)
    found = await stage.answers(counted(call("a")))
    assert found["a"].state is AnswerState.FAILED
    assert (stage.account().credits, stage.account().tool_calls) == (0, 0)


async def test_an_unknown_outcome_is_spent() -> None:
    stage = Budgets(lambda _request: _raise(failing(FailureClass.AMBIGUOUS)))
    await stage.lane.start()
    await stage.open(credits=5)
    found = await stage.answers(counted(call("a")))
    assert found["a"].state is AnswerState.UNKNOWN
    assert (stage.account().credits_spent, stage.account().tool_calls) == (1, 1)


async def test_a_failed_item_of_a_bill_that_others_explain_is_freed() -> None:
    def one_bad(request: PhysicalRequest) -> PhysicalReply:
        reply = echo(request)
        reply.result["items"][0] = {"key": reply.result["items"][0]["key"], "error": {"code": "bad"}}
        return replace(reply, credits=1.0)

    stage = Budgets(one_bad)
    await stage.lane.start()
    await stage.open(credits=5)
    found = await stage.answers(counted(call("a")), counted(call("b")))
    assert states(found) == {"a": AnswerState.FAILED, "b": AnswerState.COMPLETED}
    assert (stage.account().credits, stage.account().tool_calls) == (1, 1)


@pytest.mark.parametrize(
    ("cost", "bill", "spent", "freed"),
    [
        (0.5, None, [0.5, 1.0], False),
        (0.5, 3.0, [0.5, 1.5], False),  # who doesn't say has an equal share
        (0, 3.0, [0.0, 3.0], True),
        (None, 3.0, [0.0, 3.0], True),  # the other explains the bill
        (
            None,
            None,
            [0.0, 1.0],
            False,
        ),  # nobody knows: kept from the budget, not in what is known to be spent
    ],
)
async def test_what_a_failed_item_cost_is_in_its_runs_usage(
    cost: float | None, bill: float | None, spent: list[float], freed: bool
) -> None:
    """A run that pays for misses and failures says so: usage and budget count the same credits."""

    def one_bad(request: PhysicalRequest) -> PhysicalReply:
        reply = echo(request)
        error = {"code": "bad"} if cost is None else {"code": "bad", "credits": cost}
        reply.result["items"][0] = {"key": reply.result["items"][0]["key"], "error": error}
        return replace(reply, credits=bill)

    stage = Budgets(one_bad)
    await stage.lane.start()
    await stage.open("r1", credits=9)
    await stage.open("r2", credits=9)
    await stage.answers(counted(call("a")), counted(call("b", run_id="r2")))
    assert {one.run_id: one.credits for one in stage.lane.receipts.usage} == {"r1": spent[0], "r2": spent[1]}
    assert stage.account("r1").tool_calls == (0 if freed else 1)
    if cost is not None:
        assert [stage.account("r1").credits_spent, stage.account("r2").credits_spent] == spent


async def test_calls_that_are_given_back_give_their_budget_back() -> None:
    stage = Budgets(groups=0)
    await stage.lane.start()
    await stage.open(credits=5)
    await stage.lane.post([counted(one) for one in calls(3)])
    assert stage.account().credits_held == 3
    await stage.lane.engine.drain(0)
    assert {answer.state for answer in (await stage.lane.answers()).values()} == {AnswerState.RETURNED}
    assert stage.account().credits == 0
    assert stage.account().tool_calls == 0


async def test_after_its_whole_time_a_call_fails() -> None:
    stage = Budgets(limits=replace(LIMITS, budget_wait_s=7 * DAY_S))
    await stage.lane.start()
    await stage.open(credits=0)
    assert states(await stage.answers(counted(call("a")))) == {"a": AnswerState.OVER_BUDGET}
    await stage.clock.advance(6 * DAY_S * 1000)
    found = await stage.answers(counted(call("a")))
    assert found["a"].state is AnswerState.OVER_BUDGET
    assert found["a"].until_ms is not None
    assert found["a"].until_ms <= DAY_S * 1000
    await stage.clock.advance(DAY_S * 1000)
    found = await stage.answers(counted(call("a")))
    assert found["a"].state is AnswerState.FAILED
    assert found["a"].error is not None
    assert found["a"].error["code"] == "budget_exceeded"


async def test_a_run_without_retries_left_fails_and_its_neighbours_are_asked_anew() -> None:
    stage = Budgets(lambda _request: _raise(failing(FailureClass.RATE_LIMITED, retry_after_ms=1)))
    await stage.lane.start()
    await stage.open("r1", retries=1)
    poor, rich = counted(call("a")), call("b", run_id="r2")
    found = await stage.answers(poor, rich, within_ms=2_000)
    assert states(found) == {"a": AnswerState.FAILED, "b": AnswerState.RETURNED}
    assert len(stage.lane.requests.sent) == 2
    assert found["a"].error is not None
    assert found["a"].error["code"] == "retries_exceeded"
    assert "run r1 has used 1 of its 1 retries" in found["a"].error["message"]
    assert stage.account().retries == 1
    assert (stage.account().credits, stage.account().tool_calls) == (0, 0)
    assert stage.lane.balanced()


async def test_asking_after_an_earlier_send_takes_no_retry() -> None:
    """The API says that it still works on the same invocation: no new attempt is made. It is bounded by time."""
    refusals = [failing(FailureClass.IN_PROGRESS) for _ in range(5)]
    stage = Budgets(lambda request: _raise(refusals.pop()) if refusals else echo(request))
    await stage.lane.start()
    await stage.open(retries=1)
    found = await stage.answers(counted(call("a")), within_ms=60_000)
    assert states(found) == {"a": AnswerState.COMPLETED}
    assert len(stage.lane.requests.sent) == 6
    assert stage.account().retries == 0
    refusals += [failing(FailureClass.IN_PROGRESS) for _ in range(10_000)]
    found = await stage.answers(counted(call("b")), within_ms=2 * LIMITS.in_progress_total_ms)
    assert states(found) == {"b": AnswerState.UNKNOWN}
    assert stage.account().retries == 0


async def test_a_retry_counts_once_a_request_however_many_calls_it_holds() -> None:
    """Five calls of a run, two of another one, both within the lineage of a third: one repeated request."""
    refusals = [failing(FailureClass.RATE_LIMITED, retry_after_ms=1)]
    stage = Budgets(lambda request: _raise(refusals.pop()) if refusals else echo(request))
    await stage.lane.start()
    await stage.open("parent", retries=1)
    await stage.open("r1", "parent", retries=1)
    await stage.open("r2", "parent", retries=1)
    mine = [counted(one, "parent", "r1") for one in calls(5)]
    other = [counted(one, "parent", "r2") for one in calls(2, "j", run_id="r2")]
    found = await stage.answers(*mine, *other, within_ms=2_000)
    assert set(states(found).values()) == {AnswerState.COMPLETED}
    assert len(stage.lane.requests.sent) == 2
    assert [stage.account(name).retries for name in ("parent", "r1", "r2")] == [1, 1, 1]


async def test_a_takeover_pays_once() -> None:
    """A lane dies between the send and the answer; the next one sends the batch again and settles its budget."""

    async def never(_request: PhysicalRequest) -> PhysicalReply:
        await first.clock.sleep(1e9)
        raise AssertionError

    first = Budgets(never)
    await first.lane.start()
    await first.open(credits=2)
    posted = [counted(one) for one in calls(2)]
    await first.lane.post(posted)
    await first.clock.advance(20)
    assert first.account().credits_held == 2
    await first.lane.die()
    second = LaneStage(
        echo,
        session="lane-2",
        redis=first.lane.redis,
        receipts=first.lane.receipts,
        clock=first.clock,
        budgets=first.store,
    )
    await second.start(first=False)
    await second.engine.sweep()
    await first.clock.advance(50)
    account = first.account()
    assert (account.credits_held, account.credits_spent, account.tool_calls) == (0, 2, 2)
    await second.finish(await second.post([counted(call("i0")), counted(call("new"))]))
    found = await second.answers()
    assert found[posted[0].key].cached
    assert found[call("new").key].state is AnswerState.OVER_BUDGET


def _raise(error: Exception) -> Any:
    raise error
