"""Kill -9 of workers while a run goes on, for the demo: the supervisor starts them again, no row is lost."""

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from runtime.model.status import RunStatus

PLAN = ((0.25, "rows"), (0.5, "lanes"), (0.75, "plays"))
# Claims of a dead process are free sooner than in production, so that the demo is short.
LIMITS = '{"session_ttl_s": 6, "heartbeat_s": 2, "sweep_s": 1}'


@dataclass(slots=True, kw_only=True)
class Killings:
    """`plan`: at which share of ended rows a worker of which role is killed, each once."""

    total: int
    pids: Callable[[], Mapping[str, int]]
    say: Callable[[str], None]
    plan: tuple[tuple[float, str], ...] = PLAN
    kill: Callable[[int, int], None] = os.kill
    killed: list[str] = field(default_factory=list)

    def look(self, status: RunStatus) -> None:
        """Kill what is due by now."""
        ended = sum(one.completed + one.failed for one in status.datasets)
        while self.plan and ended >= self.plan[0][0] * self.total:
            (_, role), *rest = self.plan
            self.plan = tuple(rest)
            self._kill_one(role, ended)

    def _kill_one(self, role: str, ended: int) -> None:
        names = sorted(name for name in self.pids() if name.partition("-")[0] == role)
        if not names:
            return
        self.kill(self.pids()[names[0]], signal.SIGKILL)
        self.killed.append(names[0])
        self.say(f"kill -9 {names[0]} at {ended:,} of {self.total:,} rows")
