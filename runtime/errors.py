"""Every error of playlane, one tree.

PlaylaneError
├── PlayDefinitionError          the play's code asks for something that cannot be (author mends the play)
│   ├── BodyIoError              a play body tries IO of its own, which no journal could repeat
│   └── ChildPlayError           plays call each other in a circle, or too deep; nothing was called
├── BadInputError                a message, file or option is wrong (sender mends it; nothing was called)
│   ├── UnknownPlayError
│   ├── UnknownRunError
│   ├── CsvError
│   ├── DatasetReadError         rows of a dataset can't be read as asked
│   ├── DatasetInputError        a row given to a dataset that can't be taken; says which
│   └── JsonValueError           a value JSON, Postgres and Python disagree on; names the path
├── ServiceUnreachableError      Postgres, Redis or the execution API does not answer
├── FetchFailedError             a fetch got no whole answer
│   ├── FetchTimeoutError        within its deadline
│   └── EgressRefusedError       its address is not one that may be reached; final, never retried
├── SecretUnavailableError       a secret's value can't be had now
├── SecretTaintError             a secret stands where it would be stored, sent or shown (author mends the play)
├── LocalWaitExceededError       another process works on the same step or fetch for too long; a later run is served it
├── RunWaitExceededError         a client waited its whole time for a run that goes on
├── RunNotCompletedError         a client wanted the result of a run that failed or was cancelled
├── RunFatalError                ends the run as failed, never isolated in a row
│   ├── NonDeterministicPlayError
│   ├── PlayDeadlockError
│   ├── PlaySpinsError
│   ├── JournalLimitError
│   ├── InputChangedError        a re-read input differs from what was seeded
│   ├── AllRowsFailedError
│   ├── RunHaltedError           credits are used up: nothing further may be paid
│   ├── RunDeadlineError         its active time is used up
│   ├── PersistenceLostError     outcomes can't be committed: the run's latch has tripped
│   └── PlayVersionUnavailableError
├── OwnershipLostError           another process owns it now; stop quietly
│   ├── AttemptLostError
│   ├── SliceLostError
│   └── SessionLostError
├── OperationFailedError         an operation of a body failed, as its journal tells it; not repeated
├── WorkerDiedError              a row or body took down process after process; final for its run
├── RowFailedError               a row ended its fail-fast dataset; names row key and column, the body may catch it
├── EventTimedOutError           no event came in the time that a play gave it; not waited for again
├── StateTransitionError         an illegal move of a state machine
├── StackError                   the local stack can't start or go on (never retried; the message says what to do)
│   ├── ServersMissingError      no server named, found on PATH or in a wheel
│   ├── ChildNotReadyError       a process of the stack died or stayed silent while starting
│   └── StackStoppedError        a stop was asked while starting
└── ToolCallError                one call's failure, isolated in its row
    ├── ToolUnavailableError     worth another try later
    │   └── ProviderExhaustedError   the provider's quota is used up; says until when
    ├── BudgetExceededError      a cap of the run or of a caller's run is used up; it was not made
    ├── ToolRejectedError        final for this input
    ├── ToolOutcomeUnknownError  sent, but nobody knows what became of it
    ├── CallWaitExceededError    no answer within the caller's bound
    └── ExecuteFailedError       one physical request failed; carries its Failure for the lane to decide on

RowWaitsError                    no failure: a row or body goes on later; not for `except Exception`
RowStopsError                    no failure: its dataset fails, so a row does nothing more; not for `except Exception`
"""

from typing import Any

from runtime.model.failure import Failure, FailureClass
from runtime.model.row_wait import RowWait

_PATH_CHARS = 200


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


class ChildPlayError(PlayDefinitionError):
    """A child play that may not be called; `code` says whether for a circle or for its depth."""

    code = "child_play"

    def __init__(self, message: str, *, code: str = "child_play") -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild_child_play, (str(self), self.code))


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


class DatasetReadError(BadInputError):
    """Rows of a dataset can't be read as asked."""

    code = "dataset_read"


class JsonValueError(BadInputError):
    """A value that can't be stored exactly; `path` is a JSONPath such as `$.a[3]`."""

    code = "bad_value"

    def __init__(self, path: str, reason: str) -> None:
        if len(path) > _PATH_CHARS:
            path = f"{path[: _PATH_CHARS - 50]}…{path[-40:]}"
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.path, self.reason))


class ServiceUnreachableError(PlaylaneError):
    code = "service_unreachable"


class FetchFailedError(PlaylaneError):
    code = "fetch_failed"


class FetchTimeoutError(FetchFailedError):
    code = "fetch_timeout"


class EgressRefusedError(FetchFailedError):
    code = "egress_refused"


class SecretUnavailableError(PlaylaneError):
    code = "secret_unavailable"


class SecretTaintError(PlaylaneError):
    code = "secret_taint"


class LocalWaitExceededError(PlaylaneError):
    code = "local_wait_exceeded"


class RunWaitExceededError(PlaylaneError):
    code = "run_wait_exceeded"


class RunNotCompletedError(PlaylaneError):
    """`state` is how the run ended, `error` its stored error."""

    code = "run_not_completed"

    def __init__(self, message: str, *, state: str = "", error: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.state = state
        self.error = error or {}

    def to_payload(self) -> dict[str, Any]:
        return {"code": self.code, "message": str(self), "state": self.state, "error": self.error}

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild_run_not_completed, (str(self), self.state, self.error))


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


class RunDeadlineError(RunFatalError):
    code = "run_deadline"


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


class RowFailedError(PlaylaneError):
    """The first failed row of a dataset under `on_row_error="fail"`; `error` is the row's own stored error."""

    code = "row_failed"

    def __init__(
        self,
        message: str,
        *,
        dataset: str = "",
        row_key: str = "",
        column: str = "",
        error: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.dataset = dataset
        self.row_key = row_key
        self.column = column
        self.error = error or {}

    def to_payload(self) -> dict[str, Any]:
        known = {"dataset": self.dataset, "row_key": self.row_key, "column": self.column, "error": self.error}
        return {"code": self.code, "message": str(self), **known}

    @classmethod
    def of_payload(cls, payload: dict[str, Any]) -> "RowFailedError":
        """The error of a stored payload."""
        names = {name: str(payload.get(name, "")) for name in ("dataset", "row_key", "column")}
        return cls(str(payload.get("message", cls.code)), error=dict(payload.get("error") or {}), **names)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild_row_failed, (self.to_payload(),))


class RowWaitsError(BaseException):
    """Unwinds a resolver whose row waits; once raised, the row does nothing more in this turn."""

    def __init__(self, wait: RowWait) -> None:
        super().__init__(f"the row waits for {wait.kind.value}: {wait.detail}; it goes on by itself")
        self.wait = wait

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.wait,))


class RowStopsError(BaseException):
    """Unwinds a resolver whose dataset fails; the row ends cancelled, what it paid for is in its receipts."""

    def __init__(self) -> None:
        super().__init__('another row failed under on_row_error="fail": this row makes no further call')


class EventTimedOutError(PlaylaneError):
    code = "event_timed_out"


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


def _rebuild_run_not_completed(message: str, state: str, error: dict[str, Any]) -> RunNotCompletedError:
    return RunNotCompletedError(message, state=state, error=error)


def _rebuild_child_play(message: str, code: str) -> ChildPlayError:
    return ChildPlayError(message, code=code)


def _rebuild_row_failed(payload: dict[str, Any]) -> RowFailedError:
    return RowFailedError.of_payload(payload)


def _rebuild_operation_failed(message: str, payload: dict[str, Any]) -> OperationFailedError:
    return OperationFailedError(message, payload=payload)


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
