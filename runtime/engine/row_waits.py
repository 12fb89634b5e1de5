"""Durable waits inside a row: the row's turn ends, and what had ended when it runs again is passed at once."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from runtime.context.waits import SleepAsk, WaitAsk
from runtime.engine.outcomes import error_of
from runtime.errors import RowWaitsError
from runtime.model.boundary import KnownBoundary, RowAt
from runtime.model.row import FinishedRow, LaterRow
from runtime.model.row_wait import NewBoundary, RowWait, WaitKind
from runtime.model.slice import TakenSlice
from runtime.policy.limits import Limits
from runtime.ports import WaitStore

Known = Mapping[str, KnownBoundary]


class SliceBoundaries:
    """The boundaries of a held slice's rows: read once, and only if some row asks.

    `woken`: of these rows alone, which were woken since the slice was taken.
    """

    def __init__(self, store: WaitStore, taken: TakenSlice, woken: Sequence[LaterRow] | None = None) -> None:
        self.store = store
        self._taken = taken
        self._rows = (*taken.rows, *taken.later) if woken is None else woken
        self._reading: asyncio.Task[dict[int, dict[str, KnownBoundary]]] | None = None
        self.read_at_ms = 0.0

    async def of(self, position: int) -> dict[str, KnownBoundary]:
        """The row's boundaries by key, as they were when its turn's boundaries were read."""
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read())
        found = await asyncio.shield(self._reading)
        return found.setdefault(position, {})

    def at(self, position: int, key: str) -> RowAt:
        """A boundary of the row, under this slice's fence."""
        one = self._taken.id
        return RowAt(
            dataset_id=one.dataset_id,
            page=one.page,
            slice=one.slice,
            position=position,
            key=key,
            fence=self._taken.fence,
        )

    async def _read(self) -> dict[int, dict[str, KnownBoundary]]:
        positions = [row.position for row in self._rows]
        found = await self.store.row_boundaries(self._taken.id.dataset_id, positions)
        self.read_at_ms = _now_ms()
        rows: dict[int, dict[str, KnownBoundary]] = {}
        for (position, key), one in found.items():
            rows.setdefault(position, {})[key] = one
        return rows


class WaitingRow(Protocol):
    """What waits need of the row's scope."""

    limits: Limits
    position: int
    column: str
    waits: RowWaitsError | None

    @property
    def is_busy(self) -> bool:
        """Whether calls or steps of the row are under way: its turn doesn't end before them."""
        ...

    def check(self) -> None: ...

    def nth(self, what: str) -> int: ...


class RowWaiting:
    """The durable waits of one row in one turn."""

    def __init__(self, row: WaitingRow, boundaries: SliceBoundaries) -> None:
        self.boundaries = boundaries
        self._row = row
        self._asked: dict[str, NewBoundary] = {}
        self._used = False
        self.resting_calls = 0  # calls under way that only wait: they don't keep the turn

    async def perform(self, ask: WaitAsk) -> Any:
        """What the wait gave, if it is over; else the row's turn ends with RowWaitsError."""
        n = self._row.nth(f"{ask.kind.value}:{ask.id}")
        wait = ask.boundary(f"{self._row.column}:{ask.kind.value}:{ask.id}:{n}")
        if isinstance(ask, SleepAsk) and ask.delay_ms <= self._row.limits.row_short_sleep_s * 1000:
            await asyncio.sleep(ask.delay_ms / 1000)
            self._row.check()
            return None
        return value_of(await self.outcome(wait))

    async def outcome(self, wait: NewBoundary) -> dict[str, Any]:
        """The wait's outcome, or RowWaitsError."""
        self._used = True
        self._asked[wait.key] = wait
        known: KnownBoundary | None = None
        try:
            known = (await self.boundaries.of(self._row.position)).get(wait.key)
            left = wait if known is None else self._left(wait, known)
            if known is not None and known.outcome is not None:
                return self._over(wait.key, known.outcome)
            if wait.kind is WaitKind.SLEEP and left.due_ms <= self._row.limits.row_short_sleep_s * 1000:
                await asyncio.sleep(left.due_ms / 1000)
                return self._over(wait.key, {"ok": None})
            self._asked[wait.key] = left
            await self._until_quiet()
        except BaseException:
            if self._row.waits is None:  # its author gave the wait up before the turn ended
                self._asked.pop(wait.key, None)
            raise
        self._row.check()
        self._row.waits = RowWaitsError(_joined(tuple(self._asked.values())))
        raise self._row.waits

    def _left(self, wait: NewBoundary, known: KnownBoundary) -> NewBoundary:
        """The wait as it goes on: its time began when it was armed."""
        passed_ms = _now_ms() - self.boundaries.read_at_ms
        due_ms = wait.due_ms if known.due_ms is None else max(0.0, known.due_ms - passed_ms)
        return replace(wait, due_ms=due_ms, event_key=known.event_key or wait.event_key)

    def _over(self, key: str, outcome: dict[str, Any]) -> dict[str, Any]:
        del self._asked[key]
        self._row.check()
        return outcome

    def at(self, key: str) -> RowAt:
        """A boundary of this row."""
        return self.boundaries.at(self._row.position, key)

    async def known(self, key: str) -> KnownBoundary | None:
        """The boundary as it was when its turn's boundaries were read."""
        self._used = True
        return (await self.boundaries.of(self._row.position)).get(key)

    def finished(self, row: FinishedRow) -> FinishedRow:
        """The row's end with what it still waits for: armed with its wait, or ended with it."""
        if row.wait is not None:
            known = {one.key for one in row.wait.boundaries}
            others = tuple(one for key, one in self._asked.items() if key not in known)
            return replace(row, wait=replace(row.wait, boundaries=row.wait.boundaries + others))
        return replace(row, waited=True) if self._used else row

    async def _until_quiet(self) -> None:
        while True:
            await asyncio.sleep(self._row.limits.row_rest_ms / 1000)
            if not self._row.is_busy or self._row.waits is not None:
                return


class RowPlace:
    """One tool call of a row, for tools whose answer comes later."""

    def __init__(self, waiting: RowWaiting, prefix: str, *, allows_events: bool) -> None:
        self.store = waiting.boundaries.store
        self.allows_events = allows_events
        self._waiting = waiting
        self._prefix = prefix

    def at(self, part: str) -> RowAt:
        return self._waiting.at(f"{self._prefix}:{part}")

    async def known(self, part: str) -> KnownBoundary | None:
        return await self._waiting.known(f"{self._prefix}:{part}")

    async def outcome(self, part: str, wait: NewBoundary) -> dict[str, Any]:
        """The wait's outcome, or RowWaitsError."""
        self._waiting.resting_calls += 1
        try:
            return await self._waiting.outcome(replace(wait, key=f"{self._prefix}:{part}"))
        finally:
            self._waiting.resting_calls -= 1


def value_of(outcome: dict[str, Any]) -> Any:
    """The value, or raise the failure that it holds."""
    if "error" in outcome:
        raise error_of(outcome["error"])
    return outcome.get("ok")


def _joined(waits: tuple[NewBoundary, ...]) -> RowWait:
    events = [wait for wait in waits if wait.kind is WaitKind.EVENT]
    return RowWait(
        kind=WaitKind.EVENT if events else WaitKind.SLEEP,
        due_ms=min(wait.due_ms for wait in waits),
        detail=waits[0].key.partition(":")[0][:200],
        boundaries=waits,
    )


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000
