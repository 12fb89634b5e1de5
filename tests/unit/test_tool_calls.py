"""From `ctx.tools.execute` to a call: its keys, what it accepts, and credentials that change."""

from dataclasses import replace
from typing import Any

import pytest

from runtime.engine.tool_calls import CallContext, CallPlace, ToolCalls
from runtime.errors import BudgetExceededError, RowWaitsError, ToolCallError, ToolRejectedError
from runtime.model.call import ANY_AGE, Accepts, Answer, AnswerState, Call
from runtime.model.call_options import NO_OPTIONS, CallOptions
from runtime.model.row_wait import WaitKind
from runtime.model.tool import Normalise, NormaliseRule, ToolMetadata
from runtime.policy.freshness import Refresh
from runtime.policy.limits import Limits
from tests.lane_stage import call as shared_call

METADATA = ToolMetadata(tool="echo", provider="fakeprov")
CONTEXT = CallContext(org_id="o", run_id="r1")
FORCE = CallOptions(force=True)


class Outside:
    """Metadata, credentials and answers as told; keeps what was called."""

    def __init__(self, metadata: ToolMetadata = METADATA) -> None:
        self.tool = metadata
        self.scopes = ["s1", "s2", "s3"]
        self.refreshed = 0
        self.called: list[tuple[Call, CallOptions]] = []
        self.changed = 0  # how many calls meet changed credentials

    async def metadata(self, tool: str, org_id: str) -> ToolMetadata:
        return self.tool

    async def auth_scope(self, tool: str, org_id: str, *, refresh: bool = False) -> str | None:
        self.refreshed += refresh
        return self.scopes[self.refreshed] if self.scopes else None

    async def call(self, call: Call, lane: str, options: CallOptions = NO_OPTIONS) -> Answer:
        self.called.append((call, options))
        if len(self.called) <= self.changed:
            error = {"code": "auth_scope_changed", "message": "other credentials", "retryable": True}
            return Answer(key=call.key, state=AnswerState.FAILED, error=error)
        return Answer(key=call.key, state=AnswerState.COMPLETED, output=b'"v"')

    @property
    def only(self) -> Call:
        ((call, _),) = self.called
        return call


def calls_of(outside: Any) -> ToolCalls:
    return ToolCalls(
        caller=outside, catalog=outside, lane_of=lambda provider: provider, session_id="s", limits=Limits()
    )


async def made(
    options: CallOptions = NO_OPTIONS,
    place: CallPlace | None = None,
    context: CallContext = CONTEXT,
    metadata: ToolMetadata = METADATA,
) -> Call:
    outside = Outside(metadata)
    outside.scopes.clear()
    await calls_of(outside).execute(context, "echo", {"item": "a"}, options, place or CallPlace(parts=("p",)))
    return outside.only


async def test_a_plain_call_has_the_shared_key() -> None:
    call = await made()
    assert (call.key, call.idempotency_key) == (shared_call("a").key, shared_call("a").idempotency_key)
    assert (call.accepts, call.shared_key, call.read_keys) == (ANY_AGE, None, ())


async def test_near_equal_inputs_are_one_call_only_where_the_tool_declares_it() -> None:
    """B11: exact equals always are; case, blanks and a trailing dot as declared."""
    rows = ["acme.example", "acme.example", "ACME.example", " acme.example", "acme.example."]
    steps = (Normalise.TRIM, Normalise.LOWER, Normalise.STRIP_TRAILING_DOT)
    declared = replace(METADATA, normalise=(NormaliseRule(field="item", steps=steps),))
    for metadata, keys in ((METADATA, 4), (declared, 1)):
        outside = Outside(metadata)
        for row in rows:
            await calls_of(outside).execute(CONTEXT, "echo", {"item": row, "as": row})
        made = [call for call, _ in outside.called]
        assert len({call.key for call in made}) == 4, "another field says nothing"
        outside.called.clear()
        for row in rows:
            await calls_of(outside).execute(CONTEXT, "echo", {"item": row})
        made = [call for call, _ in outside.called]
        assert len({call.key for call in made}) == len({call.input["item"] for call in made}) == keys


async def test_an_org_never_sees_another_s_receipts() -> None:
    other = replace(CONTEXT, org_id="p")
    assert (await made(context=other)).key != (await made()).key
    assert (await made(FORCE, context=other)).key != (await made(FORCE)).key
    assert (await made(FORCE, context=other)).shared_key != (await made(FORCE)).shared_key


async def test_a_forced_call_is_private_and_names_the_shared_key() -> None:
    plain, first = await made(), await made(FORCE)
    assert first.shared_key == plain.key != first.key
    assert first.idempotency_key != plain.idempotency_key
    assert (await made(FORCE)).key == first.key, "a replay asks for the same"
    others = [
        await made(FORCE, CallPlace(parts=("q",))),
        await made(FORCE, CallPlace(parts=("p",), nth=lambda _: 1)),
        await made(FORCE, context=replace(CONTEXT, run_id="r2")),
    ]
    assert len({first.key, *(one.key for one in others)}) == 4
    assert len({first.idempotency_key, *(one.idempotency_key for one in others)}) == 4


