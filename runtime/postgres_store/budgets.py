"""Budgets in Postgres: an account's row is locked by whoever takes of it, so that no two take the same room."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from psycopg import AsyncConnection

from runtime.model import json_value
from runtime.model.budget import Account, BudgetAsk, BudgetRefusal, BudgetWaits, Caps, Charge, RunBudget
from runtime.policy import budgeting
from runtime.policy.limits import Limits
from runtime.postgres_store.named import load
from runtime.postgres_store.pool import Database, Pool

_SQL = load("budgets")


class PostgresBudgets:
    """BudgetStore over Postgres."""

    def __init__(self, pool: Pool, limits: Limits) -> None:
        self._database = Database(pool, limits)
        self._limits = limits

    async def open(self, run_id: str, caps: Caps, callers: Sequence[str]) -> tuple[str, ...]:
        accounts = tuple(dict.fromkeys((*callers, *((run_id,) if caps.are_counted else ()))))
        pinned = json_value.dumps(budgeting.pinned({}, accounts, caps)).decode()
        values = {
            "run_id": run_id,
            "accounts": list(accounts),
            "account": run_id,
            "pinned": pinned,
            **_caps(caps),
        }

        async def work(connection: AsyncConnection) -> None:
            async with connection.pipeline(), connection.transaction():
                if caps.are_counted:
                    await connection.execute(_SQL["open"], values)
                await connection.execute(_SQL["join"], values)
                await connection.execute(_SQL["pin"], values)

        await self._database.run("opening a budget", work)
        return accounts

    async def reserve(self, asks: Sequence[BudgetAsk]) -> list[BudgetRefusal | None]:
        judged: list[BudgetRefusal | None] = []
        for first in range(0, len(asks), self._limits.budget_asks):
            chunk = asks[first : first + self._limits.budget_asks]

            async def work(
                connection: AsyncConnection, chunk: Sequence[BudgetAsk] = chunk
            ) -> list[BudgetRefusal | None]:
                # Two round trips: to the locked accounts, and with what is granted to the commit.
                async with connection.pipeline(), connection.transaction():
                    return await _reserve(connection, chunk)

            judged += await self._database.run("reserving budget", work)
        return judged

    async def free(self, charges: Sequence[Charge]) -> None:
        for first in range(0, len(charges), self._limits.budget_asks):
            chunk = charges[first : first + self._limits.budget_asks]

            async def work(connection: AsyncConnection, chunk: Sequence[Charge] = chunk) -> None:
                async with connection.pipeline(), connection.transaction():
                    await settle(connection, chunk)

            await self._database.run("freeing budget", work)

    async def take_retry(self, accounts: Sequence[str]) -> BudgetRefusal | None:
        values = {"accounts": list(accounts)}

        async def work(connection: AsyncConnection) -> BudgetRefusal | None:
            async with connection.transaction():
                refusal = budgeting.full(await _lock(connection, accounts), "retries")
                if refusal is None:
                    await connection.execute(_SQL["count_retry"], values)
                return refusal

        return await self._database.run("counting a retry", work)

    async def take_child(self, accounts: Sequence[str], run_id: str, namespace: str) -> BudgetRefusal | None:
        values = {"accounts": list(accounts), "run_id": run_id, "namespace": namespace}

        async def work(connection: AsyncConnection) -> BudgetRefusal | None:
            async with connection.transaction():
                known = await _lock(connection, accounts)
                fresh = await (await connection.execute(_SQL["new_children"], values)).fetchall()
                refusal = budgeting.full([a for a in known if (a.account,) in fresh], "child_plays")
                if refusal is None and fresh:
                    await connection.execute(_SQL["add_children"], values)
                return refusal

        return await self._database.run("counting a child play", work)

    async def waiting(self) -> list[BudgetWaits]:
        await self._free_superseded()
        rows = await self._rows("waiting", batch=self._limits.sweep_batch)
        return [
            BudgetWaits(
                account=account,
                run_ids=tuple(run_ids),
                rows=budgeting.room(_account((account, *known)), price),
                refusals=refusals,
            )
            for account, *known, price, refusals, run_ids in rows
        ]

    async def _free_superseded(self) -> None:
        rows = await self._rows("superseded", batch=self._limits.budget_asks)
        await self.free(
            [Charge(accounts=(account,), key=key, fence=fence, is_freed=True) for account, key, fence in rows]
        )

    async def wake_bodies(self, run_ids: Sequence[str]) -> int:
        values = {"run_ids": list(run_ids)}

        async def work(connection: AsyncConnection) -> int:
            return (await connection.execute(_SQL["wake_bodies"], values)).rowcount

        return await self._database.run("waking bodies", work) if run_ids else 0

    async def woken(self, waits: BudgetWaits) -> None:
        values = {
            "account": waits.account,
            "refusals": waits.refusals,
            "run_ids": list(waits.run_ids),
            "forget_s": self._limits.budget_forget_s,
        }

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(_SQL["woken"], values)

        await self._database.run("forgetting refusals", work)

    async def of_run(self, run_id: str) -> RunBudget | None:
        accounts = [_account(row) for row in await self._rows("of_run", run_id=run_id)]
        if not accounts:
            return None
        ((rows, calls),) = await self._rows("waits_of_run", run_id=run_id)
        return RunBudget(
            run_id=run_id,
            own=next((one for one in accounts if one.account == run_id), None),
            callers=tuple(one for one in accounts if one.account != run_id),
            waiting_rows=rows,
            waiting_calls=calls,
        )

    async def change(self, run_id: str, caps: Caps) -> bool:
        values = {"account": run_id, **_caps(caps)}

        async def work(connection: AsyncConnection) -> bool:
            return (await connection.execute(_SQL["change"], values)).rowcount == 1

        return await self._database.run("changing a budget", work)

    async def _rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        async def work(connection: AsyncConnection) -> list[tuple[Any, ...]]:
            return await (await connection.execute(_SQL[statement], values)).fetchall()

        return await self._database.run(f"budgets.{statement}", work)


async def settle(connection: AsyncConnection, charges: Sequence[Charge]) -> None:
    """Settle charges in the caller's transaction."""
    pairs = [(account, charge) for charge in charges for account in charge.accounts]
    values = {
        "accounts": sorted({account for account, _ in pairs}),
        "of_accounts": [account for account, _ in pairs],
        "keys": [charge.key for _, charge in pairs],
        "fences": [charge.fence for _, charge in pairs],
        "credits": [charge.credits for _, charge in pairs],
        "freed": [charge.is_freed for _, charge in pairs],
    }
    await connection.execute(_SQL["lock_accounts"], values)
    await connection.execute(_SQL["settle"], values)


