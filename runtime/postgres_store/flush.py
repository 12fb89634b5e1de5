"""One write of finished rows in one transaction: rows, sheet, counters, usage, logs, done slices."""

from typing import Any

from psycopg import AsyncConnection

from runtime.model.dataset import ENDED_DATASETS, DatasetState
from runtime.model.row import FinishedRow
from runtime.model.row_wait import RowWait, WaitKind
from runtime.model.run import ENDED_RUNS, RunState
from runtime.model.slice import SliceId, SliceState
from runtime.ports import RowWrite, RowWriteAnswer, SliceRows
from runtime.postgres_store.logs import log_arrays
from runtime.postgres_store.named import load
from runtime.postgres_store.usage import ADD_USAGE, usage_arrays

_SQL = load("flush")
_ADD_LOGS = load("runs")["add_logs"]


class Flush:
    """The write's parameters, made once; `work` may be repeated."""

    def __init__(self, write: RowWrite) -> None:
        self._write = write
        self._held = _slice_arrays(write.slices) | {"session_id": write.session_id}
        self._rows = [(n, row) for n, one in enumerate(write.slices, 1) for row in one.rows]
        self._usage = usage_arrays(write.session_id, write.usage) if write.usage else None
        self._logs = log_arrays(write.logs) if write.logs else None

    async def work(self, connection: AsyncConnection) -> RowWriteAnswer:
        """One transaction on `connection`."""
        async with connection.pipeline(), connection.transaction():
            locks = await connection.execute(_SQL["lock_slices"], self._held)
            updated: set[tuple[int, int]] = set()
            if self._rows:
                ends = {"row_slices": [n for n, _ in self._rows], **_row_ends(self._rows)}
                cursor = await connection.execute(_SQL["update_rows"], self._held | ends)
                updated = set(await cursor.fetchall())
            standing = {n: row for n, *row in await locks.fetchall()}
            return await self._finish(connection, standing, updated)

    async def _finish(
        self, connection: AsyncConnection, standing: dict[int, list[Any]], updated: set[tuple[int, int]]
    ) -> RowWriteAnswer:
        held, done, lost, ended = self._sort(standing)
        rows = [(n, row) for n, row in self._rows if (n, row.position) in updated and row.wait is None]
        waits = [(n, row) for n, row in self._rows if (n, row.position) in updated and row.wait is not None]
        if rows:
            await connection.execute(_SQL["write_sheet"], self._held | _row_values(rows))
        if waits:
            await connection.execute(_SQL["add_waits"], self._held | _row_waits(waits))
        if self._usage:
            await connection.execute(ADD_USAGE, self._usage)
        if self._logs:
            await connection.execute(_ADD_LOGS, self._logs)
        # What has ended is closed at once: its holder stops at this answer and comes no more.
        final = [one for one in held if one.final or one.id in ended]
        finals = _fences(final) | {"session_id": self._write.session_id}
        closing = [one for one in final if one.id in ended]
        if closing:
            await connection.execute(_SQL["cancel_open_rows"], finals | _fences(closing))
            await connection.execute(_SQL["drop_waits"], finals | _fences(closing))
        if final:
            cursor = await connection.execute(_SQL["finish_slices"], finals)
            done |= {SliceId(dataset_id=d, page=p, slice=s) for d, p, s in await cursor.fetchall()}
        return RowWriteAnswer(done=frozenset(done), lost=frozenset(lost), ended=frozenset(ended))

    def _sort(
        self, standing: dict[int, list[Any]]
    ) -> tuple[list[SliceRows], set[SliceId], set[SliceId], set[SliceId]]:
        """(held, done, lost, ended): done here means found done under our own fence."""
        held: list[SliceRows] = []
        done: set[SliceId] = set()
        lost: set[SliceId] = set()
        ended: set[SliceId] = set()
        for n, one in enumerate(self._write.slices, 1):
            fence, state, session_id, dataset_state, run_state = standing.get(n, (None,) * 5)
            if fence != one.fence:
                lost.add(one.id)
                continue
            if DatasetState(dataset_state) in ENDED_DATASETS or RunState(run_state) in ENDED_RUNS:
                ended.add(one.id)
            if state == SliceState.DONE:
                done.add(one.id)
            elif session_id == self._write.session_id:
                held.append(one)
            else:
                lost.add(one.id)
        return held, done, lost, ended


def _slice_arrays(slices: tuple[SliceRows, ...]) -> dict[str, Any]:
    return _fences(slices) | {
        "org_ids": [one.facts.org_id for one in slices],
        "plays": [one.facts.play for one in slices],
        "namespaces": [one.facts.namespace for one in slices],
        "versions": [one.facts.write_version for one in slices],
        "run_ids": [one.facts.run_id for one in slices],
    }


def _fences(slices: tuple[SliceRows, ...] | list[SliceRows]) -> dict[str, Any]:
    return {
        "dataset_ids": [one.id.dataset_id for one in slices],
        "pages": [one.id.page for one in slices],
        "slices": [one.id.slice for one in slices],
        "fences": [one.fence for one in slices],
    }


def _row_ends(rows: list[tuple[int, FinishedRow]]) -> dict[str, Any]:
    return {
        "positions": [row.position for _, row in rows],
        "states": [row.state.value for _, row in rows],
        "errors": [None if row.error is None else row.error.decode() for _, row in rows],
    }


def _row_waits(rows: list[tuple[int, FinishedRow]]) -> dict[str, Any]:
    waits = [row.wait or RowWait(kind=WaitKind.LANE) for _, row in rows]
    return {
        "row_slices": [n for n, _ in rows],
        "positions": [row.position for _, row in rows],
        "kinds": [wait.kind.value for wait in waits],
        "due_ms": [wait.due_ms for wait in waits],
        "details": [wait.detail for wait in waits],
    }


def _row_values(rows: list[tuple[int, FinishedRow]]) -> dict[str, Any]:
    return {
        "row_slices": [n for n, _ in rows],
        "positions": [row.position for _, row in rows],
        "states": [row.state.value for _, row in rows],
        "row_keys": [row.row_key for _, row in rows],
        "data": [row.data.decode() for _, row in rows],
        "cell_metas": [row.cell_meta.decode() for _, row in rows],
    }
