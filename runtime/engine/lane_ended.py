"""Queued calls of runs that have ended are given back: looked at each second while there are any."""

from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from runtime.engine.lane_book import Item, LaneBook
from runtime.engine.lane_parts import LaneParts
from runtime.errors import ServiceUnreachableError
from runtime.policy.coalescing import Coalescer
from runtime.ports import Timer

log = structlog.get_logger()


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
