"""Budgets: what a run and its lineage may use, what is used, and what one call takes of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

BUDGET_OPTION = "budget"  # among a run's stored options: the accounts that its calls are counted against
MOST = 10**15  # of what is counted
CAPS = ("credits", "tool_calls", "retries", "child_plays")  # those that are counted; a depth is only compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """None = no cap."""

    credits: float | None = None
    tool_calls: int | None = None
    retries: int | None = None
    child_plays: int | None = None
    depth: int | None = None

    @property
    def are_counted(self) -> bool:
        """Whether anything of it needs an account."""
        return any(getattr(self, name) is not None for name in CAPS)

    def replaced_by(self, other: "Caps") -> "Caps":
        """What `other` says, and the rest as it is."""
        return Caps(
            credits=self.credits if other.credits is None else other.credits,
            tool_calls=self.tool_calls if other.tool_calls is None else other.tool_calls,
            retries=self.retries if other.retries is None else other.retries,
            child_plays=self.child_plays if other.child_plays is None else other.child_plays,
            depth=self.depth if other.depth is None else other.depth,
        )

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> "Caps":
        """From a run's options."""
        return cls(**{name: options.get(f"max_{name}") for name in (*CAPS, "depth")})


NO_CAPS = Caps()


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What one budget allows and what is used of it. `credits_held`: reserved by calls that are not settled."""

    account: str
    caps: Caps
    credits_spent: float = 0.0
    credits_held: float = 0.0
    tool_calls: int = 0
    retries: int = 0
    child_plays: int = 0
    short_s: float | None = None  # since when calls are refused for want of it; None = none is

    @property
    def credits(self) -> float:
        """Spent, or perhaps to be spent."""
        return self.credits_spent + self.credits_held


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetAsk:
    """One call about to be queued: what it may cost, and all the accounts that must have room for it."""

    accounts: tuple[str, ...]
    key: str  # its receipt key: asked again, it is the same call
    fence: int
    credits: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRefusal:
    """A call that found no room: which account, what of it is used up, and how long calls have been refused."""

    account: str
    cap: str
    used: float
    most: float
    credits: float = 0.0  # that the call may cost
    short_s: float = 0.0

    def describe(self) -> str:
        """In words, without what follows."""
        name = self.cap.replace("_", " ")
        takes = f", and this call may take {self.credits:g}" if self.cap == "credits" else ""
        return f"run {self.account} has used {self.used:g} of its {self.most:g} {name}{takes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """The end of a call's reservation. `credits` None = as reserved; `is_freed`: it certainly cost nothing."""

    accounts: tuple[str, ...]
    key: str
    fence: int
    credits: float | None = None
    is_freed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetWaits:
    """An account with room again and with calls that were refused: at most `rows` of `run_ids` may go on now."""

    account: str
    run_ids: tuple[str, ...]
    rows: int
    refusals: int  # how many there were; more by now = somebody was refused since


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBudget:
    """How a run's budget stands: its own account if it has one, those of its callers, and what waits."""

    run_id: str
    own: Account | None
    callers: tuple[Account, ...] = ()
    waiting_rows: int = 0
    waiting_calls: int = 0  # of the body
