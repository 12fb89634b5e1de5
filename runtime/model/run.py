"""A run: one execution of a play over one input. Ended runs never change again."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from runtime.model.transitions import terminal


class RunState(StrEnum):
    QUEUED = "queued"  # admitted; no body has run
    RUNNING = "running"  # one live body holds it
    WAITING = "waiting"  # suspended on boundaries; nobody holds it
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


RUN_MOVES = {
    RunState.QUEUED: frozenset({RunState.RUNNING, RunState.FAILED, RunState.CANCELLED}),
    RunState.RUNNING: frozenset(
        {RunState.RUNNING, RunState.WAITING, RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED}
    ),
    RunState.WAITING: frozenset({RunState.RUNNING, RunState.FAILED, RunState.CANCELLED}),
    RunState.COMPLETED: frozenset[RunState](),
    RunState.FAILED: frozenset[RunState](),
    RunState.CANCELLED: frozenset[RunState](),
}
ENDED_RUNS = terminal(RUN_MOVES)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """What admission stores; `input` and `options` are checked JSON values."""

    run_id: str
    org_id: str
    play: str
    input: Any
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedRun:
    """A run that this session holds; every write of its body names `attempt`."""

    run_id: str
    org_id: str
    play: str
    input: Any
    options: dict[str, Any]
    attempt: int
    epoch_ms: int = 0  # when the run was created, by the database's clock
    crashes: int = 0  # attempts whose process died, one after the other without progress


@dataclass(frozen=True, slots=True, kw_only=True)
class OverdueRun:
    """A live run that has been active for longer than its option `deadline_s` allows."""

    run_id: str
    active_s: float
    deadline_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPoll:
    """One look at a held run: `wakes` for suspension, and boundaries resolved but not yet journaled."""

    wakes: int
    resolved: tuple[tuple[str, Any], ...]  # (op_key, outcome JSON as journaled)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What a replay of a run's body needs; constant for the run's life."""

    run_id: str
    org_id: str
    play: str
    input: Any
    options: dict[str, Any]
