"""Named fault points between answer, commit and reply. In production every point does nothing.

`PLAYLANE_FAULTS="lane.after_answer=kill@3"` (read in workers/wiring) kills the process with SIGKILL at the
third time that it passes the point; `raise@n` raises once.
"""

import os
import signal
from collections import Counter
from dataclasses import dataclass, field

POINTS = (
    "lane.after_admit",
    "lane.after_seal",
    "lane.after_answer",
    "lane.after_commit",
    "rows.after_take",
    "rows.before_flush",
    "rows.after_flush",
    "settle.after_settle",
    "settle.after_claim",
    "body.before_journal",
    "body.after_journal",
    "body.after_seed_page",
    "control.after_insert",
)


class InjectedFaultError(RuntimeError):
    """Raised at a fault point by a test's wish."""


@dataclass(slots=True)
class FaultPlan:
    """Which point does what at its n-th passing."""

    actions: dict[str, tuple[str, int]] = field(default_factory=dict)
    passed: Counter[str] = field(default_factory=Counter)

    @classmethod
    def parse(cls, text: str) -> "FaultPlan":
        """From `point=kill@n,point=raise@n`; unknown points and actions are refused."""
        actions: dict[str, tuple[str, int]] = {}
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            point, _, what = part.partition("=")
            action, _, nth = what.partition("@")
            if point not in POINTS or action not in ("kill", "raise"):
                raise ValueError(
                    f"unknown fault {part!r}: points are {', '.join(POINTS)}; actions kill, raise"
                )
            actions[point] = (action, int(nth or 1))
        return cls(actions=actions)

    async def __call__(self, point: str) -> None:
        planned = self.actions.get(point)
        if planned is None:
            return
        self.passed[point] += 1
        action, nth = planned
        if self.passed[point] != nth:
            return
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise InjectedFaultError(point)


async def no_fault(point: str) -> None:
    """The production fault point."""