async def _reserve(connection: AsyncConnection, asks: Sequence[BudgetAsk]) -> list[BudgetRefusal | None]:
    accounts = sorted({name for ask in asks for name in ask.accounts})
    values = _pairs(asks)
    locked = await connection.execute(_SQL["lock_accounts"], {"accounts": accounts})
    opened = await connection.execute(_SQL["open_calls"], values)
    known = {row[0]: _account(row) for row in await locked.fetchall()}
    reserved = {(account, key) for account, key in await opened.fetchall()}
    judged = budgeting.judge(known, asks, reserved)
    granted = [ask for ask, refusal in zip(asks, judged, strict=True) if refusal is None]
    if granted:
        await connection.execute(_SQL["hold"], _pairs(granted))
        await connection.execute(_SQL["count_held"], _sums(granted, reserved))
    if len(granted) < len(asks):
        await connection.execute(_SQL["refuse"], _cheapest(judged))
    return judged


async def _lock(connection: AsyncConnection, accounts: Iterable[str]) -> list[Account]:
    rows = await connection.execute(_SQL["lock_accounts"], {"accounts": sorted(set(accounts))})
    return [_account(row) for row in await rows.fetchall()]


def _pairs(asks: Sequence[BudgetAsk]) -> dict[str, Any]:
    pairs = [(account, ask) for ask in asks for account in ask.accounts]
    return {
        "of_accounts": [account for account, _ in pairs],
        "keys": [ask.key for _, ask in pairs],
        "fences": [ask.fence for _, ask in pairs],
        "credits": [ask.credits for _, ask in pairs],
    }


def _sums(granted: Sequence[BudgetAsk], reserved: set[tuple[str, str]]) -> dict[str, Any]:
    held: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)
    for ask in granted:
        for account in ask.accounts:
            if (account, ask.key) not in reserved:
                held[account] += ask.credits
                calls[account] += 1
    return {"accounts": list(held), "held": list(held.values()), "calls": list(calls.values())}


def _cheapest(judged: Sequence[BudgetRefusal | None]) -> dict[str, Any]:
    prices: dict[str, float] = {}
    for refusal in judged:
        if refusal is not None:
            prices[refusal.account] = min(refusal.credits, prices.get(refusal.account, refusal.credits))
    return {"accounts": list(prices), "prices": list(prices.values())}


def _account(row: Sequence[Any]) -> Account:
    account, most_credits, tool_calls, retries, child_plays, spent, held, *used, short_s = row
    caps = Caps(credits=most_credits, tool_calls=tool_calls, retries=retries, child_plays=child_plays)
    return Account(
        account=account,
        caps=caps,
        credits_spent=spent,
        credits_held=held,
        tool_calls=used[0],
        retries=used[1],
        child_plays=used[2],
        short_s=short_s,
    )


def _caps(caps: Caps) -> dict[str, Any]:
    return {
        "credits": caps.credits,
        "tool_calls": caps.tool_calls,
        "retries": caps.retries,
        "child_plays": caps.child_plays,
    }
