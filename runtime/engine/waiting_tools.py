"""Tools whose answer comes later: between asking and answer lies a durable wait of the row or body."""

from dataclasses import dataclass
from typing import Any, Protocol

from runtime.context.tool_result import ToolResult, tool_result
from runtime.context.waits import timeout_outcome
from runtime.engine.outcomes import error_payload
from runtime.engine.row_waits import value_of
from runtime.errors import (
    CallWaitExceededError,
    EventTimedOutError,
    OwnershipLostError,
    PlayDefinitionError,
    ToolCallError,
    ToolOutcomeUnknownError,
    ToolRejectedError,
)
from runtime.model import json_value
from runtime.model.boundary import BoundaryAt, BoundaryState, KnownBoundary
from runtime.model.canonical_json import digest
from runtime.model.row_wait import NewBoundary, WaitKind
from runtime.model.tool import ToolMetadata
from runtime.model.tool_output import Origin
from runtime.model.waiting_tool import EventBoundary, EventRule, PollRule, at_path
from runtime.policy.limits import Limits
from runtime.ports.event_tools import EventTools
from runtime.ports.waits import WaitStore


class DurablePlace(Protocol):
    """Where a call may wait durably: a row, or an operation of a body."""

    store: WaitStore
    allows_events: bool

    def at(self, part: str) -> BoundaryAt: ...

    async def known(self, part: str) -> KnownBoundary | None: ...

    async def outcome(self, part: str, wait: NewBoundary) -> dict[str, Any]:
        """The outcome, or RowWaitsError; `wait.key` is filled in here."""
        ...


class CallOnce(Protocol):
    """One ordinary call; `private`: answered by no receipt but its own, the `part`-th call of this place."""

    async def __call__(self, tool: str, input: Any, *, private: str | None) -> tuple[ToolResult, bool]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingCall:
    """A call of a tool whose answer comes later. `name` sets it apart from other calls of its place."""

    org_id: str
    context: dict[str, Any]
    metadata: ToolMetadata
    input: Any
    name: str
    place: DurablePlace


