"""A Pacer without rules: so many batches on the wire per lane and overall, first come first served."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable
from math import inf

from runtime.model.rate_scope import RateScope


class PlainTicket:
    """One place among the groups; due when it is free."""

    def __init__(
        self, pacer: "PlainPacer", lane: str, turn: Hashable, granted: "asyncio.Future[None]"
    ) -> None:
        self._pacer = pacer
        self._lane = lane
        self._turn = turn
        self._granted = granted
        self._freed = False

    async def due(self, hold_ms: float = inf) -> float:
        """A place comes free when it does: how long that takes isn't known."""
        await asyncio.shield(self._granted)
        return 0.0

    def spacing_ms(self, items: int) -> float:
        """There are no rules."""
        return 0.0

    async def later(self, items: int, due_ms: float) -> float:
        """Nobody is ever far away."""
        return due_ms

    async def confirm(self, most: int, *, whole: bool = False) -> tuple[int, float]:
        """Whatever is asked: there are no rules."""
        return most, 0.0

    def sent(self) -> None:
        """Nothing is counted."""

    async def limited(self, retry_after_ms: float | None) -> None:
        """Nobody else hears of it."""

    async def succeeded(self) -> None:
        """Nothing was lowered."""

    def free(self) -> None:
        if not self._freed:
            self._freed = True
            self._pacer.give_back(self._lane, self._turn, self._granted)


class PlainPacer:
    """Caps groups; `groups_of(lane)` is a lane's own cap. Who waits in a lane goes by turns, one place each."""

    def __init__(self, groups_of: Callable[[str], int], groups: int) -> None:
        self._groups_of = groups_of
        self._groups = groups
        self._in_use: Counter[str] = Counter()
        self._total = 0
        self._waiting: dict[str, OrderedDict[Hashable, deque[asyncio.Future[None]]]] = {}

    async def reserve(self, scope: RateScope, items: int, turn: Hashable = "") -> PlainTicket:
        """A place in the lane's line; the rest of `scope`, and `items`, matter only to pacing rules."""
        return self.place(scope.lane, turn)

    def place(self, lane: str, turn: Hashable = "") -> PlainTicket:
        """A place in the lane's line, behind those of the same `turn` and in turns with the others."""
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(lane, OrderedDict()).setdefault(turn, deque()).append(granted)
        self._grant()
        return PlainTicket(self, lane, turn, granted)

    def in_use(self, lane: str) -> int:
        return self._in_use[lane]

    def waiting(self, lane: str) -> int:
        """How many wait for a place."""
        return sum(len(queue) for queue in self._waiting.get(lane, {}).values())

    def ahead(self, lane: str, turn: Hashable) -> int:
        """How many get a place before one that is asked for now."""
        turns = self._waiting.get(lane, {})
        own = len(turns.get(turn, ()))
        return own + sum(min(len(queue), own + 1) for other, queue in turns.items() if other != turn)

    def give_back(self, lane: str, turn: Hashable, granted: "asyncio.Future[None]") -> None:
        """End a ticket, whether its place was granted yet or not."""
        if granted.done():
            self._in_use[lane] -= 1
            self._total -= 1
        else:
            turns = self._waiting[lane]
            turns[turn].remove(granted)
            granted.cancel()
            if not turns[turn]:
                del turns[turn]
            if not turns:
                del self._waiting[lane]
        self._grant()

    def _grant(self) -> None:
        """Lanes take turns for the places that are free overall: who got one goes to the end."""
        while self._total < self._groups:
            lane = next((name for name in self._waiting if self._in_use[name] < self._groups_of(name)), None)
            if lane is None:
                return
            turns = self._waiting.pop(lane)
            turn, queue = turns.popitem(last=False)
            self._in_use[lane] += 1
            self._total += 1
            queue.popleft().set_result(None)
            if queue:
                turns[turn] = queue
            if turns:
                self._waiting[lane] = turns
