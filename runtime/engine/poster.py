"""Posts: one publish in flight per lane; what arrives meanwhile is the next post."""

import asyncio
from collections import deque

import orjson
import structlog

from runtime.model.call import Call
from runtime.policy.limits import Limits
from runtime.ports import Publisher

log = structlog.get_logger()


class Poster:
    """Gathers calls per lane into few, fat messages. A lost post is repaired by its caller's poll."""

    def __init__(self, publisher: Publisher, limits: Limits) -> None:
        self._publisher = publisher
        self._limits = limits
        self._waiting: dict[str, deque[Call]] = {}
        self._publishing: dict[str, asyncio.Task[None]] = {}

    def add(self, lane: str, call: Call) -> None:
        """Send `call` with the lane's next post."""
        self._waiting.setdefault(lane, deque()).append(call)
        if lane not in self._publishing:
            self._publishing[lane] = asyncio.get_running_loop().create_task(self._publish(lane))

    async def _publish(self, lane: str) -> None:
        waiting = self._waiting[lane]
        try:
            while waiting:
                await self._publisher.post(lane, self._next_post(waiting))
        finally:
            del self._publishing[lane]
            if waiting:  # the publisher raised: the rest waits for the next call or the callers' polls
                log.warning("post failed", action="poster.post", lane=lane, waiting=len(waiting))

    def _next_post(self, waiting: deque[Call]) -> list[Call]:
        calls: list[Call] = []
        size = 0
        while waiting and len(calls) < self._limits.post_calls:
            size += len(orjson.dumps(waiting[0].input, default=str)) + 400
            if calls and size > self._limits.post_bytes:
                break
            calls.append(waiting.popleft())
        return calls
