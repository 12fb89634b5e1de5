"""Ends tasks of this process for good."""

import asyncio
from collections.abc import Collection
from typing import Any

from runtime.policy.limits import DEFAULT_LIMITS, Limits


async def end_tasks(tasks: Collection["asyncio.Task[Any]"], limits: Limits = DEFAULT_LIMITS) -> None:
    """Cancel them until they have ended, for some rounds at most.

    Python 3.11's `asyncio.wait_for`, which redis-py sends with, may swallow one cancellation.
    """
    left = {task for task in tasks if not task.done()}
    for _ in range(limits.end_tasks_rounds):
        if not left:
            return
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=limits.end_tasks_round_s)
