"""From `ctx.tools.execute` to a value: keys, lane, the caller, and the answer as a value or an error."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import structlog

from runtime import tracing
from runtime.context.tool_result import ToolResult, tool_result
from runtime.engine.caller import Caller
from runtime.engine.waiting_tools import DurablePlace, WaitingCall, WaitingTools, call_name
from runtime.errors import (
    BudgetExceededError,
    PersistenceLostError,
    PlaylaneError,
    RowWaitsError,
    RunHaltedError,
    ToolOutcomeUnknownError,
    ToolRejectedError,
    tool_call_error,
)
from runtime.known_secrets import known_secrets
from runtime.model.call import ANY_AGE, Answer, AnswerState, Call
from runtime.model.call_options import NO_OPTIONS, CallOptions
from runtime.model.canonical_json import digest
from runtime.model.row_wait import RowWait, WaitKind
from runtime.model.tool import ToolMetadata
from runtime.model.tool_output import Origin
from runtime.policy import freshness, identity, retrying
from runtime.policy.freshness import NO_REFRESH, Refresh
from runtime.policy.limits import Limits
from runtime.ports import ToolCatalog


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """On whose behalf a call is made."""

    org_id: str
    run_id: str
    integration_mode: str | None = None
    refresh: Refresh = NO_REFRESH
    budget: tuple[str, ...] = ()  # accounts that its calls are counted against


def _first(_what: str) -> int:
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlace:
    """Where in its run a call is asked. `nth` counts equal calls of one place, from 0."""

    parts: tuple[str | int, ...] = ()
    nth: Callable[[str], int] = field(default=_first, compare=False)
    durable: DurablePlace | None = field(default=None, compare=False)  # where it may wait for a later answer
    node: tuple[str, ...] = ()  # as the API is told: the author's id, column and table namespace


ANYWHERE = CallPlace()
AUTH_SCOPE_CHANGED = "auth_scope_changed"
log = structlog.get_logger()


class ToolCalls:
    """Makes tool calls for rows and bodies of this process."""

    def __init__(
        self,
        *,
        caller: Caller,
        catalog: ToolCatalog,
        lane_of: Callable[[str], str],
        session_id: str,
        limits: Limits,
        waiting: WaitingTools | None = None,
    ) -> None:
        self._waiting = waiting
        self._caller = caller
        self._catalog = catalog
        self._lane_of = lane_of
        self._session_id = session_id
        self._limits = limits
        self._facts: dict[tuple[str, str], tuple[ToolMetadata, str | None, float]] = {}

    async def execute(
        self,
        context: CallContext,
        tool: str,
        input: Any,
        options: CallOptions = NO_OPTIONS,
        place: CallPlace = ANYWHERE,
    ) -> tuple[ToolResult, bool]:
        """(result, answered by a receipt). Raises ToolCallError. `input` is a checked JSON value.

        Raises RowWaitsError if the call's turn is so far away that nobody should wait for it here.
        """
        known_secrets.refuse(input, context.org_id, f"the input of {tool}")
        with tracing.span("playlane.call", context.run_id, {"playlane.tool": tool}) as span:
            result, cached = await self._execute(context, tool, input, options, place)
            if span is not None:
                span.set_attribute("playlane.cached", cached)
            return result, cached

    async def _execute(
        self, context: CallContext, tool: str, input: Any, options: CallOptions, place: CallPlace
    ) -> tuple[ToolResult, bool]:
        metadata, _ = await self._known(tool, context.org_id)
        self._check_timeout(metadata, options)
        if metadata.event is not None or metadata.poll is not None:
            return await self._later(context, metadata, input, options, place)
        return await self._once(context, metadata, input, options, place)

    async def _later(
        self,
        context: CallContext,
        metadata: ToolMetadata,
        input: Any,
        options: CallOptions,
        place: CallPlace,
    ) -> tuple[ToolResult, bool]:
        """A call whose answer comes later."""
        if self._waiting is None or place.durable is None:
            raise ToolRejectedError(
                f"{metadata.tool} answers later, and nothing can wait for it here: call it in a body or a row",
                tool=metadata.tool,
                code="cannot_wait",
            )
        n = place.nth(f"later:{metadata.tool}:{digest(input)}")
        call = WaitingCall(
            org_id=context.org_id,
            context={"runId": context.run_id, "orgId": context.org_id},
            metadata=metadata,
            input=input,
            name=call_name(metadata.tool, input, n),
            place=place.durable,
        )

        async def once(tool: str, input: Any, *, private: str | None) -> tuple[ToolResult, bool]:
            if private is None:
                return await self._once(context, metadata, input, options, place)
            asked = CallPlace(parts=(*place.parts, private))
            return await self.execute(context, tool, input, CallOptions(is_private=True), asked)

        if metadata.event is not None:
            return await self._waiting.by_event(call, metadata.event)
        assert metadata.poll is not None
        return await self._waiting.by_polling(call, metadata.poll, once)

    async def _once(
        self,
        context: CallContext,
        metadata: ToolMetadata,
        input: Any,
        options: CallOptions,
        place: CallPlace,
    ) -> tuple[ToolResult, bool]:
        tool = metadata.tool
        answer = await self._answer(context, metadata, input, options, place)
        if answer.state is AnswerState.TRY_LATER:
            raise RowWaitsError(
                RowWait(
                    kind=WaitKind.LANE,
                    due_ms=answer.until_ms,
                    detail=f"{tool} on lane {self._lane_of(metadata.provider)}",
                )
            )
        if answer.state is AnswerState.OVER_BUDGET:
            raise _over_budget(answer, options)
        return self._result(metadata, answer, context.run_id), answer.cached

    async def _answer(
        self,
        context: CallContext,
        metadata: ToolMetadata,
        input: Any,
        options: CallOptions,
        place: CallPlace,
    ) -> Answer:
        """Credentials that change in mid-run make it another call, once; a second change is final."""
        tool, lane = metadata.tool, self._lane_of(metadata.provider)
        private = self._private_keys(context, metadata, input, options, place)
        _, scope = await self._known(tool, context.org_id)
        call = self._call(context, metadata, input, options, scope, private, place)
        answer = await self._caller.call(call, lane, options)
        if answer.state is not AnswerState.FAILED or (answer.error or {}).get("code") != AUTH_SCOPE_CHANGED:
            return answer
        scope = await self._catalog.auth_scope(tool, context.org_id, refresh=True)
        self._facts.pop((context.org_id, tool), None)
        log.warning(
            "credentials changed, asked again under the new ones",
            action="call.rekey",
            tool=tool,
            run_id=context.run_id,
        )
        return await self._caller.call(
            self._call(context, metadata, input, options, scope, private, place), lane, options
        )

    async def _known(self, tool: str, org_id: str) -> tuple[ToolMetadata, str | None]:
        """What the catalog says of a tool, asked at most once a second: thousands of rows ask in that time."""
        now_s = asyncio.get_running_loop().time()
        known = self._facts.get((org_id, tool))
        if known is not None and now_s < known[2]:
            return known[0], known[1]
        metadata = await self._catalog.metadata(tool, org_id)
        scope = await self._catalog.auth_scope(tool, org_id)
        if len(self._facts) >= self._limits.metadata_tools:
            self._facts.clear()
        self._facts[org_id, tool] = (metadata, scope, now_s + self._limits.tool_facts_s)
        return metadata, scope

    async def store_usage(self) -> None:
        """Write what calls outside rows have used so far."""
        await self._caller.store_usage()

    def _check_timeout(self, metadata: ToolMetadata, options: CallOptions) -> None:
        if options.timeout_ms is None:
            return
        most_ms = retrying.deadline_ms(
            metadata.tool, asked_ms=None, declared_ms=metadata.timeout_ms, limits=self._limits
        )
        if options.timeout_ms > most_ms:
            raise ToolRejectedError(
                f"timeout_ms={options.timeout_ms:g} of {metadata.tool} is more than the tool's own {most_ms:g}: "
                "ask for less; nothing was sent",
                tool=metadata.tool,
                code="bad_input",
            )

    def _private_keys(
        self,
        context: CallContext,
        metadata: ToolMetadata,
        input: Any,
        options: CallOptions,
        place: CallPlace,
    ) -> identity.PrivateCall | None:
        """Of a call that no stored result answers but its own: forced, or of a tool that is always fresh."""
        if not (options.force or options.is_private or metadata.always_fresh):
            return None
        page = (
            () if options.page is None else (options.page.offset, options.page.page_size, options.page.limit)
        )
        n = place.nth(f"{metadata.tool}:{digest(input)}{page or ''}")
        parts = (*place.parts, *page)
        return identity.PrivateCall(run_id=context.run_id, place=parts, n=n, shares=options.force)

    def _call(
        self,
        context: CallContext,
        metadata: ToolMetadata,
        input: Any,
        options: CallOptions,
        scope: str | None,
        private: identity.PrivateCall | None,
        place: CallPlace,
    ) -> Call:
        versions = (metadata.action_version, *metadata.read_versions)
        shared, *older = (
            identity.call_keys(
                org_id=context.org_id,
                tool=metadata.tool,
                input=input,
                auth_scope=scope,
                action_version=version,
                response_revision=metadata.response_revision,
                integration_mode=context.integration_mode,
            )
            for version in dict.fromkeys(versions)
        )
        keys = shared if private is None else self._private(context, metadata, input, scope, private)
        is_shared = private is None
        return Call(
            key=keys.receipt,
            org_id=context.org_id,
            run_id=context.run_id,
            tool=metadata.tool,
            input=input,
            idempotency_key=keys.item,
            inbox=self._session_id,
            integration_mode=context.integration_mode,
            accepts=freshness.accepts(context.refresh, options.stale_after_seconds) if is_shared else ANY_AGE,
            read_keys=tuple(one.receipt for one in older) if is_shared else (),
            shared_key=shared.receipt if private is not None and private.shares else None,
            auth_scope=scope,
            timeout_ms=options.timeout_ms,
            accounts=context.budget,
            page=options.page,
            node=place.node,
        )

    def _private(
        self,
        context: CallContext,
        metadata: ToolMetadata,
        input: Any,
        scope: str | None,
        private: identity.PrivateCall,
    ) -> identity.CallKeys:
        """Without the tool's versions: a replay finds what was paid though the tool has changed since."""
        plain = identity.call_keys(
            org_id=context.org_id,
            tool=metadata.tool,
            input=input,
            auth_scope=scope,
            action_version="",
            response_revision=None,
            integration_mode=context.integration_mode,
        )
        return identity.private_keys(plain, private)

    def _result(self, metadata: ToolMetadata, answer: Answer, run_id: str) -> ToolResult:
        tool = metadata.tool
        if answer.state is AnswerState.COMPLETED and answer.output is not None:
            return tool_result(
                answer.output, tool=tool, origin=origin_of(answer, run_id), rules=metadata.results
            )
        payload = {"tool": tool, **(answer.error or {})}
        if answer.state is AnswerState.UNKNOWN:
            raise ToolOutcomeUnknownError(
                str(
                    payload.get("message")
                    or f"{tool} was sent, but its outcome is unknown; a later run may ask again"
                ),
                tool=tool,
                details=dict(payload.get("details") or {}),
            )
        raise self._failure(payload)

    def _failure(self, payload: dict[str, Any]) -> PlaylaneError:
        """Two codes end the run: nothing more may be paid, or what is paid can't be kept."""
        if payload.get("code") == RunHaltedError.code:
            return RunHaltedError(str(payload.get("message")))
        if payload.get("code") == PersistenceLostError.code:
            return PersistenceLostError(str(payload.get("message")))
        return tool_call_error(payload)


def _over_budget(answer: Answer, options: CallOptions) -> BaseException:
    """A call that a budget has no room for waits for it, unless its author allows less time than that may take."""
    error = tool_call_error(answer.error or {"code": BudgetExceededError.code})
    if options.max_wait_ms is not None and options.max_wait_ms < (answer.until_ms or math.inf):
        return error
    return RowWaitsError(RowWait(kind=WaitKind.BUDGET, due_ms=answer.until_ms, detail=str(error)))


def origin_of(answer: Answer, run_id: str) -> Origin:
    """How an answer came to a caller of `run_id`."""
    if answer.cached:
        return Origin.CHECKPOINT if answer.run_id == run_id else Origin.CACHE
    joined = answer.followed or answer.run_id not in (None, run_id)
    return Origin.IN_FLIGHT if joined else Origin.LIVE
