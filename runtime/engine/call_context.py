"""On whose behalf, and where in its run, a tool call is made."""

from collections.abc import Callable
from dataclasses import dataclass, field

from runtime.engine.waiting_tools import DurablePlace
from runtime.policy.freshness import NO_REFRESH, Refresh


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """On whose behalf a call is made."""

    org_id: str
    run_id: str
    integration_mode: str | None = None
    refresh: Refresh = NO_REFRESH
    budget: tuple[str, ...] = ()  # accounts that its calls are counted against


def _first(_what: str) -> int:
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlace:
    """Where in its run a call is asked. `nth` counts equal calls of one place, from 0."""

    parts: tuple[str | int, ...] = ()
    nth: Callable[[str], int] = field(default=_first, compare=False)
    durable: DurablePlace | None = field(default=None, compare=False)  # where it may wait for a later answer
    node: tuple[str, ...] = ()  # as the API is told: the author's id, column and table namespace


ANYWHERE = CallPlace()
