"""The dispatch epoch: a random value that leaves with Redis' data, so lost messages can be told."""

from collections.abc import Awaitable, Callable
from uuid import uuid4

from redis.asyncio import Redis

from runtime.policy.limits import Limits
from runtime.redis_store import keys
from runtime.redis_store.scripts import reaching_redis

LengthOf = Callable[[str], Awaitable[int]]


class RedisDispatchEpoch:
    """The DispatchEpoch. `length_of` asks the broker how many messages wait in a queue."""

    def __init__(self, redis: Redis, length_of: LengthOf, limits: Limits) -> None:
        self._redis = redis
        self._length_of = length_of
        self._keep_s = int(limits.lease_ttl_s)

    async def epoch(self) -> str:
        """The value now; made if it is missing."""
        fresh = uuid4().hex
        with reaching_redis("the dispatch epoch"):
            pipeline = self._redis.pipeline(transaction=True)
            pipeline.set(keys.DISPATCH_EPOCH, fresh, nx=True, ex=self._keep_s)
            pipeline.expire(keys.DISPATCH_EPOCH, self._keep_s)
            pipeline.get(keys.DISPATCH_EPOCH)
            stored = (await pipeline.execute())[2]
        return stored.decode() if stored else fresh

    async def queue_empty(self, queue: str) -> bool:
        """Whether nothing waits in the broker's queue."""
        return await self._length_of(queue) == 0


def lengths_in(broker: Redis) -> LengthOf:
    """Of queues that are lists of this database, as Celery keeps them in Redis."""

    async def length_of(queue: str) -> int:
        with reaching_redis("a queue's length"):
            return await broker.llen(queue)

    return length_of
