"""Datasets: opened and seeded by their body, page by page."""

from typing import Any

from psycopg import AsyncConnection

from runtime.errors import AttemptLostError, PlayVersionUnavailableError
from runtime.model.dataset import DatasetFacts, DatasetMode, NewDataset, OpenDataset, SeededPage, SeedPage
from runtime.policy.limits import Limits
from runtime.postgres_store.named import load
from runtime.postgres_store.pool import Database, Pool

_SQL = load("datasets")
_ADMITTING = load("admitting")


class PostgresDatasets:
    """DatasetStore over Postgres."""

    def __init__(self, pool: Pool, limits: Limits) -> None:
        self._database = Database(pool, limits)

    async def open(self, new: NewDataset, attempt: int, op_key: str) -> OpenDataset:
        values = {
            "run_id": new.run_id,
            "key": new.key,
            "namespace": new.namespace,
            "columns": list(new.columns),
            "source_hash": new.source_hash,
            "on_row_error": new.on_row_error,
            "op_key": op_key,
            "mode": new.mode.value,
            "attempt": attempt,
        }

        async def work(connection: AsyncConnection) -> tuple[Any, ...] | None:
            async with connection.transaction():
                held = await connection.execute(_SQL["hold_run"], values)
                if await held.fetchone() is None:
                    raise _lost(f"run {new.run_id}", attempt)
                await connection.execute(_SQL["create"], values)
                await connection.execute(_SQL["arm"], values)
                return await (await connection.execute(_SQL["where"], values)).fetchone()

        row = await self._database.run("opening a dataset", work)
        if row is None:
            raise _lost(f"run {new.run_id}", attempt)
        return _open_dataset(new, row)

    async def seed_page(self, page: SeedPage) -> SeededPage:
        values = {
            "dataset_id": page.dataset_id,
            "run_id": page.run_id,
            "attempt": page.attempt,
            "page": page.page,
            "first_position": page.first_position,
            "end_position": page.end_position,
            "input_digest": page.input_digest,
            "input_columns": list(page.input_columns),
        }

        async def work(connection: AsyncConnection) -> SeededPage:
            async with connection.transaction():
                begun = await (await connection.execute(_SQL["begin_page"], values)).fetchone()
                if begun is None:
                    return await _already_there(connection, page, values)
                mode, only, unclaimed = begun
                left_out = await _insert_page(connection, page, values, mode, only)
                return SeededPage(left_out=left_out, unclaimed=unclaimed)

        return await self._database.run("seeding a page", work)

    async def finish_seeding(self, dataset_id: int, attempt: int) -> None:
        values = {"dataset_id": dataset_id, "attempt": attempt}

        async def work(connection: AsyncConnection) -> bool:
            finished = await connection.execute(_SQL["finish_seeding"], values)
            if finished.rowcount == 1:
                return True
            return await (await connection.execute(_SQL["seeding_over"], values)).fetchone() is not None

        if not await self._database.run("finishing seeding", work):
            raise _lost(f"dataset {dataset_id}", attempt)

    async def facts(self, dataset_id: int) -> DatasetFacts | None:
        async def work(connection: AsyncConnection) -> tuple[Any, ...] | None:
            return await (await connection.execute(_SQL["facts"], {"dataset_id": dataset_id})).fetchone()

        row = await self._database.run("reading a dataset", work)
        return None if row is None else facts_of(row)


def facts_of(row: tuple[Any, ...]) -> DatasetFacts:
    """Facts from the columns that the `facts` query names."""
    (
        dataset_id,
        run_id,
        org_id,
        play,
        key,
        namespace,
        columns,
        source_hash,
        on_row_error,
        options,
        number,
        epoch,
    ) = row
    return DatasetFacts(
        dataset_id=dataset_id,
        run_id=run_id,
        org_id=org_id,
        play=play,
        key=key,
        namespace=namespace,
        columns=tuple(columns),
        source_hash=source_hash,
        on_row_error=on_row_error,
        options=options,
        write_version=number,
        epoch_ms=epoch,
    )


async def _already_there(connection: AsyncConnection, page: SeedPage, values: dict[str, Any]) -> SeededPage:
    stored = await (await connection.execute(_SQL["seeded_page"], values)).fetchone()
    if stored is None:
        raise _lost(f"dataset {page.dataset_id}", page.attempt)
    rows, unclaimed = stored
    return SeededPage(left_out=len(page.rows) - rows, unclaimed=unclaimed)


async def _insert_page(
    connection: AsyncConnection, page: SeedPage, values: dict[str, Any], mode: str, only: str | None
) -> int:
    rows = {
        "dataset_id": page.dataset_id,
        "page": page.page,
        "positions": [row.position for row in page.rows],
        "row_keys": [row.row_key for row in page.rows],
        "inputs": [row.input.decode() for row in page.rows],
        "given": page.end_position - page.first_position,
    }
    statement = _SQL["insert_rows"]
    if only is not None:
        statement, rows["only"] = _ADMITTING["insert_rerun"], only
    elif mode == DatasetMode.NET_NEW:
        statement = _ADMITTING["insert_net_new"]
    async with connection.pipeline():
        added = await connection.execute(statement, rows)
        await connection.execute(_SQL["insert_page"], values)
        stored = await added.fetchone()
    return len(page.rows) - (0 if stored is None else stored[0])


def _open_dataset(new: NewDataset, row: tuple[Any, ...]) -> OpenDataset:
    dataset_id, pages_seeded, pages_total, next_position, rows_seeded, duplicates, input_digest, columns = row
    if tuple(columns) != new.columns:
        raise PlayVersionUnavailableError(
            f"dataset {new.key!r} of run {new.run_id} has the columns {list(columns)}, this worker's play has"
            f" {list(new.columns)}: columns never mix, deploy the play that began the run or start a new run"
        )
    return OpenDataset(
        dataset_id=dataset_id,
        pages_seeded=pages_seeded,
        pages_total=pages_total,
        next_position=next_position,
        rows_seeded=rows_seeded,
        duplicates=duplicates,
        input_digest=input_digest,
    )


def _lost(what: str, attempt: int) -> AttemptLostError:
    return AttemptLostError(
        f"attempt {attempt} may no longer write to {what}: a newer one does, or it ended; stop quietly"
    )
