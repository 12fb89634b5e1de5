"""The heartbeat key from a plain thread, on a connection of its own: a blocked loop keeps its leases."""

from redis import Redis
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from runtime.policy.limits import Limits
from runtime.redis_store import keys
from runtime.redis_store.scripts import reaching_redis


class HeartbeatKey:
    """Renews `session:{id}`; nothing else is touched, so a lost epoch is still noticed by the loop."""

    def __init__(self, url: str, limits: Limits) -> None:
        self._limits = limits
        self._redis = Redis.from_url(
            url,
            socket_timeout=limits.redis_timeout_s,
            socket_connect_timeout=limits.redis_timeout_s,
            retry=Retry(
                ExponentialWithJitterBackoff(base=limits.redis_backoff_s, cap=limits.redis_backoff_max_s),
                limits.redis_retries,
            ),
            retry_on_error=[RedisConnectionError, RedisTimeoutError],
        )

    def beat(self, session_id: str) -> None:
        """Alive for one more TTL; raises ServiceUnreachableError."""
        with reaching_redis("the heartbeat"):
            self._redis.set(keys.session(session_id), "1", px=int(self._limits.session_ttl_s * 1000))

    def close(self) -> None:
        self._redis.close()
