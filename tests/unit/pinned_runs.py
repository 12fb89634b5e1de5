"""What a run of the bodies' world began with, and for how long no worker had it."""

from dataclasses import dataclass

from runtime.model.run import OverdueRun


@dataclass
class PinnedRuns:
    pinned: str | None = None
    unavailable_s: float = 0.0  # what the next look says

    async def pin(self, run_id: str, source_hash: str) -> str:
        self.pinned = self.pinned or source_hash
        return self.pinned

    async def unavailable(self, run_id: str) -> float:
        return self.unavailable_s

    async def overdue(self) -> list[OverdueRun]:
        return []
