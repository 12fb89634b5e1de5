"""Reading the events of a run from any process, blocking."""

from typing import Any
from urllib.parse import urlsplit, urlunsplit

from redis import Redis
from redis.exceptions import ResponseError

from runtime.errors import BadInputError
from runtime.model import events
from runtime.model.events import RunEvent
from runtime.policy.limits import Limits
from runtime.redis_store import keys
from runtime.redis_store.scripts import reaching_redis

STATE_OFFSET = 2
BEGINNING = "0"


def state_url(redis_url: str) -> str:
    """Where state lives: two databases after the broker's."""
    parts = urlsplit(redis_url)
    number = int(parts.path.strip("/") or 0) + STATE_OFFSET
    return urlunsplit(parts._replace(path=f"/{number}"))


class EventStream:
    """One connection, made at first use. Raises ServiceUnreachableError."""

    def __init__(self, redis_url: str, limits: Limits) -> None:
        self._limits = limits
        self._redis = Redis.from_url(
            state_url(redis_url),
            socket_connect_timeout=limits.client_redis_s,
            socket_timeout=limits.client_redis_s + limits.event_block_s,
        )

    def read(self, run_id: str, after: str, *, block: bool = True) -> list[tuple[str, RunEvent]]:
        """(place, event) beyond the place `after`, in order; waits `event_block_s` for the first.

        Events that a newer release tells are passed over, so that nobody meets them again and again.
        """
        while entries := self._entries(run_id, after, block=block):
            known = [
                (place.decode(), event) for place, fields in entries if (event := _event(fields)) is not None
            ]
            if known:
                return known
            after = entries[-1][0].decode()
        return []

    def _entries(self, run_id: str, after: str, *, block: bool) -> list[Any]:
        wait_ms = int(self._limits.event_block_s * 1000) if block else None
        with reaching_redis("reading events"):
            try:
                found: Any = self._redis.xread(
                    {keys.events(run_id): after}, count=self._limits.event_read, block=wait_ms
                )
            except ResponseError as error:
                raise BadInputError(f"{after!r} is no place in a stream of events: {error}") from error
        return found[0][1] if found else []

    def close(self) -> None:
        self._redis.close()


def _event(fields: dict[bytes, bytes]) -> RunEvent | None:
    """None: of a release that knows more kinds; Postgres tells what became of the run."""
    try:
        return events.from_text(fields[b"event"])
    except BadInputError:
        return None
