"""One call's failure, isolated in its row."""

from typing import Any

from runtime.errors.base import PlaylaneError
from runtime.model.failure import Failure, FailureClass


class ToolCallError(PlaylaneError):
    """One call's failure. `retryable`: a later run may try it again; `details` is JSON."""

    code = "tool_call_failed"

    def __init__(
        self,
        message: str,
        *,
        tool: str = "",
        code: str | None = None,
        retryable: bool = False,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.tool = tool
        self.code = code or type(self).code
        self.retryable = retryable
        self.details = details or {}

    def to_payload(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "message": str(self),
            "tool": self.tool,
            "retryable": self.retryable,
            "details": self.details,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return (
            _rebuild_tool_call_error,
            (type(self), str(self), self.tool, self.code, self.retryable, self.details),
        )


class ToolUnavailableError(ToolCallError):
    code = "tool_unavailable"


class ProviderExhaustedError(ToolUnavailableError):
    """`retry_at`: when the provider serves this organisation again, as ISO 8601 text; empty if nobody knows."""

    code = "provider_exhausted"

    @property
    def retry_at(self) -> str:
        return str(self.details.get("retry_at") or "")


class BudgetExceededError(ToolCallError):
    code = "budget_exceeded"


class ToolRejectedError(ToolCallError):
    code = "tool_rejected"


class ToolOutcomeUnknownError(ToolCallError):
    code = "outcome_unknown"


class CallWaitExceededError(ToolCallError):
    code = "call_wait_exceeded"


class ExecuteFailedError(ToolCallError):
    """One physical request failed; `failure` says how, the lane decides what follows."""

    code = "execute_failed"

    def __init__(self, failure: Failure) -> None:
        super().__init__(
            failure.describe(), tool=failure.operation, code=failure.code, details=failure.details()
        )
        self.failure = failure

    @property
    def failure_class(self) -> FailureClass:
        return self.failure.failure_class

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.failure,))


def _rebuild_tool_call_error(
    kind: type[ToolCallError], message: str, tool: str, code: str, retryable: bool, details: dict[str, Any]
) -> ToolCallError:
    return kind(message, tool=tool, code=code, retryable=retryable, details=details)


_TOOL_CALL_ERRORS: dict[str, type[ToolCallError]] = {
    kind.code: kind
    for kind in (
        ToolUnavailableError,
        ProviderExhaustedError,
        BudgetExceededError,
        ToolRejectedError,
        ToolOutcomeUnknownError,
        CallWaitExceededError,
    )
}


def tool_call_error(payload: dict[str, Any]) -> ToolCallError:
    """The error of a stored payload: its own class by code, else by whether a later run may try again."""
    code = str(payload.get("code", "tool_call_failed"))
    retryable = bool(payload.get("retryable", False))
    kind = _TOOL_CALL_ERRORS.get(code) or (ToolUnavailableError if retryable else ToolRejectedError)
    return kind(
        str(payload.get("message", code)),
        tool=str(payload.get("tool", "")),
        code=code,
        retryable=retryable,
        details=dict(payload.get("details") or {}),
    )
