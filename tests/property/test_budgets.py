"""Whatever lanes, deaths, replays and replies do to a budget: it is never passed, and it adds up."""

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import hypothesis.strategies as st
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from runtime.model.budget import BudgetAsk, Caps, Charge
from runtime.policy import budgeting
from runtime.testing import MemoryStores
from runtime.testing.budgets import MemoryBudgets

KEYS = [f"k{n}" for n in range(8)]
PRICES = st.sampled_from([0.0, 0.1, 0.25, 1.0, 3.0])
ACCOUNTS = st.sampled_from([("root",), ("child",), ("root", "child")])
CAPS = {"root": Caps(credits=4.0, tool_calls=9), "child": Caps(credits=2.0)}
EXACT = 1e-6
T = TypeVar("T")


def run_now(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine that waits for nothing gives."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits")


class Budgets(RuleBasedStateMachine):
    """The lane's side of a budget: reservations by fence, some settled, some freed, some taken over."""

    def __init__(self) -> None:
        super().__init__()
        self.stores = MemoryStores(lambda: 0.0)
        self.budgets: MemoryBudgets = self.stores.budgets
        for name, caps in CAPS.items():
            run_now(self.budgets.open(name, caps, ()))
        self.fence = 0
        self.held: dict[str, BudgetAsk] = {}  # by the newest owner of a key
        self.old: list[BudgetAsk] = []
        self.paid: dict[str, float] = dict.fromkeys(CAPS, 0.0)
        self.overrun = False

    @rule(
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4, unique=True), price=PRICES, to=ACCOUNTS
    )
    def post(self, keys: list[str], price: float, to: tuple[str, ...]) -> None:
        """New calls, and calls that another owner had: those come back at the same price, for the same run."""
        self.fence += 1
        asks = [
            BudgetAsk(accounts=to, key=key, fence=self.fence, credits=price)
            if key not in self.held
            else BudgetAsk(
                accounts=self.held[key].accounts, key=key, fence=self.fence, credits=self.held[key].credits
            )
            for key in keys
        ]
        judged = run_now(self.budgets.reserve(asks))
        for ask, refusal in zip(asks, judged, strict=True):
            if ask.key in self.held:
                assert refusal is None, "what is reserved once stays so for the next owner"
                self.old.append(self.held[ask.key])
            if refusal is None:
                self.held[ask.key] = ask

    @rule(data=st.data(), how=st.sampled_from(["freed", "as reserved", "cheaper", "nothing"]))
    def end(self, data: st.DataObject, how: str) -> None:
        if not self.held:
            return
        ask = self.held.pop(data.draw(st.sampled_from(sorted(self.held))))
        paid = {"freed": 0.0, "as reserved": ask.credits, "cheaper": ask.credits / 2, "nothing": 0.0}[how]
        credits_said = None if how in ("freed", "as reserved") else paid
        charge = Charge(
            accounts=ask.accounts, key=ask.key, fence=ask.fence, credits=credits_said, is_freed=how == "freed"
        )
        for _ in range(data.draw(st.integers(1, 3))):
            run_now(self.budgets.free([charge]))
        for account in ask.accounts:
            self.paid[account] += paid

    @rule(freed=st.booleans())
    def a_late_owner_settles(self, freed: bool) -> None:
        """A frozen process wakes up after its call went to another: it changes nothing."""
        late = [ask for ask in self.old if ask.key in self.held]
        self.old.clear()
        charges = [
            Charge(accounts=ask.accounts, key=ask.key, fence=ask.fence, is_freed=freed) for ask in late
        ]
        run_now(self.budgets.free(charges))

    @invariant()
    def no_cap_is_passed_and_the_sums_agree(self) -> None:
        for name, caps in CAPS.items():
            account = self.budgets.accounts[name].now
            holds = sum(ask.credits for ask in self.held.values() if name in ask.accounts)
            assert abs(account.credits_held - holds) < EXACT
            assert abs(account.credits_spent - self.paid[name]) < EXACT
            assert caps.credits is not None
            assert account.credits <= caps.credits + EXACT
            assert caps.tool_calls is None or account.tool_calls <= caps.tool_calls


TestBudgets = Budgets.TestCase
TestBudgets.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


@given(
    asks=st.lists(st.tuples(PRICES, ACCOUNTS), max_size=12),
    limits=st.tuples(st.floats(0, 10), st.integers(0, 10)),
)
def test_a_refused_call_would_not_have_fitted(
    asks: Sequence[tuple[float, tuple[str, ...]]], limits: tuple[float, int]
) -> None:
    """No room is left unused: whoever is refused finds less than it asks for, when its turn comes."""
    stores = MemoryStores(lambda: 0.0)
    credits_cap, calls_cap = limits
    run_now(stores.budgets.open("root", Caps(credits=credits_cap), ()))
    run_now(stores.budgets.open("child", Caps(tool_calls=calls_cap), ()))
    now = {name: account.now for name, account in stores.budgets.accounts.items()}
    posted = [
        BudgetAsk(accounts=to, key=f"k{n}", fence=1, credits=price) for n, (price, to) in enumerate(asks)
    ]
    used, calls = 0.0, 0
    for ask, refusal in zip(posted, budgeting.judge(now, posted, ()), strict=True):
        fits = (
            "root" not in ask.accounts or ask.credits == 0 or used + ask.credits <= credits_cap + EXACT
        ) and ("child" not in ask.accounts or calls < calls_cap)
        assert (refusal is None) == fits
        if fits:
            used += ask.credits if "root" in ask.accounts else 0
            calls += "child" in ask.accounts
