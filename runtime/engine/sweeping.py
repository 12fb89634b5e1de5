"""Sweeps: what repairs lost messages, dead sessions and crashed publishers, run by every process."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence

import structlog

from runtime.engine.budget_wakes import BudgetWakes
from runtime.engine.event_delivery import EventDelivery
from runtime.engine.settling import ROWS_QUEUE, Settling
from runtime.policy.limits import Limits
from runtime.ports import DispatchEpoch, Publisher, SessionStore, SettlingStore

log = structlog.get_logger()

_JITTER_STEPS = 1_000


class Sweeps:
    """Each sweep takes its turn by a lock that is only tried: many copies are harmless, one is enough."""

    def __init__(
        self,
        *,
        sessions: SessionStore,
        store: SettlingStore,
        settling: Settling,
        publisher: Publisher,
        epoch: DispatchEpoch,
        limits: Limits,
        events: EventDelivery | None = None,
        budgets: BudgetWakes | None = None,
        more: Sequence[tuple[str, Callable[[], Awaitable[int]]]] = (),
    ) -> None:
        self._sessions = sessions
        self._store = store
        self._settling = settling
        self._publisher = publisher
        self._epoch = epoch
        self._limits = limits
        self._task: asyncio.Task[None] | None = None
        # In this order: dead sessions free what they held before the work lists are read.
        self._sweeps: tuple[tuple[str, Callable[[], Awaitable[int]]], ...] = (
            ("sessions", self._end_sessions),
            ("timers", self._resolve_timers),
            *(() if events is None else (("events", events.sweep),)),
            *(() if budgets is None else (("budgets", budgets.sweep),)),
            ("waits", self._settling.wake),
            ("pages", self._settle_pages),
            ("datasets", self._advance_datasets),
            ("runs", self._resume_runs),
            *more,
        )

    async def once(self) -> dict[str, int]:
        """One round; what each sweep that got its turn and succeeded did. One that fails doesn't stop the others."""
        did: dict[str, int] = {}
        for name, sweep in self._sweeps:
            try:
                async with self._store.sweep_turn(name) as ours:
                    if ours:
                        did[name] = await sweep()
            except Exception as error:  # noqa: BLE001 - a sweep is the last line: whatever failed is met again next round
                log.warning(
                    "sweep failed, repeated next round", action="sweep", sweep=name, reason=repr(error)
                )
        if did.get("sessions") or did.get("runs"):
            log.info("swept", action="sweep", **did)
        elif any(did.values()):
            log.debug("swept", action="sweep", **did)  # pages between two steps of their own are no news
        return did

    def start(self) -> None:
        """Sweep on the running loop until `stop`."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self.run(), name="sweeps")

    def stop(self) -> None:
        """End the sweeping; on the loop that it was started on."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def run(self) -> None:
        """Sweep until cancelled, about every `sweep_s`, jittered so that processes spread."""
        while True:
            await asyncio.sleep(self._pause_s())
            await self.once()

    def _pause_s(self) -> float:
        return self._limits.sweep_s * (0.5 + 0.5 * secrets.randbelow(_JITTER_STEPS) / _JITTER_STEPS)

    async def _end_sessions(self) -> int:
        ended = await self._sessions.end_expired()
        for session_id in ended:
            log.warning("session ended", action="session_expired", session_id=session_id)
        return len(ended)

    async def _resolve_timers(self) -> int:
        await self._store.resolve_timers()
        return 0

    async def _settle_pages(self) -> int:
        epoch = await self._epoch.epoch()
        queue_empty = await self._epoch.queue_empty(ROWS_QUEUE)
        pages = await self._store.stale_pages(epoch, queue_empty=queue_empty)
        for run_id, dataset_id, page in pages:
            await self._settling.settle(run_id, dataset_id, page)
        return len(pages)

    async def _advance_datasets(self) -> int:
        datasets = await self._store.stale_datasets()
        for dataset_id in datasets:
            await self._settling.advance(dataset_id)
        return len(datasets)

    async def _resume_runs(self) -> int:
        runs = await self._store.due_runs()
        if runs:
            await self._publisher.resume(runs)
        return len(runs)
