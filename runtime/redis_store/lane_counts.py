"""What this process sends, told to Redis at most once a while, for who looks at lanes."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import structlog
from redis.asyncio import Redis

from runtime.errors import ServiceUnreachableError
from runtime.policy import pacing
from runtime.policy.limits import Limits
from runtime.redis_store import keys
from runtime.redis_store.pacer_scripts import Pace
from runtime.redis_store.scripts import reaching_redis

log = structlog.get_logger()
LaneKey = tuple[str, str, str]


@dataclass(slots=True)
class _Count:
    facts: dict[str, str]
    sent: Counter[str] = field(default_factory=Counter)
    on_the_wire: int = 0


class LaneCounts:
    """Counts per (lane, organisation, provider). `in_line(lane key)` is how many wait for a place of this process."""

    def __init__(
        self, redis: Redis, limits: Limits, session_id: str, in_line: Callable[[LaneKey], int]
    ) -> None:
        self._redis = redis
        self._limits = limits
        self._session_id = session_id
        self._in_line = in_line
        self._counts: dict[LaneKey, _Count] = {}
        self._dirty: set[LaneKey] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def sent(self, pace: Pace, items: int) -> None:
        """A request with so many items leaves."""
        self._of(pace).sent.update(requests=1, items=items, capacity=pace.scope.max_batch_size)

    def on_the_wire(self, pace: Pace, change: int) -> None:
        """Places that may send now."""
        self._of(pace).on_the_wire += change

    def changed(self, pace: Pace) -> None:
        """Others wait for a place than before."""
        self._of(pace)

    async def tell(self) -> None:
        """Write what changed; what can't be told now is told next time."""
        dirty, self._dirty = self._dirty, set()
        taken = {key: self._counts[key].sent for key in dirty}
        for key in dirty:
            self._counts[key].sent = Counter()
        try:
            await self._write(taken)
        except ServiceUnreachableError as error:
            log.debug("counts not told", action="lane.counts", error=str(error))
            for key, sent in taken.items():
                self._counts[key].sent += sent
            self._dirty |= dirty

    async def _write(self, taken: dict[LaneKey, Counter[str]]) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        for key, sent in taken.items():
            name, count = keys.lane(*key), self._counts[key]
            known: dict[Any, Any] = {
                **count.facts,
                f"wire:{self._session_id}": count.on_the_wire,
                f"line:{self._session_id}": self._in_line(key),
            }
            pipeline.hset(name, mapping=known)
            for what, number in sent.items():
                pipeline.hincrby(name, what, number)
            pipeline.expire(name, self._limits.lanes_keep_s)
            pipeline.zadd(keys.LANES, {name: int(time.time())})
        pipeline.expire(keys.LANES, self._limits.lanes_keep_s)
        with reaching_redis("counts of lanes"):
            await pipeline.execute()

    def _of(self, pace: Pace) -> _Count:
        scope = pace.scope
        key = (scope.lane, scope.org_id, scope.state_name)
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = _Count(facts=_facts(pace, self._limits))
        self._dirty.add(key)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._limits.lane_counts_s, self._start)
        return count

    def _start(self) -> None:
        self._timer = None
        self._task = asyncio.get_running_loop().create_task(self.tell())


def _facts(pace: Pace, limits: Limits) -> dict[str, str]:
    scope = pace.scope
    rate = pacing.requests_per_s(pace.meters)
    return {
        "lane": scope.lane,
        "org": scope.org_id,
        "provider": scope.provider,
        "fixture": "1" if scope.is_fixture else "",
        "rate": "" if rate is None else repr(rate / limits.pacing_share),
        "rules": ", ".join(meter.described for meter in pace.meters),
        "concurrency": str(pace.concurrency or ""),
    }
