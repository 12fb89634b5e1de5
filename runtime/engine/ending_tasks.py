"""Ends tasks of this process for good."""

import asyncio
from collections.abc import Collection
from typing import Any

_ROUND_S = 0.05
_ROUNDS = 100


async def end_tasks(tasks: Collection["asyncio.Task[Any]"]) -> None:
    """Cancel them until they have ended, for 5 s at most.

    Python 3.11's `asyncio.wait_for`, which redis-py sends with, may swallow one cancellation.
    """
    left = {task for task in tasks if not task.done()}
    for _ in range(_ROUNDS):
        if not left:
            return
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_ROUND_S)