async def test_a_tool_that_is_always_fresh_shares_nothing() -> None:
    call = await made(metadata=replace(METADATA, always_fresh=True))
    assert call.key != (await made()).key and call.shared_key is None
    forced = await made(FORCE, metadata=replace(METADATA, always_fresh=True))
    assert forced.key == call.key


async def test_older_action_versions_may_be_read() -> None:
    metadata = replace(METADATA, action_version="3", read_versions=("2", "1"))
    call = await made(metadata=metadata)
    assert call.read_keys == (
        (await made(metadata=replace(METADATA, action_version="2"))).key,
        (await made()).key,
    )
    assert (await made(FORCE, metadata=metadata)).read_keys == (), "a forced call is not answered by them"


async def test_run_and_call_say_what_is_fresh_enough() -> None:
    context = replace(CONTEXT, refresh=Refresh(epoch_ms=10_000, failed=True))
    assert (await made(context=context)).accepts == Accepts(failed_not_before_ms=10_000)
    assert (await made(CallOptions(stale_after_seconds=2), context=context)).accepts == Accepts(
        not_before_ms=8_000, failed_not_before_ms=10_000
    )


async def test_the_response_revision_is_no_part_of_the_provider_s_key() -> None:
    one = await made(metadata=replace(METADATA, response_revision="a"))
    two = await made(metadata=replace(METADATA, response_revision="b"))
    assert one.key != two.key and one.idempotency_key == two.idempotency_key


async def test_a_replayed_private_call_is_not_paid_again_though_the_tool_has_changed() -> None:
    first = await made(FORCE)
    for changed in (
        replace(METADATA, response_revision="b"),
        replace(METADATA, action_version="9", read_versions=("8",)),
    ):
        again = await made(FORCE, metadata=changed)
        assert (again.key, again.idempotency_key) == (first.key, first.idempotency_key)
        assert again.shared_key != first.shared_key


async def test_changed_credentials_make_it_another_call_once() -> None:
    outside = Outside()
    outside.changed = 1
    result, _ = await calls_of(outside).execute(CONTEXT, "echo", {"item": "a"})
    assert result.data == "v"
    (first, _), (second, _) = outside.called
    assert (first.auth_scope, second.auth_scope) == ("s1", "s2")
    assert first.key != second.key and first.idempotency_key != second.idempotency_key


async def test_credentials_that_change_again_are_a_failure() -> None:
    outside = Outside()
    outside.changed = 2
    with pytest.raises(ToolCallError) as error:
        await calls_of(outside).execute(CONTEXT, "echo", {"item": "a"})
    assert error.value.code == "auth_scope_changed" and len(outside.called) == 2


async def test_a_forced_call_keeps_its_number_when_credentials_change() -> None:
    outside = Outside()
    outside.changed = 1
    counted: list[str] = []
    place = CallPlace(parts=("p",), nth=lambda what: counted.append(what) or 0)
    await calls_of(outside).execute(CONTEXT, "echo", {"item": "a"}, FORCE, place)
    assert len(counted) == 1
    assert len({call.key for call, _ in outside.called}) == 2


async def test_a_timeout_above_the_tool_s_own_is_refused_before_anything_is_sent() -> None:
    outside = Outside(replace(METADATA, timeout_ms=5_000))
    with pytest.raises(ToolRejectedError, match="timeout_ms=6000"):
        await calls_of(outside).execute(CONTEXT, "echo", {"item": "a"}, CallOptions(timeout_ms=6_000))
    assert not outside.called
    options = CallOptions(timeout_ms=5_000, max_wait_ms=7)
    await calls_of(outside).execute(CONTEXT, "echo", {"item": "a"}, options)
    assert outside.called[0][0].timeout_ms == 5_000 and outside.called[0][1] is options


class OverBudget(Outside):
    """A lane that has no room in the run's budget for another hour."""

    async def call(self, call: Call, lane: str, options: CallOptions = NO_OPTIONS) -> Answer:
        self.called.append((call, options))
        error = {
            "code": "budget_exceeded",
            "message": "run r1 has used 2 of its 2 credits",
            "retryable": True,
        }
        return Answer(
            key=call.key, state=AnswerState.OVER_BUDGET, error=error, run_id="r1", until_ms=3_600_000
        )


async def test_a_call_without_budget_lets_its_row_wait() -> None:
    outside = OverBudget()
    context = replace(CONTEXT, budget=("root", "r1"))
    with pytest.raises(RowWaitsError) as caught:
        await calls_of(outside).execute(context, "echo", {"item": "a"})
    wait = caught.value.wait
    assert (wait.kind, wait.due_ms, wait.detail) == (
        WaitKind.BUDGET,
        3_600_000,
        "run r1 has used 2 of its 2 credits",
    )
    assert outside.only.accounts == ("root", "r1")


async def test_an_author_who_allows_less_time_meets_the_error() -> None:
    with pytest.raises(BudgetExceededError, match="2 of its 2 credits"):
        await calls_of(OverBudget()).execute(CONTEXT, "echo", {"item": "a"}, CallOptions(max_wait_ms=60_000))
