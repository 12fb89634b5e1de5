"""Which rows are told of one by one: each hundredth, or one in a while."""

from dataclasses import dataclass

from runtime.policy.limits import Limits


@dataclass(slots=True)
class RowSampler:
    """Of one dataset, in one process."""

    rows: int = 0
    told_ms: float = float("-inf")

    def take(self, rows: int, now_ms: float, limits: Limits) -> range:
        """Which of the next `rows` rows are told of."""
        first = -self.rows % limits.event_row_sample
        self.rows += rows
        if first >= rows and now_ms - self.told_ms >= limits.event_row_ms:
            first = 0
        taken = range(first, rows, limits.event_row_sample)
        if taken:
            self.told_ms = now_ms
        return taken
