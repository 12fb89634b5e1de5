"""Waiting for what must become true, instead of sleeping."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
POLL_S = 0.01


def wait_until(predicate: Callable[[], T], timeout_s: float = 10, what: str = "the condition") -> T:
    """The first truthy answer of the predicate; fails naming what was waited for."""
    deadline = time.monotonic() + timeout_s
    while not (answer := predicate()):
        assert time.monotonic() < deadline, (
            f"{what} did not come true within {timeout_s} s (last: {answer!r})"
        )
        time.sleep(POLL_S)
    return answer


async def wait_until_async(
    predicate: Callable[[], Any], timeout_s: float = 10, what: str = "the condition"
) -> Any:
    """`wait_until` on the loop; the predicate may be sync or async."""
    deadline = time.monotonic() + timeout_s
    while True:
        answered = predicate()
        answer = await answered if inspect.isawaitable(answered) else answered
        if answer:
            return answer
        assert time.monotonic() < deadline, (
            f"{what} did not come true within {timeout_s} s (last: {answer!r})"
        )
        await asyncio.sleep(POLL_S)
