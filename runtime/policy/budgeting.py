"""What a budget allows: which calls find room, what they may cost, and what a caller is told."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from runtime.errors import PlayDefinitionError
from runtime.model.budget import BUDGET_OPTION, CAPS, MOST, Account, BudgetAsk, BudgetRefusal, Caps
from runtime.model.tool import ToolMetadata
from runtime.policy.limits import Limits

_EXACT = 1e-6  # credits are added up as floats

Judged = BudgetRefusal | None


def checked(caps: Caps, where: str) -> Caps:
    """The caps if they make sense; raises PlayDefinitionError that names the wrong one."""
    for name in (*CAPS, "depth"):
        value = getattr(caps, name)
        if value is None:
            continue
        kinds = (int, float) if name == "credits" else (int,)
        if isinstance(value, bool) or not isinstance(value, kinds) or not (0 <= value <= MOST):
            number = "number" if name == "credits" else "whole number"
            raise PlayDefinitionError(
                f"{where}: max_{name} is None (no cap) or a {number} from 0 to {MOST:.0e}, not {value!r:.80}"
            )
    return caps


def effective(declared: Caps, asked: Caps) -> Caps:
    """A run's caps: what its options say, down or up, and for the rest what its play declares."""
    return declared.replaced_by(asked)


def accounts_of(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The accounts that a run's calls are counted against, from its stored options."""
    return tuple(options.get(BUDGET_OPTION) or ())


def pinned(options: Mapping[str, Any], accounts: Sequence[str], caps: Caps) -> dict[str, Any]:
    """A run's options with what its first body found its budget to be."""
    depth = {} if caps.depth is None else {"max_depth": caps.depth}
    return {**options, **depth, BUDGET_OPTION: list(accounts)}


def price(metadata: ToolMetadata) -> float:
    """What one call of the tool may cost, which is what is reserved for it."""
    return metadata.credits_per_item if metadata.credits_at_most is None else metadata.credits_at_most


def judge(
    accounts: Mapping[str, Account], asks: Sequence[BudgetAsk], reserved: Collection[tuple[str, str]]
) -> list[Judged]:
    """Each ask in its turn: None if all its accounts have room, else who refuses it. Aligned to `asks`.

    `reserved`: (account, key) that an earlier owner of the call has already reserved; that is not taken again.
    A call that finds no room takes nothing, so a cheaper one behind it may.
    """
    now = dict(accounts)
    judged: list[Judged] = []
    for ask in asks:
        fresh = [now[name] for name in ask.accounts if name in now and (name, ask.key) not in reserved]
        refusals = [refusal for account in fresh if (refusal := _refusal(account, ask))]
        judged.append(refusals[0] if refusals else None)
        if not refusals:
            now |= {account.account: _with(account, ask) for account in fresh}
    return judged


def full(accounts: Iterable[Account], cap: str) -> BudgetRefusal | None:
    """The first account that allows no further retry or child play."""
    for account in accounts:
        used, most = getattr(account, cap), getattr(account.caps, cap)
        if most is not None and used >= most:
            return BudgetRefusal(account=account.account, cap=cap, used=used, most=most)
    return None


def short_ms(refusal: BudgetRefusal, limits: Limits) -> float:
    """How long a refused call may still wait for room; 0 = its time is up."""
    return max(0.0, limits.budget_wait_s - refusal.short_s) * 1000


def room(account: Account, credits: float) -> int:
    """How many calls of that price fit into an account now; a large number where nothing is capped."""
    fits = [_MANY]
    caps = account.caps
    if caps.credits is not None and credits > 0:
        fits.append(int((caps.credits - account.credits + _EXACT) // credits))
    if caps.tool_calls is not None:
        fits.append(caps.tool_calls - account.tool_calls)
    return max(0, min(fits))


_MANY = 1_000_000


def _refusal(account: Account, ask: BudgetAsk) -> BudgetRefusal | None:
    caps = account.caps
    used = {"credits": account.credits, "tool_calls": account.tool_calls}
    most = {"credits": caps.credits, "tool_calls": caps.tool_calls}
    for cap, takes in (("tool_calls", 1.0), ("credits", ask.credits)):
        bound = most[cap]
        if bound is not None and not _fits(used[cap], takes, bound):
            return BudgetRefusal(
                account=account.account,
                cap=cap,
                used=used[cap],
                most=bound,
                credits=ask.credits,
                short_s=account.short_s or 0.0,
            )
    return None


def _fits(used: float, takes: float, most: float) -> bool:
    return takes == 0 or used + takes <= most + _EXACT


def _with(account: Account, ask: BudgetAsk) -> Account:
    return replace(
        account, credits_held=account.credits_held + ask.credits, tool_calls=account.tool_calls + 1
    )
