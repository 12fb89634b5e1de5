"""Runs, their journals and their logs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from runtime.model.operation import JournalEntry
from runtime.model.run import ClaimedRun, NewRun, OverdueRun, RunFacts, RunPoll, RunState


class RunStore(Protocol):
    async def insert(self, run: NewRun) -> bool:
        """True if new; an existing run is never touched."""
        ...

    async def refuse(self, run: NewRun, error: dict[str, Any]) -> bool:
        """Insert the run as failed with the reason; False (nothing done) if it exists."""
        ...

    async def claim(self, run_id: str, session_id: str) -> ClaimedRun | None:
        """Hold a queued run, a waiting run with news, or a run whose holder is dead; attempt + 1."""
        ...

    async def facts(self, run_id: str) -> RunFacts | None:
        """The run's play and input, None if it doesn't exist or has ended."""
        ...

    async def journal(self, run_id: str, after_seq: int = -1) -> list[JournalEntry]:
        """The run's entries above `after_seq`, in order."""
        ...

    async def append_journal(self, run_id: str, attempt: int, entries: Sequence[JournalEntry]) -> None:
        """All entries or none, fenced by the attempt; raises AttemptLostError."""
        ...

    async def arm_timer(self, run_id: str, attempt: int, op_key: str, delay_s: float) -> None:
        """Create the boundary due `delay_s` from now, unless it exists; resolved by `poll` and sweeps."""
        ...

    async def rest(
        self, run_id: str, attempt: int, op_key: str, delay_s: float, *, kind: str = "lane"
    ) -> None:
        """Wake the run `delay_s` from now, if it is suspended then; asked again, it counts anew from there."""
        ...

    async def cancel_boundary(self, run_id: str, attempt: int, op_key: str) -> None:
        """The body gave this wait up: its open boundary ends cancelled, and an open dataset behind it too."""
        ...

    async def poll(self, run_id: str, attempt: int) -> RunPoll:
        """One round trip; also resolves this run's due timers. Raises AttemptLostError (also when the run ended)."""
        ...

    async def suspend(self, run_id: str, attempt: int, wakes_seen: int) -> bool:
        """False if a boundary was resolved meanwhile (`wakes` moved on)."""
        ...

    async def end(
        self,
        run_id: str,
        attempt: int,
        state: RunState,
        *,
        result: bytes | None,
        error: dict[str, Any] | None,
    ) -> bool:
        """End the run and, in the same transaction, its open datasets, boundaries and unclaimed rows."""
        ...

    async def cancel(self, run_id: str) -> RunState | None:
        """Cancel in one transaction whoever holds it; the state now, None if unknown."""
        ...

    async def fail(self, run_id: str, error: dict[str, Any]) -> bool:
        """End it as failed from outside its body (its rows met what no process can go on from)."""
        ...

    async def release(self, run_id: str, attempt: int, after_s: float = 0.0) -> None:
        """Give a held run back unfinished: it is due for a resume in `after_s`."""
        ...

    async def pin(self, run_id: str, source_hash: str) -> str:
        """The source hash of the play that the run began with: this one if there is none yet."""
        ...

    async def unavailable(self, run_id: str) -> float:
        """A worker can't go on with the run as it lacks its play's version; for how many seconds that is so.

        Counted anew after progress, or when nobody said so for `version_forget_s`.
        """
        ...

    async def overdue(self) -> list[OverdueRun]:
        """Count active time of live runs that have a deadline, and return those whose time is up."""
        ...

    async def add_logs(self, run_id: str, lines: Sequence["LogLine"]) -> None:
        """Insert or ignore by (run, scope, n)."""
        ...

    async def ended(self, run_ids: Sequence[str]) -> set[str]:
        """Those of `run_ids` that have ended or don't exist."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    scope: str
    n: int
    level: str
    message: str
    fields: Mapping[str, Any]


class EndedRuns(Protocol):
    """Which runs have ended (RunStore has it)."""

    async def ended(self, run_ids: Sequence[str]) -> set[str]: ...
