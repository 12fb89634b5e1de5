"""Durable waits of a tool call that a body asked for; the call rests meanwhile."""

from dataclasses import replace
from typing import Any

from runtime.errors import RowWaitsError
from runtime.model.boundary import BodyAt, KnownBoundary
from runtime.model.row_wait import NewBoundary, RowWait, WaitKind
from runtime.model.run import ClaimedRun
from runtime.ports import RunStore, WaitStore

PREFIX = "wait:"
RESTS = ("lane:", "budget:")  # where an operation rests as a whole


class BodyPlace:
    """One tool call of a body."""

    allows_events = True

    def __init__(self, store: WaitStore, runs: RunStore, run: ClaimedRun, op_key: str) -> None:
        self.store = store
        self._runs = runs
        self._run = run
        self._op_key = op_key

    def at(self, part: str) -> BodyAt:
        key = f"{PREFIX}{self._op_key}:{part}"
        return BodyAt(run_id=self._run.run_id, key=key, attempt=self._run.attempt)

    async def known(self, part: str) -> KnownBoundary | None:
        return await self.store.find(self.at(part))

    async def outcome(self, part: str, wait: NewBoundary) -> dict[str, Any]:
        """The wait's outcome, or RowWaitsError."""
        at = self.at(part)
        known = await self.store.find(at)
        if known is None:
            await self._runs.arm_timer(at.run_id, at.attempt, at.key, wait.due_ms / 1000)
            known = await self.store.find(at)
        if known is not None and known.outcome is not None:
            return known.outcome
        left_ms = wait.due_ms if known is None or known.due_ms is None else known.due_ms
        if wait.kind is WaitKind.SLEEP and left_ms <= 0:
            return {"ok": None}
        due_ms = max(0.0, left_ms)
        raise RowWaitsError(
            RowWait(kind=wait.kind, due_ms=due_ms, detail=part, boundaries=(replace(wait, key=at.key),))
        )


def hastened(op_keys: list[str], ended: list[str]) -> list[str]:
    """Those resting operations of which a wait has ended."""
    rested = {one.partition(":")[2] for one in ended if one.startswith(RESTS)}
    waits = tuple(one for one in ended if one.startswith(PREFIX))
    return [
        key for key in op_keys if key in rested or any(one.startswith(f"{PREFIX}{key}:") for one in waits)
    ]