class WaitingTools:
    """What both kinds do at the moment that they are asked; the rest is done when the row or body goes on."""

    def __init__(self, *, events: EventTools, limits: Limits) -> None:
        self._events = events
        self._limits = limits

    async def by_event(self, call: WaitingCall, rule: EventRule) -> tuple[ToolResult, bool]:
        """The answer that an event brought; armed once, whoever crashes."""
        tool = call.metadata.tool
        if not call.place.allows_events:
            raise PlayDefinitionError(
                f"{tool} waits for an event, which a child play can't: call it in the child's caller"
            )
        part = f"{call.name}:event"
        known = await call.place.known(part) or await self._prepare(call, part)
        if known.state is BoundaryState.ARMING:
            known = await self._arm(call, part, known, rule)
        if known.outcome is None and known.state is BoundaryState.TIMED_OUT:
            known = await self._time_out(call, part, known)
        outcome = known.outcome
        if outcome is None:
            wait = NewBoundary(
                key="", kind=WaitKind.EVENT, due_ms=known.due_ms or 0.0, event_key=known.event_key
            )
            outcome = await call.place.outcome(part, wait)
        output = json_value.dumps(value_of(outcome))
        return tool_result(output, tool=tool, origin=Origin.CHECKPOINT, rules=call.metadata.results), True

    async def _prepare(self, call: WaitingCall, part: str) -> KnownBoundary:
        prepared = await self._events.prepare(call.metadata.tool, call.org_id, call.input, call.context)
        return await call.place.store.prepare(call.place.at(part), prepared.event_key, prepared.stated)

    async def _arm(
        self, call: WaitingCall, part: str, known: KnownBoundary, rule: EventRule
    ) -> KnownBoundary:
        store, at, tool = call.place.store, call.place.at(part), call.metadata.tool
        if known.holder != at.holder:
            if not rule.arm_repeats:
                unknown = ToolOutcomeUnknownError(
                    f"{tool} was being armed when its process died: whether it asked is unknown, it is not armed again",
                    tool=tool,
                )
                return await store.close(at, {"error": error_payload(unknown)})
            if not await store.adopt(at, known.holder):
                raise OwnershipLostError(f"the event wait of {tool} is armed by another process")
        try:
            armed = await self._events.arm(
                tool, call.org_id, call.input, call.context, known.prepared or {}, repeats=rule.arm_repeats
            )
        except ToolCallError as refused:
            return await store.close(at, {"error": error_payload(refused)})
        return await store.armed(at, self._armed(tool, armed), armed.stated)

    def _armed(self, tool: str, armed: EventBoundary) -> NewBoundary:
        timeout_ms = armed.timeout_ms or self._limits.event_wait_s * 1000
        late = None if armed.finalizes else timeout_outcome(tool, armed.event_key, timeout_ms, "error")
        return NewBoundary(
            key="",
            kind=WaitKind.EVENT,
            due_ms=min(timeout_ms, self._limits.event_wait_max_s * 1000),
            event_key=armed.event_key,
            timeout_outcome=late,
        )

    async def _time_out(self, call: WaitingCall, part: str, known: KnownBoundary) -> KnownBoundary:
        tool = call.metadata.tool
        error: Exception = EventTimedOutError(
            f'no event "{known.event_key}" came in time for {tool}; it is not waited for again'
        )
        try:
            await self._events.time_out(tool, call.org_id, call.input, call.context, known.prepared or {})
        except ToolCallError as said:
            error = said
        return await call.place.store.close(call.place.at(part), {"error": error_payload(error)})

    async def by_polling(
        self, call: WaitingCall, rule: PollRule, call_once: CallOnce
    ) -> tuple[ToolResult, bool]:
        """The result of what the tool started; polls cost nothing and wait for each other durably."""
        started, cached = await call_once(call.metadata.tool, call.input, private=None)
        if not _is_pending(started, rule, default=True):
            return started, cached
        job = at_path(started.data, rule.job_path) or started.job_id
        if job is None:
            raise ToolRejectedError(
                f"{call.metadata.tool} started something without saying what: no {rule.job_path} in its result",
                tool=call.metadata.tool,
                code="no_job",
            )
        n = await self._latest(call)
        while True:
            await self._pause(call, rule, n)
            told, _ = await call_once(rule.tool, {rule.input_key: job}, private=f"{call.name}:poll:{n}")
            if not _is_pending(told, rule, default=False):
                return self._ended(call, rule, told), cached
            n += 1

    async def _latest(self, call: WaitingCall) -> int:
        """The number of the last wait that was armed: polls before it found the job pending."""
        n = 1
        while await call.place.known(f"{call.name}:poll:{n + 1}") is not None:
            n += 1
        return n

    async def _pause(self, call: WaitingCall, rule: PollRule, n: int) -> None:
        limits = self._limits
        first_ms = rule.interval_ms or limits.poll_interval_ms
        pauses_ms = [
            min(first_ms * limits.poll_slower**k, max(first_ms, limits.poll_interval_max_ms))
            for k in range(n)
        ]
        if sum(pauses_ms) > limits.async_tool_s * 1000:
            raise CallWaitExceededError(
                f"{call.metadata.tool} is still not done after {limits.async_tool_s:g} s of asking {rule.tool}; "
                "a later run asks again",
                tool=call.metadata.tool,
                retryable=True,
            )
        wait = NewBoundary(key="", kind=WaitKind.SLEEP, due_ms=pauses_ms[-1])
        await call.place.outcome(f"{call.name}:poll:{n}", wait)

    def _ended(self, call: WaitingCall, rule: PollRule, told: ToolResult) -> ToolResult:
        status = at_path(told.data, rule.status_path)
        if isinstance(status, str) and status.lower() in rule.failed:
            reason = at_path(told.data, "error") or at_path(told.data, "message")
            raise ToolRejectedError(
                f"{call.metadata.tool} ended as {status}: {str(reason)[:500]}",
                tool=call.metadata.tool,
                code="job_failed",
            )
        value = told.data if rule.result_path is None else at_path(told.data, rule.result_path)
        rules = call.metadata.results
        return tool_result(json_value.dumps(value), tool=call.metadata.tool, origin=told.origin, rules=rules)


def _is_pending(result: ToolResult, rule: PollRule, *, default: bool) -> bool:
    status = at_path(result.data, rule.status_path)
    return status.lower() in rule.pending if isinstance(status, str) else default


def call_name(tool: str, input: Any, n: int) -> str:
    """Tells a call from the others of its place, the same in every replay."""
    return f"{digest([tool, input])[:16]}:{n}"
