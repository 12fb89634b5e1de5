"""What `doctor` reads of Redis; plain blocking reads, for the command line."""

from typing import Any

from redis import Redis
from redis.exceptions import ResponseError

from runtime.model.health import RedisFacts
from runtime.policy.limits import Limits
from runtime.redis_store.scripts import reaching_redis


def redis_facts(url: str, limits: Limits) -> RedisFacts:
    """Raises ServiceUnreachableError."""
    redis = Redis.from_url(
        url, socket_timeout=limits.client_redis_s, socket_connect_timeout=limits.client_redis_s
    )
    try:
        with reaching_redis("the examination"):
            info: Any = redis.info()
            seconds, micros = redis.time()  # type: ignore[misc]
            return RedisFacts(
                server=str(info.get("server_name", "redis")),
                version=_version(info.get("valkey_version") or info["redis_version"]),
                now_s=seconds + micros / 1e6,
                eviction=_eviction(redis),
                is_cluster=bool(int(info.get("cluster_enabled", 0))),
                used_bytes=int(info["used_memory"]),
                max_bytes=int(info.get("maxmemory", 0)),
            )
    finally:
        redis.close()


def _eviction(redis: Redis) -> str | None:
    try:
        stored: Any = redis.config_get("maxmemory-policy")
    except ResponseError:
        return None
    found = next(iter(stored.values()), None)
    return found.decode() if isinstance(found, bytes) else found


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in str(text).split(".") if part.isdigit())
