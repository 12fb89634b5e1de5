"""Stores in memory for tests: the same decisions as the real ones over one plain state, with a clock passed in."""

from collections.abc import Callable

from runtime.policy.limits import DEFAULT_LIMITS, Limits
from runtime.testing.budgets import MemoryBudgets
from runtime.testing.reading import MemoryReads
from runtime.testing.rows import MemoryDatasets, MemoryReceipts, MemorySlices
from runtime.testing.runs import MemoryRuns, MemorySessions
from runtime.testing.schedules import MemorySchedules
from runtime.testing.settling import MemorySettling
from runtime.testing.state import MemoryState
from runtime.testing.waits import MemoryWaits

__all__ = ["MemoryState", "MemoryStores"]


class MemoryStores:
    """One state and the stores over it."""

    def __init__(self, clock: Callable[[], float], limits: Limits = DEFAULT_LIMITS) -> None:
        self.state = MemoryState(clock, limits)
        self.sessions = MemorySessions(self.state)
        self.runs = MemoryRuns(self.state)
        self.datasets = MemoryDatasets(self.state)
        self.settling = MemorySettling(self.state)
        self.slices = MemorySlices(self.state)
        self.reads = MemoryReads(self.state)
        self.budgets = MemoryBudgets(self.state)
        self.receipts = MemoryReceipts(self.state, self.budgets)
        self.waits = MemoryWaits(self.state)
        self.schedules = MemorySchedules(self.state)
