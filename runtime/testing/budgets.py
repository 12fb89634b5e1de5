"""Budgets in memory: the same decisions over plain dicts."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from runtime.model.boundary import BoundaryState
from runtime.model.budget import (
    Account,
    BudgetAsk,
    BudgetRefusal,
    BudgetWaits,
    Caps,
    Charge,
    RunBudget,
)
from runtime.model.receipt import ReceiptState
from runtime.model.row_wait import WaitKind
from runtime.model.run import ENDED_RUNS
from runtime.policy import budgeting
from runtime.testing.state import MemoryState


@dataclass(slots=True, kw_only=True)
class MemoryBudgetCall:
    fence: int
    held: float | None


@dataclass(slots=True, kw_only=True)
class MemoryAccount:
    now: Account
    runs: list[str] = field(default_factory=list)
    calls: dict[str, MemoryBudgetCall] = field(default_factory=dict)
    children: set[tuple[str, str]] = field(default_factory=set)
    refusals: int = 0
    short_at_s: float | None = None
    refused_at_s: float = 0.0
    short_price: float = 0.0


class MemoryBudgets:
    def __init__(self, state: MemoryState) -> None:
        self._state = state
        self.accounts: dict[str, MemoryAccount] = {}

    async def open(self, run_id: str, caps: Caps, callers: Sequence[str]) -> tuple[str, ...]:
        accounts = tuple(dict.fromkeys((*callers, *((run_id,) if caps.are_counted else ()))))
        if caps.are_counted:
            kept = replace(caps, depth=None)
            self.accounts.setdefault(run_id, MemoryAccount(now=Account(account=run_id, caps=kept)))
        for account in self._known(accounts):
            if run_id not in account.runs:
                account.runs.append(run_id)
        run = self._state.runs.get(run_id)
        if run is not None:
            run.new = replace(run.new, options=budgeting.pinned(run.new.options, accounts, caps))
        return accounts

    async def reserve(self, asks: Sequence[BudgetAsk]) -> list[BudgetRefusal | None]:
        reserved = {
            (name, key)
            for name, account in self.accounts.items()
            for key, call in account.calls.items()
            if call.held is not None
        }
        now = {name: self._now(account) for name, account in self.accounts.items()}
        judged = budgeting.judge(now, asks, reserved)
        for ask, refusal in zip(asks, judged, strict=True):
            if refusal is None:
                self._hold(ask)
            else:
                self._refuse(refusal)
        return judged

    async def free(self, charges: Sequence[Charge]) -> None:
        self.settle(charges)

    def settle(self, charges: Sequence[Charge]) -> None:
        """As the receipt store does with its commit."""
        for charge in charges:
            for account in self._known(charge.accounts):
                call = account.calls.get(charge.key)
                if call is None or call.held is None or call.fence > charge.fence:
                    continue
                paid = call.held if charge.credits is None else charge.credits
                account.now = replace(
                    account.now,
                    credits_held=max(0.0, account.now.credits_held - call.held),
                    credits_spent=account.now.credits_spent + (0 if charge.is_freed else paid),
                    tool_calls=account.now.tool_calls - charge.is_freed,
                )
                call.held, call.fence = None, charge.fence

    async def take_retry(self, accounts: Sequence[str]) -> BudgetRefusal | None:
        known = self._known(accounts)
        refusal = budgeting.full([account.now for account in known], "retries")
        if refusal is None:
            for account in known:
                account.now = replace(account.now, retries=account.now.retries + 1)
        return refusal

    async def take_child(self, accounts: Sequence[str], run_id: str, namespace: str) -> BudgetRefusal | None:
        fresh = [one for one in self._known(accounts) if (run_id, namespace) not in one.children]
        refusal = budgeting.full([account.now for account in fresh], "child_plays")
        if refusal is None:
            for account in fresh:
                account.children.add((run_id, namespace))
                account.now = replace(account.now, child_plays=account.now.child_plays + 1)
        return refusal

    async def waiting(self) -> list[BudgetWaits]:
        self._free_superseded()
        found: list[BudgetWaits] = []
        for name, account in self.accounts.items():
            rows = budgeting.room(account.now, account.short_price)
            if account.short_at_s is not None and rows:
                live = [run for run in account.runs if self._is_live(run)]
                found.append(
                    BudgetWaits(account=name, run_ids=tuple(live), rows=rows, refusals=account.refusals)
                )
        return found[: self._state.limits.sweep_batch]

    def _free_superseded(self) -> None:
        for name, account in self.accounts.items():
            for key, call in account.calls.items():
                receipt = self._state.receipts.get(key)
                if account.short_at_s is None or call.held is None or receipt is None:
                    continue
                made = receipt.state is ReceiptState.COMPLETED and receipt.fence > call.fence
                if made and receipt.run_id not in account.runs:
                    self.settle([Charge(accounts=(name,), key=key, fence=call.fence, is_freed=True)])

    async def wake_bodies(self, run_ids: Sequence[str]) -> int:
        woken = 0
        for run_id in run_ids:
            waits = self._bodies(run_id)
            for op_key in waits:
                self._state.resolve(run_id, op_key, {"ok": None, "at_ms": int(self._state.clock() * 1000)})
            woken += bool(waits)
        return woken

    async def woken(self, waits: BudgetWaits) -> None:
        account = self.accounts.get(waits.account)
        still = any(self._rows(run_id) or self._bodies(run_id) for run_id in waits.run_ids)
        if account is None or account.refusals != waits.refusals or still:
            return
        since_s = self._state.clock() - account.refused_at_s
        if since_s > self._state.limits.budget_forget_s or not waits.run_ids:
            account.short_at_s, account.short_price = None, 0.0

    async def of_run(self, run_id: str) -> RunBudget | None:
        counted = [account for account in self.accounts.values() if run_id in account.runs]
        if not counted:
            return None
        own = self.accounts.get(run_id)
        runs = set(own.runs if own else ()) | {run_id}
        return RunBudget(
            run_id=run_id,
            own=self._now(own) if own else None,
            callers=tuple(self._now(account) for account in counted if account is not own),
            waiting_rows=sum(self._rows(one) for one in runs),
            waiting_calls=sum(len(self._bodies(one)) for one in runs),
        )

    async def change(self, run_id: str, caps: Caps) -> bool:
        account = self.accounts.get(run_id)
        if account is None:
            return False
        account.now = replace(account.now, caps=replace(account.now.caps.replaced_by(caps), depth=None))
        if account.short_at_s is not None:
            account.short_at_s = self._state.clock()
        return True

    def _known(self, accounts: Sequence[str]) -> list[MemoryAccount]:
        return [self.accounts[name] for name in accounts if name in self.accounts]

    def _now(self, account: MemoryAccount) -> Account:
        since = account.short_at_s
        return replace(account.now, short_s=None if since is None else self._state.clock() - since)

    def _hold(self, ask: BudgetAsk) -> None:
        for account in self._known(ask.accounts):
            call = account.calls.get(ask.key)
            if call is not None and call.held is not None:
                call.fence = max(call.fence, ask.fence)
                continue
            fence = max(ask.fence, call.fence if call else 0)
            account.calls[ask.key] = MemoryBudgetCall(fence=fence, held=ask.credits)
            now = account.now
            account.now = replace(
                now, credits_held=now.credits_held + ask.credits, tool_calls=now.tool_calls + 1
            )

    def _refuse(self, refusal: BudgetRefusal) -> None:
        account = self.accounts[refusal.account]
        is_first = account.short_at_s is None
        account.refusals += 1
        account.refused_at_s = self._state.clock()
        account.short_price = refusal.credits if is_first else min(account.short_price, refusal.credits)
        if is_first:
            account.short_at_s = self._state.clock()

    def _is_live(self, run_id: str) -> bool:
        run = self._state.runs.get(run_id)
        return run is not None and run.state not in ENDED_RUNS

    def _rows(self, run_id: str) -> int:
        return sum(
            row.wait is not None and row.wait.kind is WaitKind.BUDGET
            for dataset in self._state.datasets.values()
            if dataset.new.run_id == run_id
            for row in dataset.rows.values()
        )

    def _bodies(self, run_id: str) -> list[str]:
        return [
            op_key
            for op_key, boundary in self._state.boundaries.get(run_id, {}).items()
            if boundary.kind == WaitKind.BUDGET and boundary.state is BoundaryState.ARMED
        ]
