"""Calls of ended runs are not made: looked at on admission, each second in the queue, and before a repeat."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import structlog

from runtime.engine.lane_book import Item, LaneBook
from runtime.engine.lane_parts import LaneParts
from runtime.errors import ServiceUnreachableError
from runtime.policy.coalescing import Coalescer
from runtime.ports import Timer

log = structlog.get_logger()


class RunStates:
    """Which runs have ended; a live one is asked after again in `ended_runs_ms`."""

    def __init__(self, parts: LaneParts) -> None:
        self._parts = parts
        self._live: dict[str, float] = {}  # run -> when it was seen so

    async def without_a_live_run(self, items: Sequence[Item]) -> list[Item]:
        """Those that only ended runs wait for. Raises ServiceUnreachableError if the runs' states can't be read."""
        runs, now_ms = self._parts.runs, self._parts.clock.now_ms()
        if runs is None:
            return []
        since_ms = now_ms - self._parts.limits.ended_runs_ms
        self._live = {run_id: seen_ms for run_id, seen_ms in self._live.items() if seen_ms > since_ms}
        unknown = {waiter.run_id for item in items for waiter in item.waiters} - self._live.keys()
        if not unknown:
            return []
        ended = await runs.ended(sorted(unknown))
        self._live |= dict.fromkeys(unknown - ended, now_ms)
        return [item for item in items if item.waiters and all(w.run_id in ended for w in item.waiters)]


class EndedCalls:
    """Gives back what no live run waits for."""

    def __init__(
        self,
        parts: LaneParts,
        book: LaneBook,
        coalescer: Coalescer[Item],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._parts = parts
        self._book = book
        self._coalescer = coalescer
        self._spawn = spawn
        self._timer: Timer | None = None

    def watch(self) -> None:
        """Look again in a while, if anything is queued."""
        if self._timer is None and self._parts.runs is not None and len(self._coalescer):
            self._timer = self._parts.clock.call_later(self._parts.limits.ended_runs_ms, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def give_back(self) -> None:
        """Raises ServiceUnreachableError if the runs' states can't be read."""
        if self._parts.runs is None or not len(self._coalescer):
            return
        run_ids = {waiter.run_id for item in self._book.items.values() for waiter in item.waiters}
        ended = await self._parts.runs.ended(sorted(run_ids))
        if ended:
            gone = self._coalescer.remove(lambda item: all(w.run_id in ended for w in item.waiters))
            await self._book.give_back(gone)

    def _look(self) -> None:
        self._timer = None
        if len(self._coalescer):
            self._spawn(self._drop())

    async def _drop(self) -> None:
        try:
            await self.give_back()
        except ServiceUnreachableError as error:
            log.warning("ended runs unknown", action="lane.ended", error=str(error))
        finally:
            self.watch()
