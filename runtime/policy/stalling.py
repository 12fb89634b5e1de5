"""Whether the rows of a process make progress, and which phase holds the oldest of them if not. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    MEMORY = "memory"  # rows that are too large to run beside the others wait for room
    RESOLVER = "resolver"  # the author's code
    CALL = "call"  # a call, step or fetch that a resolver asked for
    WRITER = "writer"  # finished rows wait for room in the writer's buffer
    COMMIT = "commit"  # finished rows wait for the database


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseLook:
    """How many rows, or pieces of work, a phase holds, since when the oldest, and which that is."""

    phase: Phase
    count: int
    since_s: float
    what: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """What a stalled process says of itself."""

    phase: Phase
    what: str
    oldest_s: float
    last_written_s: float
    counts: dict[str, int]


def stall_of(looks: Sequence[PhaseLook], *, now_s: float, written_s: float, every_s: float) -> Stall | None:
    """None while rows were written within `every_s`, or nothing is held."""
    held = [look for look in looks if look.count > 0]
    if not held or now_s - written_s < every_s:
        return None
    oldest = min(held, key=lambda look: look.since_s)
    if now_s - oldest.since_s < every_s:
        return None  # it has only just begun
    return Stall(
        phase=oldest.phase,
        what=oldest.what,
        oldest_s=round(now_s - oldest.since_s, 1),
        last_written_s=round(now_s - written_s, 1),
        counts={look.phase.value: look.count for look in held},
    )
