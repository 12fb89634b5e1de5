"""Slices: taken by row workers, written and finished by them, given back when they stop."""

from collections.abc import Sequence
from typing import Any

from psycopg import AsyncConnection

from runtime.model.cell import StoredCells
from runtime.model.dataset import DatasetFacts
from runtime.model.row import InputRow, LaterRow
from runtime.model.slice import SUSPECTS_FROM, SliceId, TakenSlice
from runtime.policy.limits import Limits
from runtime.ports import RowWrite, RowWriteAnswer
from runtime.postgres_store.claims import DoubtfulClaims
from runtime.postgres_store.datasets import facts_of
from runtime.postgres_store.flush import Flush
from runtime.postgres_store.named import load
from runtime.postgres_store.pool import Database, Pool
from runtime.postgres_store.stored_rows import read_stored_rows

_SQL = load("slices")


class PostgresSlices:
    """SliceStore over Postgres."""

    def __init__(self, pool: Pool, limits: Limits) -> None:
        self._database = Database(pool, limits)
        self._limits = limits
        self._doubts = DoubtfulClaims(self._database, _SQL["release_claims"], limits.claims_in_doubt)

    async def take(self, run_id: str, slice_id: SliceId, session_id: str) -> TakenSlice | None:
        await self._doubts.give_back()
        with self._doubts.claiming() as token:
            values = {
                "run_id": run_id,
                "dataset_id": slice_id.dataset_id,
                "page": slice_id.page,
                "slice": slice_id.slice,
                "session_id": session_id,
                "claim": token,
                "read_bytes": self._limits.slice_read_bytes,
            }

            async def work(
                connection: AsyncConnection,
            ) -> tuple[tuple[Any, ...] | None, list[tuple[Any, ...]]]:
                async with connection.pipeline():
                    taken = await connection.execute(_SQL["take"], values)
                    rows = await connection.execute(_SQL["open_rows"], values)
                    return await taken.fetchone(), await rows.fetchall()

            taken, rows = await self._database.run("taking a slice", work)
            if taken is None:
                return None
            if not slice_id.is_suspect and any(row[3] >= self._limits.suspect_crashes for row in rows):
                await self._split(values)
                rows = []
        return TakenSlice(
            id=slice_id,
            fence=taken[0],
            facts=facts_of(taken[1:-1]),
            rows=tuple(
                InputRow(position=position, row_key=key, input=value, crashes=crashes, size_bytes=size)
                for position, key, value, crashes, size in rows
                if value is not None
            ),
            later=tuple(
                LaterRow(position=position, row_key=key, size_bytes=size)
                for position, key, value, _, size in rows
                if value is None
            ),
            taken_ms=taken[-1],
        )

    async def read_rows(self, taken: TakenSlice, positions: Sequence[int]) -> tuple[InputRow, ...]:
        values = {"dataset_id": taken.id.dataset_id, "positions": list(positions)}

        async def work(connection: AsyncConnection) -> list[tuple[Any, ...]]:
            return await (await connection.execute(_SQL["read_rows"], values)).fetchall()

        return tuple(
            InputRow(position=position, row_key=key, input=value, crashes=crashes)
            for position, key, value, crashes in await self._database.run("reading rows", work)
        )

    async def stored_rows(self, facts: DatasetFacts, row_keys: Sequence[str]) -> dict[str, StoredCells]:
        return await read_stored_rows(self._database, self._limits, facts, row_keys)

    async def _split(self, values: dict[str, Any]) -> None:
        """The held slice is empty now; its rows are slices of their own, due to be sent."""

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(_SQL["split"], values | {"suspects_from": SUSPECTS_FROM})

        await self._database.run("splitting a slice", work)

    async def give_back_doubtful(self) -> None:
        """Free slices whose claim was never answered; for the process's heartbeat."""
        await self._doubts.give_back()

    async def give_back_forgotten(self, session_id: str, held: Sequence[SliceId]) -> int:
        """Free slices that Postgres says this session holds, and that it doesn't: commits can be lost in a failover."""
        values = {
            "session_id": session_id,
            "held_s": self._limits.session_ttl_s,
            "dataset_ids": [one.dataset_id for one in held],
            "pages": [one.page for one in held],
            "slices": [one.slice for one in held],
        }

        async def work(connection: AsyncConnection) -> int:
            return (await connection.execute(_SQL["release_forgotten"], values)).rowcount

        return await self._database.run("comparing held slices", work)

    async def flush(self, write: RowWrite) -> RowWriteAnswer:
        return await self._database.run("writing rows", Flush(write).work)

    async def release(self, held: Sequence[tuple[SliceId, int]], after_s: float = 0.0) -> None:
        values = {
            "after_s": after_s,
            "dataset_ids": [one.dataset_id for one, _ in held],
            "pages": [one.page for one, _ in held],
            "slices": [one.slice for one, _ in held],
            "fences": [fence for _, fence in held],
        }

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(_SQL["release"], values)

        if held:
            await self._database.run("giving slices back", work)
