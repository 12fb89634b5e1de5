"""A message names a slice; in a process that is busy it is a place for whichever run's turn it is."""

import asyncio
from collections.abc import Sequence

import structlog

from runtime.engine.slice_run import SliceRunner
from runtime.errors import ServiceUnreachableError
from runtime.model.slice import SliceId, SliceOfRun, TakenSlice
from runtime.policy.limits import Limits
from runtime.policy.slice_turns import fewest_held, next_slice
from runtime.ports import WaitingSlices

log = structlog.get_logger()


class SliceTurns:
    """Takes slices for one process. Every message takes one slice: its own, or one that waits as it does.

    Whoever takes another's slice leaves its own to that one's message, which finds its slice taken.
    """

    def __init__(self, slices: SliceRunner, store: WaitingSlices, limits: Limits) -> None:
        self._slices = slices
        self._store = store
        self._limits = limits
        self._seen: Sequence[SliceOfRun] = ()
        self._seen_s: float | None = None

    async def take(self, run_id: str, slice_id: SliceId) -> TakenSlice | None:
        """The slice that this message's place goes to, or None if nothing waits for one."""
        asked = SliceOfRun(run_id=run_id, id=slice_id)
        if slice_id.is_suspect:
            return await self._take(asked)
        if self._slices.held() >= self._limits.slice_turns_from:
            chosen = next_slice(asked, await self._waiting(), self._slices.held_by_run())
            if chosen != asked:
                taken = await self._take(chosen)
                if taken is not None:
                    return taken
        return await self._take(asked) or await self._left_over(slice_id)

    async def _left_over(self, slice_id: SliceId) -> TakenSlice | None:
        """Somebody else has the slice: then one waits whose own message's place was given away, or nothing does.

        Looked for anew each time: what waited a moment ago is others' by now, and a place must not be lost.
        """
        for _ in range(self._limits.slice_turns_tries):
            waiting = [one for one in await self._look() if one.id != slice_id]
            if not waiting:
                return None
            taken = await self._take(fewest_held(waiting, self._slices.held_by_run()))
            if taken is not None:
                return taken
        return None

    async def _take(self, one: SliceOfRun) -> TakenSlice | None:
        self._seen = [other for other in self._seen if other != one]
        return await self._slices.take(one.run_id, one.id)

    async def _waiting(self) -> Sequence[SliceOfRun]:
        """As it was lately; what is gone since is not taken twice."""
        now_s = asyncio.get_running_loop().time()
        if self._seen_s is None or now_s - self._seen_s >= self._limits.slice_turns_look_s:
            await self._look()
        return self._seen

    async def _look(self) -> Sequence[SliceOfRun]:
        """As it is now. If the store can't say, each message takes its own."""
        self._seen_s = asyncio.get_running_loop().time()
        try:
            self._seen = await self._store.waiting_slices(self._limits.slice_turns_datasets)
        except ServiceUnreachableError as error:
            log.warning("slices not seen", action="slice.turns", error=str(error))
            self._seen = ()
        return self._seen
