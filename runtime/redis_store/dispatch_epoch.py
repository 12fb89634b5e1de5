"""The dispatch epoch: a random value that leaves with Redis' data, so lost messages can be told."""

from uuid import uuid4

from redis.asyncio import Redis

from runtime.policy.limits import Limits
from runtime.redis_store import keys
from runtime.redis_store.scripts import reaching_redis


class RedisDispatchEpoch:
    """The DispatchEpoch. `broker` is the database that Celery's queues live in."""

    def __init__(self, redis: Redis, broker: Redis, limits: Limits) -> None:
        self._redis = redis
        self._broker = broker
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
        with reaching_redis("a queue's length"):
            return await self._broker.llen(queue) == 0
