"""One write of finished rows in one transaction: rows, sheet, counters, usage, logs, done slices."""

from collections.abc import Iterator
from typing import Any

from psycopg import AsyncConnection

from runtime.model import json_value
from runtime.model.dataset import ENDED_DATASETS, FAIL_FAST, DatasetState
from runtime.model.row import FinishedRow, LaterRow, RowState
from runtime.model.row_wait import NewBoundary, RowWait, WaitKind
from runtime.model.run import ENDED_RUNS, RunState
from runtime.model.slice import SliceId, SliceState
from runtime.policy.identity import event_lock
from runtime.ports import RowWrite, RowWriteAnswer, SliceRows
from runtime.postgres_store.logs import log_arrays
from runtime.postgres_store.named import load
from runtime.postgres_store.usage import ADD_CHILDREN, ADD_USAGE, child_arrays, usage_arrays

_SQL = load("flush")
_ADD_LOGS = load("runs")["add_logs"]
_LOCK_KEYS = load("events")["lock_keys"]


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
            if children := child_arrays(self._write.session_id, self._in_datasets(rows)):
                await connection.execute(ADD_CHILDREN, children)
        if waits:
            await connection.execute(_SQL["add_waits"], self._held | _row_waits(waits))
            await _arm(connection, self._held, waits)
        if over := [(n, row) for n, row in rows if row.waited]:
            await connection.execute(_SQL["end_boundaries"], self._held | _ended_rows(over))
        if self._usage:
            await connection.execute(ADD_USAGE, self._usage)
        if self._logs:
            await connection.execute(_ADD_LOGS, self._logs)
        asking = [one for one in held if one.asks_woken and not one.final and one.id not in ended]
        woken = await self._woken(connection, asking) if asking else {}
        # What has ended is closed at once: its holder stops at this answer and comes no more.
        final = [one for one in held if one.final or one.id in ended]
        finals = _fences(final) | {"session_id": self._write.session_id}
        closing = [one for one in final if one.id in ended]
        if closing:
            await connection.execute(_SQL["cancel_open_rows"], finals | _fences(closing))
            await connection.execute(_SQL["drop_boundaries"], finals | _fences(closing))
            await connection.execute(_SQL["drop_waits"], finals | _fences(closing))
        if final:
            cursor = await connection.execute(_SQL["finish_slices"], finals)
            done |= {SliceId(dataset_id=d, page=p, slice=s) for d, p, s in await cursor.fetchall()}
        broken = {self._write.slices[n - 1].id.dataset_id for n, row in rows if self._breaks(n, row)}
        if broken:
            await connection.execute(_SQL["fail_datasets"], {"failing": sorted(broken)})
        return RowWriteAnswer(
            done=frozenset(done),
            lost=frozenset(lost),
            ended=frozenset(ended),
            failing=frozenset(broken | self._failing(standing)),
            woken=woken,
        )

    async def _woken(
        self, connection: AsyncConnection, asking: list[SliceRows]
    ) -> dict[SliceId, tuple[LaterRow, ...]]:
        """Of slices that stay held until commit: who wakes a row of them does so before or after us."""
        values = _fences(asking) | {"session_id": self._write.session_id}
        cursor = await connection.execute(_SQL["woken_rows"], values)
        found: dict[SliceId, list[LaterRow]] = {}
        for n, position, row_key, size in await cursor.fetchall():
            row = LaterRow(position=position, row_key=row_key, size_bytes=size)
            found.setdefault(asking[n - 1].id, []).append(row)
        return {slice_id: tuple(rows) for slice_id, rows in found.items()}

    def _in_datasets(self, rows: list[tuple[int, FinishedRow]]) -> Iterator[tuple[int, FinishedRow]]:
        return ((self._write.slices[n - 1].id.dataset_id, row) for n, row in rows)

    def _breaks(self, n: int, row: FinishedRow) -> bool:
        """Whether this row's failure ends its dataset."""
        return row.state is RowState.FAILED and self._write.slices[n - 1].facts.on_row_error == FAIL_FAST

    def _failing(self, standing: dict[int, list[Any]]) -> set[int]:
        return {
            self._write.slices[n - 1].id.dataset_id
            for n, (_, _, _, dataset_state, _) in standing.items()
            if dataset_state == DatasetState.FAILING
        }

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


async def _arm(
    connection: AsyncConnection, held: dict[str, Any], waits: list[tuple[int, FinishedRow]]
) -> None:
    """Arm what rows wait for; the keys of events are locked until commit, so that none slips through."""
    found = [(n, row.position, one) for n, row in waits for one in (row.wait.boundaries if row.wait else ())]
    if not found:
        return
    values = held | _boundaries(found)
    locks = sorted({event_lock(one.event_key) for _, _, one in found if one.event_key is not None})
    if locks:
        await connection.execute(_LOCK_KEYS, {"locks": locks})
    await connection.execute(_SQL["add_boundaries"], values)
    await connection.execute(_SQL["hasten_waits"], values)


def _boundaries(found: list[tuple[int, int, NewBoundary]]) -> dict[str, Any]:
    outcomes = [one.timeout_outcome for _, _, one in found]
    return {
        "wait_slices": [n for n, _, _ in found],
        "wait_positions": [position for _, position, _ in found],
        "wait_keys": [one.key for _, _, one in found],
        "wait_kinds": [one.kind.value for _, _, one in found],
        "wait_due_ms": [one.due_ms for _, _, one in found],
        "event_keys": [one.event_key for _, _, one in found],
        "timeout_outcomes": [
            None if outcome is None else json_value.dumps(outcome).decode() for outcome in outcomes
        ],
    }


def _ended_rows(rows: list[tuple[int, FinishedRow]]) -> dict[str, Any]:
    return {"ended_slices": [n for n, _ in rows], "ended_positions": [row.position for _, row in rows]}


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
