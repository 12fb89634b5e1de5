"""Every failure class through a real lane: what the ledger, the receipt and the message say."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from runtime.engine.tool_calls import CallContext
from runtime.errors import ToolCallError
from runtime.model.call import AnswerState
from runtime.model.failure import FailureClass
from runtime.model.receipt import ReceiptState
from tests.integration.calling import tool_calls
from tests.integration.lane_world import LaneWorld, calls_of, lane_world
from tests.waiting import wait_until_async

C = FailureClass
COMPLETED = (ReceiptState.COMPLETED, False)
REPAIRABLE, FINAL = (ReceiptState.FAILED, False), (ReceiptState.FAILED, True)
UNKNOWN, UNKNOWN_FOR_ALL = (ReceiptState.UNKNOWN, False), (ReceiptState.UNKNOWN, True)
FOREVER = 10_000


@pytest.fixture
async def world(database_url: str, redis_url: str) -> AsyncIterator[LaneWorld]:
    async with lane_world(database_url, redis_url) as made:
        yield made


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`statuses`: what the ledger holds of each request, None = at least three, all but the last alike."""

    of: FailureClass
    how: dict[str, Any]
    receipt: tuple[ReceiptState, bool] | None
    statuses: list[int] | None
    charged: int = 0
    tool: str = "echo_single"
    says: str = ""
    mode: str | None = None
    tags: str = ""

    def __str__(self) -> str:
        return f"{self.of.value}-{self.tags}".strip("-")


def answer(status: int, times: int = 1, **how: Any) -> dict[str, Any]:
    return {"answer": {"status": status, "times": times, **how}}


CASES = (
    Case(
        of=C.TRANSPORT_BEFORE_DISPATCH,
        tags="passes",
        how={"refuse_ms": 15},
        receipt=COMPLETED,
        statuses=[200],
        charged=1,
    ),
    Case(
        of=C.AMBIGUOUS,
        tags="work_done",
        how={"drop": {"work_done": True}},
        receipt=UNKNOWN,
        statuses=[0],
        charged=1,
        says="attempt 1, request pl-",
    ),
    Case(
        of=C.AMBIGUOUS,
        tags="nothing_done",
        how={"drop": {}},
        receipt=UNKNOWN,
        statuses=[0],
        says="it may have been charged",
    ),
    Case(
        of=C.AMBIGUOUS,
        tags="fixture",
        how={"drop": {"work_done": True}},
        receipt=COMPLETED,
        statuses=[0, 200],
        charged=1,
        mode="fixture",
    ),
    Case(
        of=C.AMBIGUOUS,
        tags="fenced",
        how={"drop": {"work_done": True}},
        tool="echo_fenced",
        receipt=COMPLETED,
        statuses=[0, 200],
        charged=1,
    ),
    Case(
        of=C.AMBIGUOUS,
        tags="fence_not_attested",
        how={"drop": {"work_done": True}, "attest_fence": False},
        tool="echo_fenced",
        receipt=UNKNOWN_FOR_ALL,
        statuses=[0],
        charged=1,
    ),
    Case(
        of=C.RATE_LIMITED,
        tags="passes",
        how=answer(429, 2, retry_after="0"),
        receipt=COMPLETED,
        statuses=[429, 429, 200],
        charged=1,
    ),
    Case(
        of=C.RATE_LIMITED,
        tags="stays",
        how=answer(429, FOREVER, retry_after="0.02"),
        receipt=REPAIRABLE,
        statuses=None,
        says="status 429",
    ),
    Case(
        of=C.TRANSIENT,
        tags="passes",
        how=answer(503, 2),
        receipt=COMPLETED,
        statuses=[503, 503, 200],
        charged=1,
    ),
    Case(
        of=C.TRANSIENT,
        tags="stays",
        how=answer(500, FOREVER),
        receipt=REPAIRABLE,
        statuses=[500, 500, 500],
        says="attempt 3, status 500, request pl-",
    ),
    Case(
        of=C.TRANSIENT,
        tags="after_the_work",
        how=answer(504, after_work=True),
        receipt=COMPLETED,
        statuses=[504, 200],
        charged=1,
    ),
    Case(
        of=C.TRANSIENT,
        tags="tool_does_not_allow",
        how=answer(503),
        tool="echo_fenced",
        receipt=REPAIRABLE,
        statuses=[503],
    ),
    Case(
        of=C.GATEWAY_502,
        tags="passes",
        how=answer(502, 2, marked=False),
        receipt=COMPLETED,
        statuses=[502, 502, 200],
        charged=1,
    ),
    Case(
        of=C.GATEWAY_502,
        tags="stays",
        how=answer(502, FOREVER, marked=False),
        receipt=REPAIRABLE,
        statuses=[502, 502, 502],
        says="never reached the API",
    ),
    Case(
        of=C.IN_PROGRESS,
        tags="passes",
        how=answer(409, 2, code="invocation_in_progress"),
        receipt=COMPLETED,
        statuses=[409, 409, 200],
        charged=1,
    ),
    Case(
        of=C.IN_PROGRESS,
        tags="stays",
        how=answer(409, FOREVER, code="gateway_invocation_in_progress"),
        receipt=UNKNOWN,
        statuses=None,
        says="status 409",
    ),
    Case(
        of=C.CREDITS_EXHAUSTED,
        tags="platform",
        how=answer(402, origin="platform"),
        receipt=REPAIRABLE,
        statuses=[402],
        says="add credits",
    ),
    Case(
        of=C.CREDITS_EXHAUSTED,
        tags="unreadable",
        how=answer(402, body="<html>"),
        receipt=REPAIRABLE,
        statuses=[402],
        says="the run is halted",
    ),
    Case(
        of=C.PROVIDER_UNAVAILABLE,
        how=answer(402, origin="provider"),
        receipt=REPAIRABLE,
        statuses=[402],
        says="provider's own account",
    ),
    Case(
        of=C.AUTH, how=answer(401), receipt=REPAIRABLE, statuses=[401], says="check the execution API token"
    ),
    Case(
        of=C.AUTH_SCOPE_CHANGED,
        how={"auth_scopes": {"echo_single": "s2"}},
        receipt=None,
        statuses=[409],
        says="keyed anew",
    ),
    Case(
        of=C.BAD_REQUEST,
        tags="alone",
        how={"bad_item": "a"},
        receipt=FINAL,
        statuses=[400],
        says="status 400",
    ),
    Case(of=C.NOT_FOUND, how=answer(404), receipt=FINAL, statuses=[404], says="status 404"),
    Case(of=C.REJECTED, tags="conflict", how=answer(409), receipt=FINAL, statuses=[409], says="HTTP 409"),
    Case(
        of=C.REJECTED,
        tags="redirect",
        how=answer(307, location="http://inside.example/x"),
        receipt=FINAL,
        statuses=[307],
        says="to inside.example \\(redirects are refused\\)",
    ),
    Case(
        of=C.REJECTED,
        tags="failed_inside",
        how={"reply_text": '{"status": "failed", "error": {"code": "nope", "message": "no such"}}'},
        receipt=FINAL,
        statuses=[200],
        charged=1,
        says="answered that it failed: no such",
    ),
    Case(
        of=C.BODY_STALLED,
        how={"stall": {"after_bytes": 9}},
        receipt=UNKNOWN,
        statuses=[200],
        charged=1,
        says="no byte of the body for",
    ),
    Case(
        of=C.BODY_STALLED,
        tags="fenced",
        how={"stall": {"after_bytes": 9}},
        tool="echo_fenced",
        receipt=COMPLETED,
        statuses=[200, 200],
        charged=1,
    ),
    Case(
        of=C.BODY_CUT,
        how={"cut": {"after_bytes": 9}},
        receipt=UNKNOWN,
        statuses=[200],
        charged=1,
        says="body_cut",
    ),
    Case(
        of=C.PROVIDER_EXHAUSTED,
        how=answer(429, code="provider_exhausted", origin="provider", retry_at="2031-01-01T00:00:00Z"),
        receipt=REPAIRABLE,
        statuses=[429],
        says="its lane is closed until then",
    ),
    Case(
        of=C.BODY_INVALID,
        how={"reply_text": "{nope"},
        receipt=UNKNOWN,
        statuses=[200],
        charged=1,
        says="unreadable reply",
    ),
)


