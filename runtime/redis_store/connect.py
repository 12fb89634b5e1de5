"""One way to make a Redis client: bounded retries with backoff, health checks, time limits."""

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from runtime.errors import BadInputError
from runtime.policy.limits import Limits
from runtime.redis_store.scripts import reaching_redis


def connect(url: str, limits: Limits) -> Redis:
    """A lazy client for the running loop. A pooled stale connection costs a retry, never an error."""
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=limits.redis_connections,
        timeout=limits.redis_timeout_s,
        socket_timeout=limits.redis_timeout_s,
        socket_connect_timeout=limits.redis_timeout_s,
        health_check_interval=limits.redis_health_check_s,
        retry=Retry(
            ExponentialWithJitterBackoff(base=limits.redis_backoff_s, cap=limits.redis_backoff_max_s),
            limits.redis_retries,
        ),
        retry_on_error=[RedisConnectionError, RedisTimeoutError],
    )
    return Redis.from_pool(pool)


async def require_noeviction(redis: Redis) -> None:
    """Refuse a Redis that may evict leases; a server that hides its configuration is taken at its word."""
    try:
        with reaching_redis("reading maxmemory-policy"):
            stored = await redis.config_get("maxmemory-policy")
    except ResponseError:
        return
    policy = _text(next(iter(stored.values()), "noeviction"))
    if policy != "noeviction":
        raise BadInputError(
            f"Redis has maxmemory-policy {policy!r}, so it may forget leases and calls could be paid twice: "
            "set it to noeviction, then start again"
        )


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
