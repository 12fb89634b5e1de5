"""A lane's answer as its author meets it: a result, an error, or a wait."""

import math
from typing import Any

from runtime.context.tool_result import ToolResult, tool_result
from runtime.errors import (
    BudgetExceededError,
    PersistenceLostError,
    PlaylaneError,
    RowWaitsError,
    RunHaltedError,
    ToolOutcomeUnknownError,
    tool_call_error,
)
from runtime.model.call import Answer, AnswerState
from runtime.model.call_options import CallOptions
from runtime.model.row_wait import RowWait, WaitKind
from runtime.model.tool import ToolMetadata
from runtime.model.tool_output import Origin


def result_of(metadata: ToolMetadata, answer: Answer, run_id: str, *, is_private: bool = False) -> ToolResult:
    """The result; raises the error that the answer is."""
    tool = metadata.tool
    if answer.state is AnswerState.COMPLETED and answer.output is not None:
        return tool_result(
            answer.output,
            tool=tool,
            origin=origin_of(answer, run_id),
            rules=metadata.results,
            call=answer.key if is_private else "",
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
    raise _failure(payload)


def _failure(payload: dict[str, Any]) -> PlaylaneError:
    """Two codes end the run: nothing more may be paid, or what is paid can't be kept."""
    if payload.get("code") == RunHaltedError.code:
        return RunHaltedError(str(payload.get("message")))
    if payload.get("code") == PersistenceLostError.code:
        return PersistenceLostError(str(payload.get("message")))
    return tool_call_error(payload)


def over_budget(answer: Answer, options: CallOptions) -> BaseException:
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
