"""Receipts: the durable outcomes of calls, read and written in bulk."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from psycopg import AsyncConnection

from runtime.model import json_value
from runtime.model.budget import Charge
from runtime.model.call import Usage
from runtime.model.receipt import Receipt, ReceiptState, replaces
from runtime.policy.limits import Limits
from runtime.postgres_store import budgets
from runtime.postgres_store.named import load
from runtime.postgres_store.pool import Database, Pool
from runtime.postgres_store.usage import ADD_USAGE, usage_arrays

_SQL = load("receipts")


class PostgresReceipts:
    """ReceiptStore over Postgres."""

    def __init__(self, pool: Pool, limits: Limits) -> None:
        self._database = Database(pool, limits)
        self._limits = limits

    async def read(self, keys: Sequence[str]) -> dict[str, Receipt]:
        wanted = sorted(set(keys))
        found: dict[str, Receipt] = {}
        for first in range(0, len(wanted), self._limits.receipt_chunk):
            await self._read_chunk(wanted[first : first + self._limits.receipt_chunk], found)
        return found

    async def commit(
        self,
        session_id: str,
        receipts: Sequence[Receipt],
        usage: Sequence[Usage],
        charges: Sequence[Charge] = (),
    ) -> dict[str, Receipt]:
        outcomes = _one_per_key(receipts)
        chunks = [_receipt_arrays(session_id, chunk) for chunk in _chunks(outcomes.values(), self._limits)]
        usages = usage_arrays(session_id, usage) if usage else None

        async def work(connection: AsyncConnection) -> set[str]:
            stored: set[str] = set()
            async with connection.pipeline(), connection.transaction():
                for chunk in chunks:
                    cursor = await connection.execute(_SQL["commit"], chunk)
                    stored |= {row[0] for row in await cursor.fetchall()}
                if usages:
                    await connection.execute(ADD_USAGE, usages)
                if charges:
                    await budgets.settle(connection, charges)
            return stored

        stored = (
            await self._database.run("committing receipts", work)
            if chunks or usages or charges
            else set[str]()
        )
        answer = {key: outcomes[key] for key in stored}
        return answer | await self.read([key for key in outcomes if key not in stored])

    async def unmark(self, session_id: str, receipts: Sequence[Receipt]) -> None:
        """Remove `dispatched` receipts of these fences that this session stored: they were never sent."""
        marks = sorted((receipt.key, receipt.fence) for receipt in receipts)
        values = {
            "session_id": session_id,
            "keys": [key for key, _ in marks],
            "fences": [fence for _, fence in marks],
        }

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(_SQL["unmark"], values)

        if marks:
            await self._database.run("taking back marks of receipts", work)

    async def _read_chunk(self, keys: list[str], found: dict[str, Receipt]) -> None:
        """One answer may hold fewer than asked (its bytes are bounded): page on after its last key."""
        while keys:
            values = {"keys": keys, "read_bytes": self._limits.read_bytes}

            async def work(
                connection: AsyncConnection, values: dict[str, Any] = values
            ) -> list[tuple[Any, ...]]:
                return await (await connection.execute(_SQL["read"], values)).fetchall()

            rows = await self._database.run("reading receipts", work)
            found.update((row[0], _receipt(row)) for row in rows)
            if not rows or len(rows) == rows[0][-1]:
                return
            keys = [key for key in keys if key not in found]


def _receipt(row: tuple[Any, ...]) -> Receipt:
    key, org_id, tool, run_id, state, fence, output, error, terminal, produced_ms, _ = row
    return Receipt(
        key=key,
        org_id=org_id,
        tool=tool,
        run_id=run_id,
        state=ReceiptState(state),
        fence=fence,
        output=output,
        error=error,
        terminal=terminal,
        produced_ms=produced_ms,
    )


def _one_per_key(receipts: Sequence[Receipt]) -> dict[str, Receipt]:
    outcomes: dict[str, Receipt] = {}
    for receipt in receipts:
        if replaces(receipt, outcomes.get(receipt.key)):
            outcomes[receipt.key] = receipt
    return dict(sorted(outcomes.items()))


def _chunks(receipts: Iterable[Receipt], limits: Limits) -> Iterator[list[Receipt]]:
    chunk: list[Receipt] = []
    size = 0
    for receipt in receipts:
        bytes_ = len(receipt.output or b"")
        if chunk and (len(chunk) >= limits.receipt_chunk or size + bytes_ > limits.read_bytes):
            yield chunk
            chunk, size = [], 0
        chunk.append(receipt)
        size += bytes_
    if chunk:
        yield chunk


def _receipt_arrays(session_id: str, receipts: Sequence[Receipt]) -> dict[str, Any]:
    return {
        "session_id": session_id,
        "keys": [one.key for one in receipts],
        "org_ids": [one.org_id for one in receipts],
        "tools": [one.tool for one in receipts],
        "run_ids": [one.run_id for one in receipts],
        "states": [one.state.value for one in receipts],
        "fences": [one.fence for one in receipts],
        "outputs": [one.output for one in receipts],
        "errors": [None if one.error is None else json_value.dumps(one.error).decode() for one in receipts],
        "terminals": [one.terminal for one in receipts],
        "refreshes": [one.key for one in receipts if one.refreshes],
    }
