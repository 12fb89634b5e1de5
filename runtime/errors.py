"""Every error of playlane, one tree.

PlaylaneError
├── PlayDefinitionError          the play's code asks for something that cannot be (author mends the play)
│   └── BodyIoError              a play body tries IO of its own, which no journal could repeat
├── BadInputError                a message, file or option is wrong (sender mends it; nothing was called)
│   ├── UnknownPlayError
│   ├── UnknownRunError
│   ├── CsvError
│   ├── DatasetInputError        a row given to a dataset that can't be taken; says which
│   └── JsonValueError           a value JSON, Postgres and Python disagree on; names the path
├── ServiceUnreachableError      Postgres, Redis or the execution API does not answer
├── RunWaitExceededError         a client waited its whole time for a run that goes on
├── RunFatalError                ends the run as failed, never isolated in a row
│   ├── NonDeterministicPlayError
│   ├── PlayDeadlockError
│   ├── PlaySpinsError
│   ├── JournalLimitError
│   ├── InputChangedError        a re-read input differs from what was seeded
│   ├── AllRowsFailedError
│   ├── RunHaltedError           credits are used up: nothing further may be paid
│   ├── PersistenceLostError     outcomes can't be committed: the run's latch has tripped
│   └── PlayVersionUnavailableError
├── OwnershipLostError           another process owns it now; stop quietly
│   ├── AttemptLostError
│   ├── SliceLostError
│   └── SessionLostError
├── OperationFailedError         an operation of a body failed, as its journal tells it; not repeated
├── WorkerDiedError              a row or body took down process after process; final for its run
├── StateTransitionError         an illegal move of a state machine
├── StackError                   the local stack can't start or go on (never retried; the message says what to do)
│   ├── ServersMissingError      no server named, found on PATH or in a wheel
│   ├── ChildNotReadyError       a process of the stack died or stayed silent while starting
│   └── StackStoppedError        a stop was asked while starting
└── ToolCallError                one call's failure, isolated in its row
    ├── ToolUnavailableError     worth another try later
    ├── ToolRejectedError        final for this input
    ├── ToolOutcomeUnknownError  sent, but nobody knows what became of it
    ├── CallWaitExceededError    no answer within the caller's bound
    └── ExecuteFailedError       one physical request failed; carries its Failure for the lane to decide on

RowWaitsError                    no failure: a row or body goes on later; not for `except Exception`
"""

from typing import Any

from runtime.model.failure import Failure, FailureClass
from runtime.model.row_wait import RowWait


class PlaylaneError(Exception):
    """Base of every error that playlane raises."""

    code = "playlane_error"

    def to_payload(self) -> dict[str, Any]:
        """The error as a JSON object: code, message and what else is known."""
        return {"code": self.code, "message": str(self)}


class PlayDefinitionError(PlaylaneError):
    code = "play_definition"


class BodyIoError(PlayDefinitionError):
    code = "body_io"


class BadInputError(PlaylaneError):
    code = "bad_input"


class UnknownPlayError(BadInputError):
    code = "unknown_play"


class UnknownRunError(BadInputError):
    code = "unknown_run"


class CsvError(BadInputError):
    """A CSV file that can't be read as rows; says line and column."""

    code = "bad_csv"


class DatasetInputError(BadInputError):
    code = "bad_row"


class JsonValueError(BadInputError):
    """A value that can't be stored exactly; `path` is a JSONPath such as `$.a[3]`."""

    code = "bad_value"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.path, self.reason))


class ServiceUnreachableError(PlaylaneError):
    code = "service_unreachable"


class RunWaitExceededError(PlaylaneError):
    code = "run_wait_exceeded"


class RunFatalError(PlaylaneError):
    code = "run_failed"


class NonDeterministicPlayError(RunFatalError):
    code = "non_deterministic_play"


class PlayDeadlockError(RunFatalError):
    code = "play_deadlock"


class PlaySpinsError(RunFatalError):
    code = "play_spins"


class JournalLimitError(RunFatalError):
    code = "journal_limit"


class InputChangedError(RunFatalError):
    code = "input_changed"


class AllRowsFailedError(RunFatalError):
    code = "all_rows_failed"


class RunHaltedError(RunFatalError):
    code = "run_halted"


class PersistenceLostError(RunFatalError):
    code = "persistence_lost"


class PlayVersionUnavailableError(RunFatalError):
    code = "play_version_unavailable"


class OwnershipLostError(PlaylaneError):
    code = "ownership_lost"


class AttemptLostError(OwnershipLostError):
    code = "attempt_lost"


class SliceLostError(OwnershipLostError):
    code = "slice_lost"


class SessionLostError(OwnershipLostError):
    code = "session_lost"


class OperationFailedError(PlaylaneError):
    """A failed operation whose own error type lives only in the process that met it."""

    code = "operation_failed"

    def __init__(self, message: str, *, payload: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.payload = payload or {}

    def to_payload(self) -> dict[str, Any]:
        return {"code": self.code, **self.payload, "message": str(self)}

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild_operation_failed, (str(self), self.payload))


class WorkerDiedError(PlaylaneError):
    code = "worker_died"


class RowWaitsError(BaseException):
    """Unwinds a resolver whose row waits; once raised, the row does nothing more in this turn."""

    def __init__(self, wait: RowWait) -> None:
        super().__init__(f"the row waits for {wait.kind.value}: {wait.detail}; it goes on by itself")
        self.wait = wait

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.wait,))


class StateTransitionError(PlaylaneError):
    code = "illegal_transition"


class StackError(PlaylaneError):
    code = "stack"


class ServersMissingError(StackError):
    code = "servers_missing"


class ChildNotReadyError(StackError):
    code = "child_not_ready"


class StackStoppedError(StackError):
    code = "stack_stopped"


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


def _rebuild_operation_failed(message: str, payload: dict[str, Any]) -> OperationFailedError:
    return OperationFailedError(message, payload=payload)


_TOOL_CALL_ERRORS: dict[str, type[ToolCallError]] = {
    kind.code: kind
    for kind in (ToolUnavailableError, ToolRejectedError, ToolOutcomeUnknownError, CallWaitExceededError)
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
