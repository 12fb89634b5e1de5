"""From `ctx.tools.execute` to a value: keys, lane, the caller, and the answer as a value or an error."""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from runtime import tracing
from runtime.context.tool_result import ToolResult
from runtime.engine.call_answers import origin_of, over_budget, result_of
from runtime.engine.call_context import ANYWHERE, CallContext, CallPlace
from runtime.engine.call_making import asked_call
from runtime.engine.caller import Caller
from runtime.engine.waiting_tools import WaitingCall, WaitingTools, call_name
from runtime.errors import RowWaitsError, ToolRejectedError
from runtime.known_secrets import known_secrets
from runtime.model.call import Answer, AnswerState
from runtime.model.call_options import NO_OPTIONS, CallOptions
from runtime.model.canonical_json import digest
from runtime.model.row_wait import RowWait, WaitKind
from runtime.model.tool import ToolMetadata
from runtime.policy import retrying
from runtime.policy.limits import Limits
from runtime.policy.normalising import normalised
from runtime.ports import ToolCatalog

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
        given = normalised(metadata, input)
        if metadata.event is not None or metadata.poll is not None:
            return await self._later(context, metadata, given, options, place)
        return await self._once(context, metadata, given, options, place)

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
            raise over_budget(answer, options)
        result = result_of(metadata, answer, context.run_id, is_private=options.is_private)
        return result, answer.cached

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
        asked = asked_call(context, metadata, input, options, place)
        _, scope = await self._known(tool, context.org_id)
        answer = await self._caller.call(asked.under(scope, self._session_id), lane, options)
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
        return await self._caller.call(asked.under(scope, self._session_id), lane, options)

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


__all__ = ["ANYWHERE", "CallContext", "CallPlace", "ToolCalls", "origin_of"]
