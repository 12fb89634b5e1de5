"""Budgets: rows keyed (account, receipt key), so that no call is counted twice however often it is asked for."""

from collections.abc import Sequence
from typing import Protocol

from runtime.model.budget import BudgetAsk, BudgetRefusal, BudgetWaits, Caps, Charge, RunBudget


class BudgetStore(Protocol):
    """Accounts of runs with caps. What settles a call's reservation is stored with its receipt."""

    async def open(self, run_id: str, caps: Caps, callers: Sequence[str]) -> tuple[str, ...]:
        """The accounts of a run, pinned at its first body: its callers' and, if it has caps, its own.

        They are kept among the run's options. Caps of an account that exists stay as they are.
        """
        ...

    async def reserve(self, asks: Sequence[BudgetAsk]) -> list[BudgetRefusal | None]:
        """Take room for each call in its turn, in all its accounts or in none; aligned. A refusal is remembered.

        What an earlier owner of the call reserved is taken over; nothing is counted twice.
        """
        ...

    async def free(self, charges: Sequence[Charge]) -> None:
        """Settle reservations of calls that end without a receipt: of their fence or an older one."""
        ...

    async def take_retry(self, accounts: Sequence[str]) -> BudgetRefusal | None:
        """Count one repeated request in all of these accounts, or in none: then who refuses."""
        ...

    async def take_child(self, accounts: Sequence[str], run_id: str, namespace: str) -> BudgetRefusal | None:
        """Count a child play of the run, once per namespace, in all of these accounts, or in none."""
        ...

    async def waiting(self) -> list[BudgetWaits]:
        """Accounts with room again whose runs have calls that were refused; bounded.

        First gives back what is reserved for calls that a process of another run has made since.
        """
        ...

    async def wake_bodies(self, run_ids: Sequence[str]) -> int:
        """Let bodies that wait for budget go on: their waits are resolved, their runs due."""
        ...

    async def woken(self, waits: BudgetWaits) -> None:
        """Forget that calls were refused, unless some were lately, or a row or body still waits."""
        ...

    async def of_run(self, run_id: str) -> RunBudget | None:
        """How a run's budget stands; None if none of its accounts exists."""
        ...

    async def change(self, run_id: str, caps: Caps) -> bool:
        """Replace the caps that are given; False if the run has no account of its own. What found no room may go on."""
        ...
