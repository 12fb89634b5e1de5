"""How runs end, who holds them, and what their bodies and clients meet."""

from typing import Any

from runtime.errors.base import PlaylaneError


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


class DefectError(RunFatalError):
    code = "defect"


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


class EventTimedOutError(PlaylaneError):
    code = "event_timed_out"


class StateTransitionError(PlaylaneError):
    code = "illegal_transition"


def _rebuild_run_not_completed(message: str, state: str, error: dict[str, Any]) -> RunNotCompletedError:
    return RunNotCompletedError(message, state=state, error=error)


def _rebuild_operation_failed(message: str, payload: dict[str, Any]) -> OperationFailedError:
    return OperationFailedError(message, payload=payload)