def test_no_class_is_left_out() -> None:
    assert {case.of for case in CASES} == set(FailureClass)


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_class(world: LaneWorld, case: Case) -> None:
    posted = calls_of("a", tool=case.tool, integration_mode=case.mode)
    if "refuse_ms" in case.how:
        await world.client.metadata(case.tool, "o")
        assert world.api.server is not None
        world.api.server.refuse(case.how["refuse_ms"])
    else:
        world.misbehave(**case.how)
    answer = (await world.answers(*posted))["a"]
    receipt = await world.receipt(posted[0])
    assert (receipt and (receipt.state, receipt.terminal)) == case.receipt
    if case.statuses is not None:
        assert world.statuses == case.statuses
    else:
        assert len(world.statuses) > 2 and len(set(world.statuses)) == 1
    assert world.charged == ["a"] * case.charged
    keys = {(entry["batch_key"], tuple(entry["item_keys"])) for entry in world.ledger}
    assert len(keys) == 1, "every send carries the same keys"
    if answer.state is not AnswerState.COMPLETED:
        assert answer.error is not None
        message = answer.error["message"]
        for pattern in (case.says, f"tool {case.tool}", case.of.value):
            assert re.search(pattern, message), message
    await wait_until_async(lambda: world.is_balanced(*posted), what="nothing left behind")


