"""The pacer's scripts as plain Python over a given time: the reference that the Lua is compared with."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from runtime.policy.limits import Limits
from runtime.policy.pacing import LOG_SLOTS, Meter
from runtime.redis_store.pacer_scripts import Ask, Verdict

EARLY_US = 500


@dataclass(slots=True)
class _MeterState:
    meter: Meter
    tat: int = 0
    log: list[list[int]] = field(default_factory=list)  # [time, tokens]

    def cost(self, items: int) -> int:
        return self.meter.cost(items)

    def slot(self, at: int) -> int:
        return math.floor(at / (self.meter.window_us / LOG_SLOTS))

    def add(self, at: int, tokens: int) -> None:
        last = self.log[-1] if self.log else None
        at = max(at, last[0]) if last else at
        if last and self.slot(last[0]) == self.slot(at):
            last[0], last[1] = at, last[1] + tokens
        else:
            self.log.append([at, tokens])

    def move(self, since: int, left: int, tokens: int) -> None:
        for entry in self.log:
            if self.slot(entry[0]) == self.slot(since) and entry[1] >= tokens:
                entry[1] -= tokens
                break
        self.add(left, tokens)

    def sent_in(self, now: int, span: int) -> int:
        return sum(tokens for at, tokens in self.log if at > now - span)

    def opens(self, now: int, span: int, limit: float, tokens: int) -> int:
        total = self.sent_in(now, span)
        if total + tokens <= limit:
            return now
        for at, sent in self.log:
            if at > now - span:
                total -= sent
                if total + tokens <= limit:
                    return at + span
        return now + span


@dataclass(slots=True)
class _Waiting:
    due: int
    items: int


@dataclass(slots=True)
class _Granted:
    items: int
    at: int = 0
    left: bool = False


class ModelPacer:
    """One rate scope. `now_us` and `dead` are moved by a test."""

    def __init__(self, meters: Sequence[Meter], concurrency: int, limits: Limits, now_us: int) -> None:
        self.meters = tuple(meters)
        self.concurrency = concurrency
        self.limits = limits
        self.now_us = now_us
        self.dead: set[str] = set()
        self.in_grace = False
        self.start(lost=False)

    def start(self, *, lost: bool) -> None:
        """Begin full, or empty after a loss of data."""
        self.states = [_MeterState(meter) for meter in self.meters]
        if lost:
            for state in self.states:
                state.tat = math.ceil(self.now_us + state.meter.capacity * state.meter.interval_us)
        self.closed = 0
        self.factor = 1.0
        self.changed = 0
        self.cut = 0
        self.line: dict[str, _Waiting | _Granted] = {}
        self.slots: dict[str, tuple[int, str]] = {}

    def reserve(self, tickets: Sequence[tuple[str, int]]) -> list[float]:
        self._forget_old()
        waits: list[float] = []
        for ticket_id, items in tickets:
            known = self.line.get(ticket_id)
            if known is None:
                known = self.line[ticket_id] = _Waiting(
                    self._place(max(self.now_us, self.closed), items), items
                )
            due = known.due if isinstance(known, _Waiting) else self.now_us
            waits.append(max(0, due - self.now_us) / 1000)
        return waits

    def confirm(self, session: str, asks: Sequence[Ask]) -> list[Verdict]:
        self._forget_old()
        if self.concurrency:
            self.dead.discard(session)
            self._forget_slots()
        return [self._confirm(session, ask) for ask in asks]

    def sent(self, tickets: Sequence[tuple[str, float]]) -> int:
        self._forget_old()
        moved = 0
        for ticket_id, late_ms in tickets:
            known = self.line.get(ticket_id)
            if isinstance(known, _Granted) and not known.left:
                left = min(self.now_us, known.at + int(late_ms * 1000))
                for state in self.states:
                    state.move(known.at, left, state.cost(known.items))
                known.at, known.left = left, True
                moved += 1
        return moved

    def free(self, ticket_ids: Sequence[str]) -> int:
        self._forget_old()
        freed = 0
        for ticket_id in ticket_ids:
            freed += self.slots.pop(ticket_id, None) is not None
            known = self.line.pop(ticket_id, None)
            if isinstance(known, _Waiting):
                for state in self.states:
                    taken = state.cost(known.items) * state.meter.interval_us / self.factor
                    state.tat = max(0, state.tat - math.ceil(taken))
        return freed

    def limited(self, wait_ms: float | None, fallback_ms: float) -> float:
        self._forget_old()
        if wait_ms is None and not self.meters:
            wait_ms = fallback_ms
        if wait_ms is not None:
            until = self.now_us + int(wait_ms * 1000)
            if until > self.closed:
                self.closed = until
                self._line_up_again(until)
        elif self.now_us - self.cut >= self.limits.pacing_cut_ms * 1000:
            self.factor = max(self.limits.pacing_floor, self.factor / 2)
            self.cut = self.changed = self.now_us
            self._line_up_again(max(self.now_us, self.closed))
        return max(0, self.closed - self.now_us) / 1000

    def succeeded(self) -> float:
        if self.factor < 1 and self.now_us - self.changed >= self.limits.pacing_recover_ms * 1000:
            self.factor = min(1.0, self.factor + self.limits.pacing_step)
            self.changed = self.now_us
        return self.factor

    # ---- one ticket

    def _confirm(self, session: str, ask: Ask) -> Verdict:
        known = self.line.get(ask.ticket_id)
        if isinstance(known, _Granted):
            return self._verdict(known.items, 0)
        if known is None:
            items = max(1, ask.least or ask.most)
            known = _Waiting(self._place(max(self.now_us, self.closed), items), items)
        due = max(known.due, self.closed) if self.closed > self.now_us else known.due
        if due > self.now_us + EARLY_US or self.closed > self.now_us:
            return self._later(ask, due, known.items)
        opening = self._opening(ask.least or min(known.items, ask.most))
        if opening > self.now_us:
            return self._later(ask, opening, known.items)
        if self.concurrency and ask.ticket_id not in self.slots:
            if len(self.slots) >= self.concurrency or self.in_grace:
                return self._later(
                    ask, self.now_us + int(self.limits.pacing_slot_wait_ms * 1000), known.items
                )
            self.slots[ask.ticket_id] = (self.now_us, session)
        items = ask.least or self._room(known.items, ask.most)
        if self.meters or self.concurrency:
            self._settle(known.items, items)
            self._count_sent(items)
            self.line[ask.ticket_id] = _Granted(items, self.now_us)
        else:
            self.line.pop(ask.ticket_id, None)
        return self._verdict(items, 0)

    def _later(self, ask: Ask, at: int, items: int) -> Verdict:
        self.line[ask.ticket_id] = _Waiting(at, items)
        return self._verdict(0, max(1, at - self.now_us))

    def _verdict(self, items: int, wait_us: int) -> Verdict:
        return Verdict(items=items, wait_ms=wait_us / 1000, factor=self.factor)

    # ---- tokens

    def _place(self, base: int, items: int) -> int:
        due = base
        for state in self.states:
            room = (state.meter.capacity - state.cost(items)) * state.meter.interval_us / self.factor
            due = max(due, math.ceil(state.tat - room))
        for state in self.states:
            taken = state.cost(items) * state.meter.interval_us / self.factor
            state.tat = math.ceil(max(state.tat, due) + taken)
        return due

    def _opening(self, items: int) -> int:
        at = self.now_us
        for state in self.states:
            meter, tokens = state.meter, state.cost(items)
            at = max(at, state.opens(self.now_us, meter.window_us, meter.window_limit, tokens))
            at = max(at, state.opens(self.now_us, meter.part_us, meter.part_limit, tokens))
        return at

    def _room(self, reserved: int, most: int) -> int:
        items = most
        for state in self.states:
            meter = state.meter
            if meter.counts_items:
                saved = meter.capacity - max(0, state.tat - self.now_us) * self.factor / meter.interval_us
                free = min(
                    meter.window_limit - state.sent_in(self.now_us, meter.window_us),
                    meter.part_limit - state.sent_in(self.now_us, meter.part_us),
                )
                items = min(items, reserved + max(0, math.floor(saved + 0.01)), math.floor(free), meter.unit)
        return items

    def _settle(self, reserved: int, items: int) -> None:
        for state in self.states:
            if not state.meter.counts_items:
                continue
            more = state.cost(items) - state.cost(reserved)
            change = more * state.meter.interval_us / self.factor
            if more > 0:
                state.tat = math.ceil(max(state.tat, self.now_us) + change)
            else:
                state.tat = max(0, state.tat + math.ceil(change))

    def _count_sent(self, items: int) -> None:
        for state in self.states:
            state.add(self.now_us, state.cost(items))

    def _line_up_again(self, base: int) -> None:
        for state in self.states:
            state.tat = math.ceil(base + state.meter.burst * state.meter.interval_us / self.factor)
        waiting = sorted(
            (ticket.due, ticket_id) for ticket_id, ticket in self.line.items() if isinstance(ticket, _Waiting)
        )
        for due, ticket_id in waiting:
            ticket = self.line[ticket_id]
            ticket = _Waiting(self._place(max(base, due), ticket.items), ticket.items)
            self.line[ticket_id] = ticket

    def _forget_old(self) -> None:
        for state in self.states:
            state.log = [entry for entry in state.log if entry[0] > self.now_us - state.meter.window_us]

    def _forget_slots(self) -> None:
        hold_us = int(self.limits.pacing_slot_hold_s * 1e6)
        self.slots = {
            ticket_id: (since, owner)
            for ticket_id, (since, owner) in self.slots.items()
            if since + hold_us >= self.now_us and owner not in self.dead
        }
