"""Loads the Lua files and runs them by digest; one mapping of redis-py's errors to ours."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import (
    ClusterDownError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from runtime.errors import ServiceUnreachableError

# A server that answers with one of these can't serve us now; it may later. The client gives some a type and takes the
# word off their text; a master being down is a ClusterDownError, loading a ConnectionError.
_NOT_NOW = (ReadOnlyError, OutOfMemoryError, ClusterDownError)
_NOT_NOW_WORDS = ("MISCONF", "NOREPLICAS", "BUSY ", "UNBLOCKED")


@cache
def source(name: str, *preludes: str) -> str:
    """Text of `lua/<name>.lua` behind the shared prelude and further ones."""
    folder = files("runtime.redis_store") / "lua"
    return "\n".join(
        (folder / f"{part}.lua").read_text(encoding="utf-8") for part in ("prelude", *preludes, name)
    )


@contextmanager
def reaching_redis(doing: str) -> Iterator[None]:
    """Turn what says that Redis can't serve us now into ServiceUnreachableError; a wrong command stays an error."""
    try:
        yield
    except (RedisConnectionError, RedisTimeoutError, OSError) as error:
        raise ServiceUnreachableError(_sentence(doing, error)) from error
    except ResponseError as error:
        if not isinstance(error, _NOT_NOW) and not any(word in str(error) for word in _NOT_NOW_WORDS):
            raise
        raise ServiceUnreachableError(_sentence(doing, error)) from error


def _sentence(doing: str, error: RedisError | OSError) -> str:
    return f"Redis can't be reached for {doing} ({type(error).__name__}: {error}); it is tried again"


class Script:
    """One Lua operation. Safe to repeat, so the client may send it again after a lost connection."""

    def __init__(self, name: str, *preludes: str) -> None:
        self.name = name
        self._source = source(name, *preludes)
        self._digest = hashlib.sha1(self._source.encode(), usedforsecurity=False).hexdigest()

    async def run(self, redis: "Redis", keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        with reaching_redis(self.name):
            try:
                return await redis.execute_command("EVALSHA", self._digest, len(keys), *keys, *arguments)
            except NoScriptError:
                return await redis.execute_command("EVAL", self._source, len(keys), *keys, *arguments)