async def test_nothing_listens(database_url: str, redis_url: str) -> None:
    """Before dispatch to the end: tried three times, nothing charged, a later run asks again."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        api_url = f"http://127.0.0.1:{held.getsockname()[1]}"
        async with lane_world(database_url, redis_url, api_url=api_url) as world:
            posted = calls_of("a", tool="echo_single")
            answer = (await world.answers(*posted))["a"]
            receipt = await world.receipt(posted[0])
    assert receipt is not None and (receipt.state, receipt.terminal) == REPAIRABLE
    assert answer.error is not None and "attempt 3" in answer.error["message"]
    assert not world.ledger


async def test_a_halted_run_pays_for_nothing_more(world: LaneWorld) -> None:
    world.misbehave(**answer(402))
    first = await world.answers(*calls_of("a", tool="echo_single"))
    later = await world.answers(*calls_of("b", "c", tool="echo_single"))
    errors = [one.error for one in (*first.values(), *later.values())]
    assert [error and error["code"] for error in errors] == ["run_halted"] * 3
    other = await world.answers(*calls_of("a", tool="echo_single", run_id="r2"))
    assert other["a"].state is AnswerState.COMPLETED, "a later run asks again"
    assert world.statuses == [402, 200] and world.charged == ["a"]
    assert world.engine.snapshot().prevented == 2


async def test_an_unavailable_provider_stops_only_its_call(world: LaneWorld) -> None:
    world.misbehave(**answer(402, origin="provider"))
    refused = (await world.answers(*calls_of("a", tool="echo_single")))["a"]
    assert refused.error is not None and refused.error["retryable"]
    fine = (await world.answers(*calls_of("b", tool="echo_single")))["b"]
    assert fine.state is AnswerState.COMPLETED and world.statuses == [402, 200]


async def test_a_bad_item_is_found_and_its_neighbours_are_paid_once(world: LaneWorld) -> None:
    posted = calls_of(*(f"i{n}" for n in range(8)))
    world.misbehave(bad_item="i5")
    answers = await world.answers(*posted)
    assert [name for name, one in answers.items() if one.state is AnswerState.FAILED] == ["i5"]
    assert sorted(world.charged) == sorted(name for name in answers if name != "i5")
    receipt = await world.receipt(posted[5])
    assert receipt is not None and (receipt.state, receipt.terminal) == FINAL
    assert len(world.ledger) <= 1 + 2 * 3
    await wait_until_async(lambda: world.is_balanced(*posted), what="nothing left behind")


@pytest.mark.parametrize(
    ("how", "states"),
    [
        ({"shuffle": True}, {}),
        ({"item_error": "b"}, {"b": FINAL}),
        ({"item_error": "b", "item_error_retryable": True}, {"b": REPAIRABLE}),
        ({"drop_item": "b"}, {"b": REPAIRABLE}),
        ({"duplicate_item": "b"}, {"b": UNKNOWN}),
        ({"stranger": True, "shuffle": True}, {}),
    ],
    ids=str,
)
async def test_odd_batch_replies(world: LaneWorld, how: dict[str, Any], states: dict[str, Any]) -> None:
    posted = calls_of("a", "b", "c", "d")
    world.misbehave(**how)
    answers = await world.answers(*posted)
    for one in posted:
        item = one.input["item"]
        receipt = await world.receipt(one)
        assert receipt is not None
        assert (receipt.state, receipt.terminal) == states.get(item, COMPLETED)
        if receipt.state is ReceiptState.COMPLETED:
            assert f"v:{item}".encode() in (answers[item].output or b"")
    assert len(world.ledger) == 1
    await wait_until_async(lambda: world.is_balanced(*posted), what="nothing left behind")


async def test_a_rekeyed_call_is_paid_under_its_new_key(world: LaneWorld) -> None:
    old = calls_of("a", tool="echo_fenced", auth_scope="s1")
    world.misbehave(auth_scopes={"echo_fenced": "s2"})
    refused = (await world.answers(*old))["a"]
    assert refused.error is not None and refused.error["code"] == "auth_scope_changed"
    scope = await world.client.auth_scope("echo_fenced", "o", refresh=True)
    anew = calls_of("a", tool="echo_fenced", auth_scope=scope)
    assert (await world.answers(*anew))["a"].state is AnswerState.COMPLETED
    assert world.statuses == [409, 200] and world.charged == ["a"]


async def test_credentials_that_change_in_mid_run_re_key_each_call_once(world: LaneWorld) -> None:
    """From `ctx.tools.execute` on: the old scope's keys stay unpaid, every call is charged once under the new one."""
    context = CallContext(org_id="o", run_id="r1")
    async with tool_calls(world) as (_, tools):
        world.misbehave(auth_scopes={"echo": "s1"})
        await tools.execute(context, "echo", {"item": "before"})
        world.misbehave(auth_scopes={"echo": "s2"})
        asked = [tools.execute(context, "echo", {"item": f"i{n}"}) for n in range(10)]
        results = await asyncio.gather(*asked)
        assert [result.data["value"] for result, _cached in results] == [f"v:i{n}" for n in range(10)]
        # A lane whose answers are about another scope each time is not asked for ever.
        world.misbehave(**answer(409, FOREVER, code="auth_scope_changed"))
        with pytest.raises(ToolCallError, match="a second change is final") as caught:
            await tools.execute(context, "echo", {"item": "never"})
        assert caught.value.code == "auth_scope_changed"
    assert sorted(world.charged) == sorted(["before", *(f"i{n}" for n in range(10))])
    refused = [entry for entry in world.ledger if entry["status"] == 409]
    assert [len(entry["items"]) for entry in refused] == [10, 1, 1]
