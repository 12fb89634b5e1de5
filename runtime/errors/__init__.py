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
├── ValueRefusedError            Postgres can't hold a value that it was given; the same again would be refused again
├── FetchFailedError             a fetch got no whole answer
│   ├── FetchTimeoutError        within its deadline
│   └── EgressRefusedError       its address is not one that may be reached; final, never retried
├── SecretUnavailableError       a secret has no value here; a body that needs it ends its run
│   └── SecretSilentError        its source does not answer; a body that needs it goes on later
├── SecretTaintError             a secret stands where it would be stored, sent or shown (author mends the play)
├── LocalWaitExceededError       another process works on the same step or fetch for too long; a later run is served it
├── RunWaitExceededError         a client waited its whole time for a run that goes on
├── RunNotCompletedError         a client wanted the result of a run that failed or was cancelled
├── RunFatalError                ends the run as failed, never isolated in a row
│   ├── DefectError              a body or slice raised the same kind of error again and again, outside any row
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

from runtime.errors.authoring import BodyIoError, ChildPlayError, PlayDefinitionError, SecretTaintError
from runtime.errors.base import PlaylaneError
from runtime.errors.inputs import (
    BadInputError,
    CsvError,
    DatasetInputError,
    DatasetReadError,
    JsonValueError,
    UnknownPlayError,
    UnknownRunError,
)
from runtime.errors.rows import RowFailedError, RowStopsError, RowWaitsError, WorkerDiedError
from runtime.errors.runs import (
    AllRowsFailedError,
    AttemptLostError,
    DefectError,
    EventTimedOutError,
    InputChangedError,
    JournalLimitError,
    LocalWaitExceededError,
    NonDeterministicPlayError,
    OperationFailedError,
    OwnershipLostError,
    PersistenceLostError,
    PlayDeadlockError,
    PlaySpinsError,
    PlayVersionUnavailableError,
    RunDeadlineError,
    RunFatalError,
    RunHaltedError,
    RunNotCompletedError,
    RunWaitExceededError,
    SessionLostError,
    SliceLostError,
    StateTransitionError,
)
from runtime.errors.services import (
    ChildNotReadyError,
    EgressRefusedError,
    FetchFailedError,
    FetchTimeoutError,
    SecretSilentError,
    SecretUnavailableError,
    ServersMissingError,
    ServiceUnreachableError,
    StackError,
    StackStoppedError,
    ValueRefusedError,
)
from runtime.errors.tool_calls import (
    BudgetExceededError,
    CallWaitExceededError,
    ExecuteFailedError,
    ProviderExhaustedError,
    ToolCallError,
    ToolOutcomeUnknownError,
    ToolRejectedError,
    ToolUnavailableError,
    tool_call_error,
)

__all__ = [
    "AllRowsFailedError",
    "AttemptLostError",
    "BadInputError",
    "BodyIoError",
    "BudgetExceededError",
    "CallWaitExceededError",
    "ChildNotReadyError",
    "ChildPlayError",
    "CsvError",
    "DatasetInputError",
    "DatasetReadError",
    "DefectError",
    "EgressRefusedError",
    "EventTimedOutError",
    "ExecuteFailedError",
    "FetchFailedError",
    "FetchTimeoutError",
    "InputChangedError",
    "JournalLimitError",
    "JsonValueError",
    "LocalWaitExceededError",
    "NonDeterministicPlayError",
    "OperationFailedError",
    "OwnershipLostError",
    "PersistenceLostError",
    "PlayDeadlockError",
    "PlayDefinitionError",
    "PlaySpinsError",
    "PlayVersionUnavailableError",
    "PlaylaneError",
    "ProviderExhaustedError",
    "RowFailedError",
    "RowStopsError",
    "RowWaitsError",
    "RunDeadlineError",
    "RunFatalError",
    "RunHaltedError",
    "RunNotCompletedError",
    "RunWaitExceededError",
    "SecretSilentError",
    "SecretTaintError",
    "SecretUnavailableError",
    "ServersMissingError",
    "ServiceUnreachableError",
    "SessionLostError",
    "SliceLostError",
    "StackError",
    "StackStoppedError",
    "StateTransitionError",
    "ToolCallError",
    "ToolOutcomeUnknownError",
    "ToolRejectedError",
    "ToolUnavailableError",
    "UnknownPlayError",
    "UnknownRunError",
    "ValueRefusedError",
    "WorkerDiedError",
    "tool_call_error",
]
