"""What a play body asks for, and what became of it, as plain values."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

OutcomeJson = dict[str, Any]


class OpKind(StrEnum):
    CSV = "csv"
    DATASET = "dataset"
    TOOL = "tool"
    TIMER = "timer"
    READ = "read"
    SLEEP = "sleep"
    EVENT = "event"
    STEP = "step"
    CHILD = "child"
    ENQUEUE = "enqueue"
    FETCH = "fetch"

    @property
    def is_wait(self) -> bool:
        """A durable wait: the run may give up its slot while only these are asked."""
        return self in _WAITS


_WAITS = frozenset({OpKind.DATASET, OpKind.TIMER, OpKind.SLEEP, OpKind.EVENT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation of a body: the same key, kind and digest in every replay."""

    key: str
    kind: OpKind
    digest: str
    args: Any = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resting:
    """An operation that can't be done for so long that the run may give up its slot; asked again when it is due."""

    due_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """An outcome in the order in which outcomes met the body."""

    seq: int
    op_key: str
    kind: str
    digest: str
    outcome: OutcomeJson


def completed(value: Any, *, at_ms: int) -> OutcomeJson:
    """A success as a boundary and the journal keep it; `at_ms` is its moment."""
    return {"ok": value, "at_ms": at_ms}


def failed(error: dict[str, Any], *, at_ms: int) -> OutcomeJson:
    """A failure as a boundary and the journal keep it; `error` is its typed payload."""
    return {"error": error, "at_ms": at_ms}
