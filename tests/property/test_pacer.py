"""The pacer's Lua against its model; and what holds whatever happens: windows, slots, places."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from fakeredis import FakeAsyncRedis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from redis.asyncio import Redis

from runtime.model.rate_scope import RateScope
from runtime.model.tool import Counts, PacingRule
from runtime.policy import pacing
from runtime.policy.limits import Limits
from runtime.redis_store import keys
from runtime.redis_store.connect import connect
from runtime.redis_store.pacer_scripts import Ask, Pace, PacerScripts, Verdict
from runtime.testing.pacing import ModelPacer

T = TypeVar("T")
LIMITS = Limits(pacing_slot_hold_s=20.0)
SESSIONS = ("s1", "s2", "s3")
SETTINGS = settings(max_examples=40, stateful_step_count=30, deadline=None)

rules = st.lists(
    st.builds(
        PacingRule,
        limit=st.sampled_from([0.5, 1.0, 3.0, 10.0, 50.0]),
        per_ms=st.sampled_from([1_000.0, 10_000.0]),
        counts=st.sampled_from(list(Counts)),
        burst=st.sampled_from([0.0, 1.0, 5.0]),
    ),
    max_size=3,
    unique_by=lambda rule: (rule.counts, rule.per_ms),
)
session_ids = st.sampled_from(SESSIONS)
items = st.integers(1, 12)


class PacerMachine(RuleBasedStateMachine):
    """Time moves by hand. Tickets are asked for, confirmed, freed and repeated in any order."""

    @staticmethod
    def make_redis() -> Redis:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.redis = self.make_redis()
        self.tickets: list[str] = []
        self.owner: dict[str, str] = {}
        self.sent: list[tuple[int, int]] = []  # time, items, as granted the first time
        self.granted: dict[str, int] = {}
        self.freed: set[str] = set()
        self.late: set[str] = set()

    def run(self, work: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await work

        return self.runner.run(awaited())

    @initialize(rules=rules, max_batch=st.sampled_from([1, 4, 10]), cap=st.sampled_from([0, 0, 1, 3]))
    def start(self, rules: list[PacingRule], max_batch: int, cap: int) -> None:
        self.run(self.redis.flushdb())
        self.run(self.redis.set(keys.EPOCH, "e"))
        for session in SESSIONS:
            self.run(self.redis.set(keys.session(session), "1"))
        scope = RateScope(lane="l", org_id="o", provider="p", max_batch_size=max_batch, rules=tuple(rules))
        meters = pacing.meters(pacing.merged(rules, ()), max_batch, LIMITS)
        self.by_meter = {
            meter.name: rule for meter, rule in zip(meters, pacing.merged(rules, ()), strict=True)
        }
        self.max_batch = max_batch
        self.pace = Pace(scope=scope, meters=meters, concurrency=cap)
        self.model = ModelPacer(meters, cap, LIMITS, 10**15)
        self.lua = PacerScripts(self.redis, LIMITS, now_us=lambda: self.model.now_us)

    def both(self, what: str, for_lua: tuple[Any, ...], for_model: tuple[Any, ...]) -> Any:
        expected = getattr(self.model, what)(*for_model)
        answer = self.run(getattr(self.lua, what)(self.pace, *for_lua))
        assert answer == expected, what
        return answer

    @rule(by_us=st.sampled_from([0, 1, 499, 5_000, 20_000, 101_523, 500_000, 3_000_000, 60_000_000]))
    def pass_time(self, by_us: int) -> None:
        self.model.now_us += by_us

    @rule(count=st.integers(1, 5), items=items, session=session_ids)
    def reserve(self, count: int, items: int, session: str) -> None:
        fresh = [f"t{len(self.tickets) + n}" for n in range(count)]
        self.tickets += fresh
        self.owner |= dict.fromkeys(fresh, session)
        asked = [(ticket_id, min(items, self.max_batch)) for ticket_id in fresh]
        first = self.both("reserve", (asked,), (asked,))
        assert self.both("reserve", (asked,), (asked,)) == first, "a repeat"

    @rule(data=st.data(), most=items, whole=st.booleans())
    def confirm(self, data: st.DataObject, most: int, whole: bool) -> None:
        open_tickets = [ticket for ticket in self.tickets if ticket not in self.freed]
        if not open_tickets:
            return
        ticket = data.draw(st.sampled_from(open_tickets[-12:]))
        most = min(most, self.max_batch)
        self.ask(ticket, Ask(ticket_id=ticket, least=most if whole else 0, most=most))

    @rule(most=items)
    def confirm_when_due(self, most: int) -> None:
        """The next ticket that waits, at the moment that it is told, as often as it is told to wait."""
        waiting = [t for t in self.tickets if t not in self.freed and t not in self.granted]
        most = min(most, self.max_batch)
        for ticket in waiting[:1]:
            for _ in range(4):
                verdict = self.ask(ticket, Ask(ticket_id=ticket, least=0, most=most))
                if verdict.items:
                    return
                self.model.now_us += int(verdict.wait_ms * 1000)

    def ask(self, ticket: str, ask: Ask) -> Verdict:
        session = self.owner[ticket]
        (verdict,) = self.both("confirm", (session, [ask]), (session, [ask]))
        assert verdict.items <= ask.most or ticket in self.granted
        if verdict.items and ticket not in self.granted:
            self.granted[ticket] = verdict.items
            self.sent.append((self.model.now_us, verdict.items))
            (again,) = self.both("confirm", (session, [ask]), (session, [ask]))
            assert again.items == verdict.items or self.pace.is_open, "a repeat"
        return verdict

    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        if self.tickets:
            ticket = data.draw(st.sampled_from(self.tickets[-12:]))
            self.freed.add(ticket)
            self.both("free", ([ticket],), ([ticket],))
            assert self.both("free", ([ticket],), ([ticket],)) == 0, "a late release frees nothing"

    @rule(data=st.data(), late_ms=st.sampled_from([1.0, 30.0, 400.0]))
    def leave_late(self, data: st.DataObject, late_ms: float) -> None:
        """Time passes between the confirmation and the request."""
        granted = [t for t in self.granted if t not in self.freed and t not in self.late]
        if not granted:
            return
        ticket = data.draw(st.sampled_from(granted[-4:]))
        self.late.add(ticket)
        asked = [(ticket, late_ms)]
        self.both("sent", (asked,), (asked,))
        assert self.both("sent", (asked,), (asked,)) == 0, "a repeat"

    @rule(wait_ms=st.sampled_from([None, None, 100.0, 4_000.0]))
    def refuse(self, wait_ms: float | None) -> None:
        report = f"r{self.model.now_us}{len(self.tickets)}{wait_ms}{len(self.sent)}"
        self.both("limited", (report, wait_ms, 1_000.0), (wait_ms, 1_000.0))

    @rule()
    def succeed(self) -> None:
        self.both("succeeded", (), ())

    @rule(session=session_ids)
    def kill(self, session: str) -> None:
        self.model.dead.add(session)
        self.run(self.redis.delete(keys.session(session)))

    @rule()
    def lose_data(self) -> None:
        self.run(self.redis.flushdb())
        self.model.start(lost=True)
        self.run(self.redis.set(keys.EPOCH, "e"))
        self.run(self.redis.set(keys.PACE_LOST, self.model.now_us))
        self.freed |= set(self.tickets)
        for session in set(SESSIONS) - self.model.dead:
            self.run(self.redis.set(keys.session(session), "1"))
        # What left before is outside these windows only by the rate, not exactly: judged from here on.
        self.sent.clear()

    @invariant()
    def no_window_is_over(self) -> None:
        if not self.sent:
            return
        for meter in self.pace.meters:
            rule = self.by_meter[meter.name]
            limit = max(rule.limit, 1.0) + rule.burst
            end = self.sent[-1][0]
            total = sum(meter.cost(count) for at, count in self.sent if at > end - meter.window_us)
            assert total <= limit, f"{meter.name}: {total} in a window of {limit}"

    @invariant()
    def slots_are_within_their_cap(self) -> None:
        if hasattr(self, "pace") and self.pace.concurrency:
            now = self.run(self.lua.snapshot(self.pace))
            assert 0 <= len(now.holders) <= self.pace.concurrency

    def teardown(self) -> None:
        self.run(self.redis.aclose())
        self.runner.close()


def machine(make: Callable[[], Redis]) -> type[PacerMachine]:
    return type("PacerMachineOnRedis", (PacerMachine,), {"make_redis": staticmethod(make)})


def test_lua_on_fakeredis_agrees_with_the_model() -> None:
    run_state_machine_as_test(machine(FakeAsyncRedis), settings=SETTINGS)


@pytest.mark.servers
def test_lua_on_a_server_agrees_with_the_model(redis_url: str) -> None:
    run_state_machine_as_test(machine(lambda: connect(redis_url, LIMITS)), settings=SETTINGS)
