"""Counts of answers that cost nothing, to be written with the rows that they belong to."""

from collections import defaultdict
from collections.abc import Iterable

from runtime.model.call import Call, Usage


class CallerUsage:
    """Per run and tool: answered by a receipt, and joined to a call that was already made."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])

    def count(self, call: Call, *, cached: int = 0, followed: int = 0) -> None:
        counts = self._counts[call.run_id, call.tool]
        counts[0] += cached
        counts[1] += followed

    def take(self) -> tuple[Usage, ...]:
        """Everything since the last take."""
        taken, self._counts = self._counts, defaultdict(lambda: [0, 0])
        return tuple(
            Usage(run_id=run_id, tool=tool, cached=cached, followed=followed)
            for (run_id, tool), (cached, followed) in taken.items()
        )

    def give_back(self, usage: Iterable[Usage]) -> None:
        """The write that carried `usage` failed: count it again."""
        for part in usage:
            counts = self._counts[part.run_id, part.tool]
            counts[0] += part.cached
            counts[1] += part.followed
