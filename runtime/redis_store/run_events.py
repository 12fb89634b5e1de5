"""The EventSink over Redis: a capped stream per run, written a few times a second whatever happens in the run."""

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Callable

import structlog
from redis.asyncio import Redis

from runtime.errors import JsonValueError, ServiceUnreachableError
from runtime.known_secrets import known_secrets
from runtime.model import events
from runtime.model.events import Event, RunEnded
from runtime.policy.limits import Limits
from runtime.redis_store import keys
from runtime.redis_store.scripts import Script

log = structlog.get_logger()
_Told = tuple[str, int, Event]


class RedisEvents:
    """Belongs to the process's loop; `emit` may be called from any thread."""

    def __init__(
        self, redis: Redis, limits: Limits, wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    ) -> None:
        self._redis = redis
        self._limits = limits
        self._wall_ms = wall_ms
        self._loop = asyncio.get_running_loop()
        self._script = Script("append_events")
        self._waiting: deque[_Told] = deque(maxlen=limits.events_buffered)
        # what other processes still tell of these runs comes before
        self._ends: deque[_Told] = deque(maxlen=limits.events_buffered)
        self._one_writer = asyncio.Lock()  # two at once would write out of order
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self.dropped = 0

    def emit(self, run_id: str, event: Event) -> None:
        """Tell it soon; the oldest go if Redis is away for long."""
        if isinstance(event, RunEnded):
            self.dropped += len(self._ends) == self._ends.maxlen
            self._ends.append((run_id, self._wall_ms(), event))
        else:
            self.dropped += len(self._waiting) == self._waiting.maxlen
            self._waiting.append((run_id, self._wall_ms(), event))
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is self._loop:
            self._soon()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._soon)

    async def flush(self, *, is_final: bool = True) -> None:
        """Write what waits; what Redis doesn't take now is dropped. `is_final`: ends of runs too, however new."""
        async with self._one_writer:
            await self._flush(is_final=is_final)

    async def _flush(self, *, is_final: bool) -> None:
        old_ms = self._wall_ms() - self._limits.events_last_ms
        while self._ends and (is_final or self._ends[0][1] <= old_ms):
            self._waiting.append(self._ends.popleft())
        while self._waiting:
            by_run: dict[str, list[bytes | str]] = {}
            for _ in range(min(len(self._waiting), self._limits.events_write)):
                run_id, at_ms, event = self._waiting.popleft()
                text = self._text(run_id, at_ms, event)
                if text is not None:
                    by_run.setdefault(run_id, []).extend((event.type, text))
            for run_id, told in by_run.items():
                await self._append(run_id, told)

    async def _append(self, run_id: str, told: list[bytes | str]) -> None:
        limits = self._limits
        bounds = (uuid.uuid4().hex, limits.events_kept, int(limits.events_keep_s * 1000))
        try:
            await self._script.run(self._redis, [keys.events(run_id)], [*bounds, *told])
        except ServiceUnreachableError as error:
            self.dropped += len(told) // 2
            log.debug("events not told", action="events.write", run_id=run_id, error=str(error))

    def _text(self, run_id: str, at_ms: int, event: Event) -> bytes | None:
        try:
            text = known_secrets.redacted(events.to_text(run_id, at_ms, event).decode())
        except JsonValueError as error:
            log.warning(
                "event left out", action="events.write", run_id=run_id, type=event.type, error=str(error)
            )
            return None
        if len(text) <= self._limits.event_bytes:
            return text.encode()
        if isinstance(event, RunEnded) and event.is_whole:
            return self._text(run_id, at_ms, RunEnded(state=event.state, is_whole=False))
        return None

    def _soon(self) -> None:
        if self._timer is None and self._writing is None and (self._waiting or self._ends):
            self._timer = self._loop.call_later(self._limits.events_flush_ms / 1000, self._start)

    def _start(self) -> None:
        self._timer = None
        self._writing = self._loop.create_task(self._write())

    async def _write(self) -> None:
        try:
            await self.flush(is_final=False)
        finally:
            self._writing = None
            self._soon()
