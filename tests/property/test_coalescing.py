"""The coalescer against a plain model: nothing lost or doubled, windows, tickets, order and turns."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from runtime.policy.coalescing import BucketKey, Coalescer

WINDOW_MS = 5.0
BASE = BucketKey(
    lane="l",
    origin="",
    org_id="o",
    integration_mode=None,
    contract="raw-v2",
    response_revision=None,
    auth_scope=None,
    operation="op",
    strategy="keyed",
    strategy_revision="1",
    bucket="",
    tool="t",
)
KEYS = [replace(BASE, bucket=name) for name in "ab"]
SIZES = {KEYS[0]: 3, KEYS[1]: 5}


class CoalescerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.coalescer: Coalescer[tuple[str, int]] = Coalescer(WINDOW_MS)
        self.now_ms = 0.0
        self.next = 0
        self.inside: dict[BucketKey, list[tuple[str, int]]] = {key: [] for key in KEYS}
        self.opened: dict[BucketKey, float | None] = dict.fromkeys(KEYS)
        self.tickets = dict.fromkeys(KEYS, 0)

    @rule(key=st.sampled_from(KEYS), run=st.sampled_from("xyz"), count=st.integers(1, 7))
    def add(self, key: BucketKey, run: str, count: int) -> None:
        for _ in range(count):
            if not self.inside[key]:
                self.opened[key] = self.now_ms
            self.inside[key].append((run, self.next))
            self.coalescer.add(key, SIZES[key], [(run, (run, self.next))], self.now_ms)
            self.next += 1

    @rule(by=st.sampled_from([0.0, 1.0, 4.9, 5.0, 20.0]))
    def pass_time(self, by: float) -> None:
        self.now_ms += by

    @rule()
    def reserve(self) -> None:
        wanted = self.coalescer.tickets_wanted(self.now_ms)
        for key in KEYS:
            full, rest = divmod(len(self.inside[key]), SIZES[key])
            opened = self.opened[key]
            ended = opened is not None and opened + WINDOW_MS <= self.now_ms
            ready = full + (1 if rest and ended else 0)
            assert wanted.count(key) == max(0, ready - self.tickets[key])
            self.tickets[key] = max(self.tickets[key], ready)

    @rule(key=st.sampled_from(KEYS), put_back=st.booleans())
    def take(self, key: BucketKey, put_back: bool) -> None:
        if not self.tickets[key]:
            return
        self.tickets[key] -= 1
        waiting = list(self.inside[key])
        foreseen = self.coalescer.next_calls(key)
        taken = self.coalescer.take(key)
        assert foreseen[: len(taken)] == taken, "what was marked is what leaves"
        assert len(taken) == min(SIZES[key], len(waiting))
        self._in_order_and_in_turn(taken, waiting)
        if put_back and taken:
            self.coalescer.put_back(key, SIZES[key], [(run, (run, n)) for run, n in taken], self.now_ms)
            self.opened[key] = float("-inf")
            return
        self.inside[key] = [call for call in waiting if call not in set(taken)]
        if waiting:
            self.opened[key] = float("-inf") if self.inside[key] else None

    @rule(key=st.sampled_from(KEYS))
    def give_back_ticket(self, key: BucketKey) -> None:
        if self.tickets[key]:
            self.tickets[key] -= 1
            self.coalescer.give_back_ticket(key)

    @rule(run=st.sampled_from("xyz"))
    def remove_run(self, run: str) -> None:
        removed = self.coalescer.remove(lambda call: call[0] == run)
        expected = [call for key in KEYS for call in self.inside[key] if call[0] == run]
        assert sorted(removed) == sorted(expected)
        for key in KEYS:
            self.inside[key] = [call for call in self.inside[key] if call[0] != run]
            if not self.inside[key]:
                self.opened[key] = None

    def _in_order_and_in_turn(self, taken: list[tuple[str, int]], waiting: list[tuple[str, int]]) -> None:
        counts: dict[str, int] = {}
        for run in {run for run, _ in taken}:
            mine = [n for r, n in taken if r == run]
            assert mine == [n for r, n in waiting if r == run][: len(mine)], "a run's order is kept"
            counts[run] = len(mine)
        left = {run for run, _ in waiting} - {
            run for run, n in counts.items() if n == self._held(waiting, run)
        }
        for run in left:
            assert counts.get(run, 0) >= max(counts.values(), default=0) - 1, "runs take turns"

    def _held(self, waiting: list[tuple[str, int]], run: str) -> int:
        return sum(r == run for r, _ in waiting)

    @invariant()
    def sizes_agree(self) -> None:
        assert len(self.coalescer) == sum(len(calls) for calls in self.inside.values())
        for key in KEYS:
            assert self.coalescer.waiting(key) == len(self.inside[key])

    @invariant()
    def a_timer_covers_every_uncovered_call(self) -> None:
        ends = self.coalescer.next_window_end()
        for key in KEYS:
            opened = self.opened[key]
            uncovered = len(self.inside[key]) > self.tickets[key] * SIZES[key]
            if uncovered and opened is not None and opened != float("-inf"):
                assert ends is not None and ends <= opened + WINDOW_MS


TestCoalescer = CoalescerMachine.TestCase
TestCoalescer.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
