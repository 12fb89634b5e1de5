"""From `ctx.tools.execute` to a value: keys, lane, the caller, and the answer as a value or an error."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runtime.engine.caller import Caller
from runtime.errors import (
    JsonValueError,
    PersistenceLostError,
    PlaylaneError,
    RunHaltedError,
    ToolOutcomeUnknownError,
    ToolRejectedError,
    tool_call_error,
)
from runtime.model import json_value
from runtime.model.call import Answer, AnswerState, Call
from runtime.model.tool import ToolMetadata
from runtime.policy import identity
from runtime.policy.limits import Limits
from runtime.ports import ToolCatalog


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """On whose behalf a call is made."""

    org_id: str
    run_id: str
    integration_mode: str | None = None


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
    ) -> None:
        self._caller = caller
        self._catalog = catalog
        self._lane_of = lane_of
        self._session_id = session_id
        self._limits = limits

    async def execute(self, context: CallContext, tool: str, input: Any) -> tuple[Any, bool]:
        """(value, answered by a receipt). Raises ToolCallError; a bad input is refused before anything is sent."""
        self._check(tool, input)
        metadata = await self._catalog.metadata(tool, context.org_id)
        call = self._call(context, metadata, input)
        answer = await self._caller.call(call, self._lane_of(metadata.provider))
        return self._value(tool, answer), answer.cached

    async def store_usage(self) -> None:
        """Write what calls outside rows have used so far."""
        await self._caller.store_usage()

    def _check(self, tool: str, input: Any) -> None:
        if not isinstance(tool, str) or not tool:
            raise ToolRejectedError("tool must be the name of a tool", code="bad_input")
        try:
            json_value.check(input, max_depth=self._limits.value_depth)
        except JsonValueError as error:
            raise ToolRejectedError(
                f"input of {tool} can't be sent: {error}",
                tool=tool,
                code="bad_value",
                details={"path": error.path},
            ) from error

    def _call(self, context: CallContext, metadata: ToolMetadata, input: Any) -> Call:
        keys = identity.call_keys(
            org_id=context.org_id,
            tool=metadata.tool,
            input=input,
            auth_scope=None,
            action_version=metadata.action_version,
            response_revision=metadata.response_revision,
        )
        return Call(
            key=keys.receipt,
            org_id=context.org_id,
            run_id=context.run_id,
            tool=metadata.tool,
            input=input,
            idempotency_key=keys.item,
            inbox=self._session_id,
            integration_mode=context.integration_mode,
        )

    def _value(self, tool: str, answer: Answer) -> Any:
        if answer.state is AnswerState.COMPLETED and answer.output is not None:
            return json_value.loads(answer.output)
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
