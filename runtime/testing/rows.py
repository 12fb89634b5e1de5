"""Datasets, slices and receipts in memory."""

from collections.abc import Sequence
from dataclasses import replace

from runtime.errors import AttemptLostError, PlayVersionUnavailableError
from runtime.model import json_value
from runtime.model.budget import Charge
from runtime.model.call import Usage
from runtime.model.cell import StoredCells
from runtime.model.dataset import (
    FAIL_FAST,
    DatasetFacts,
    DatasetState,
    NewDataset,
    OpenDataset,
    SeededPage,
    SeedPage,
)
from runtime.model.receipt import Receipt, ReceiptState, replaces
from runtime.model.row import ENDED_ROWS, OPEN_ROWS, InputRow, LaterRow, RowState
from runtime.model.row_wait import RowWait
from runtime.model.slice import SUSPECTS_FROM, SliceId, SliceState, TakenSlice
from runtime.ports import RowWrite, RowWriteAnswer, SliceRows
from runtime.testing.admitting import admit
from runtime.testing.budgets import MemoryBudgets
from runtime.testing.state import (
    MemoryBoundary,
    MemoryDataset,
    MemoryPage,
    MemoryRow,
    MemorySlice,
    MemoryState,
)
from runtime.testing.waits import arm_row


class MemoryDatasets:
    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def open(self, new: NewDataset, attempt: int, op_key: str) -> OpenDataset:
        self._state.held(new.run_id, attempt)
        found = [
            (dataset_id, one)
            for dataset_id, one in self._state.datasets.items()
            if one.new.run_id == new.run_id and one.new.key == new.key
        ]
        if not found:
            found = [
                (
                    len(self._state.datasets) + 1,
                    MemoryDataset(new=new, op_key=op_key, created_s=self._state.clock()),
                )
            ]
            self._state.datasets.update(found)
        boundaries = self._state.boundaries.setdefault(new.run_id, {})
        boundaries.setdefault(op_key, MemoryBoundary(kind="dataset"))
        dataset_id, dataset = found[0]
        if dataset.new.columns != new.columns:
            raise PlayVersionUnavailableError(f"dataset {new.key!r} has other columns: columns never mix")
        return OpenDataset(
            dataset_id=dataset_id,
            pages_seeded=len(dataset.pages),
            pages_total=dataset.pages_total,
            next_position=dataset.next_position,
            rows_seeded=len(dataset.rows),
            duplicates=dataset.duplicates,
            input_digest=dataset.input_digest,
        )

    async def seed_page(self, page: SeedPage) -> SeededPage:
        self._state.held(page.run_id, page.attempt)
        dataset = self._state.datasets[page.dataset_id]
        if page.page in dataset.pages and dataset.state in (DatasetState.SEEDING, DatasetState.RUNNING):
            rows = sum(1 for _ in dataset.rows_of(dataset.pages[page.page]))
            return SeededPage(left_out=len(page.rows) - rows, unclaimed=dataset.unclaimed)
        if dataset.state is not DatasetState.SEEDING or page.page != len(dataset.pages):
            raise AttemptLostError(f"dataset {page.dataset_id} isn't seeding page {page.page}: stop quietly")
        dataset.pages[page.page] = MemoryPage(first=page.first_position, end=page.end_position)
        dataset.next_position, dataset.input_digest = page.end_position, page.input_digest
        before = len(dataset.rows)
        admit(self._state, dataset, page.page, page.rows, page.end_position - page.first_position)
        left_out = len(page.rows) - (len(dataset.rows) - before)
        return SeededPage(left_out=left_out, unclaimed=dataset.unclaimed)

    async def finish_seeding(self, dataset_id: int, attempt: int) -> None:
        dataset = self._state.datasets[dataset_id]
        self._state.held(dataset.new.run_id, attempt)
        if dataset.state is DatasetState.SEEDING:
            dataset.state, dataset.pages_total = DatasetState.RUNNING, len(dataset.pages)
        elif dataset.pages_total is None:
            raise AttemptLostError(f"dataset {dataset_id} ended while it was seeded: stop quietly")

    async def facts(self, dataset_id: int) -> DatasetFacts | None:
        return self._state.facts(dataset_id) if dataset_id in self._state.datasets else None


class MemorySlices:
    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def take(self, run_id: str, slice_id: SliceId, session_id: str) -> TakenSlice | None:
        dataset = self._state.datasets.get(slice_id.dataset_id)
        one = None if dataset is None else dataset.slices.get((slice_id.page, slice_id.slice))
        if dataset is None or one is None or dataset.new.run_id != run_id or self._state.is_winding(dataset):
            return None
        if one.state is not SliceState.OPEN or self._state.is_live(one.session_id):
            return None
        if not self._state.is_live(session_id):
            return None
        if self._state.never_came_back(one.session_id):
            self._count_crashes(dataset, one)
        one.session_id, one.taken_s = session_id, self._state.clock()
        one.fence += 1
        one.order += 1
        if not slice_id.is_suspect and self._is_suspicious(dataset, one):
            self._split(dataset, slice_id.page, one)
        rows: list[InputRow] = []
        later: list[LaterRow] = []
        size = 0
        for at, row in dataset.rows_of(one):
            if row.state not in OPEN_ROWS:
                continue
            bytes_ = len(json_value.dumps(row.input))
            size += bytes_
            if size > self._state.limits.slice_read_bytes:
                later.append(LaterRow(position=at, row_key=row.row_key, size_bytes=bytes_))
            else:
                rows.append(_input_row(at, row, bytes_))
        return TakenSlice(
            id=slice_id,
            fence=one.fence,
            facts=self._state.facts(slice_id.dataset_id),
            rows=tuple(rows),
            later=tuple(later),
            taken_ms=int(self._state.clock() * 1000),
        )

    async def read_rows(self, taken: TakenSlice, positions: Sequence[int]) -> tuple[InputRow, ...]:
        rows = self._state.datasets[taken.id.dataset_id].rows
        return tuple(_input_row(at, rows[at]) for at in positions if rows[at].state in OPEN_ROWS)

    async def stored_rows(self, facts: DatasetFacts, row_keys: Sequence[str]) -> dict[str, StoredCells]:
        sheet = self._state.sheets.get((facts.org_id, facts.play, facts.namespace), {})
        found = {key: sheet[key] for key in row_keys if key in sheet and sheet[key]["state"] != "pending"}
        return {key: StoredCells(data=one["data"], cell_meta=one["cell_meta"]) for key, one in found.items()}

    async def flush(self, write: RowWrite) -> RowWriteAnswer:
        done: set[SliceId] = set()
        lost: set[SliceId] = set()
        ended: set[SliceId] = set()
        woken: dict[SliceId, tuple[LaterRow, ...]] = {}
        for part in write.slices:
            dataset = self._state.datasets[part.id.dataset_id]
            one = dataset.slices.get((part.id.page, part.id.slice))
            if one is None or one.fence != part.fence:
                lost.add(part.id)
                continue
            if self._state.is_over(dataset):
                ended.add(part.id)
            if one.state is SliceState.OPEN and one.session_id != write.session_id:
                lost.add(part.id)
                continue
            if one.state is SliceState.OPEN:
                self._write(dataset, one, part)
                if part.final or part.id in ended:
                    self._finish(dataset, one)
                elif part.asks_woken:
                    woken[part.id] = _woken_rows(dataset, one)
            if one.state is SliceState.DONE:
                done.add(part.id)
        self._state.usage.extend(write.usage)
        for run_id, line in write.logs:
            self._state.logs.setdefault((run_id, line.scope, line.n), line)
        failing = {
            part.id.dataset_id
            for part in write.slices
            if self._state.datasets[part.id.dataset_id].state is DatasetState.FAILING
        }
        return RowWriteAnswer(
            done=frozenset(done),
            lost=frozenset(lost),
            ended=frozenset(ended),
            failing=frozenset(failing),
            woken={slice_id: rows for slice_id, rows in woken.items() if rows},
        )

    async def release(self, held: Sequence[tuple[SliceId, int]], after_s: float = 0.0) -> None:
        for slice_id, fence in held:
            one = self._state.datasets[slice_id.dataset_id].slices[slice_id.page, slice_id.slice]
            if one.fence == fence and one.state is SliceState.OPEN:
                one.session_id = None
                if after_s:
                    one.sent_s, one.order = self._state.clock() + after_s, one.sent_order

    def _count_crashes(self, dataset: MemoryDataset, one: MemorySlice) -> None:
        for _, row in dataset.rows_of(one):
            row.crashes += row.state in OPEN_ROWS

    def _is_suspicious(self, dataset: MemoryDataset, one: MemorySlice) -> bool:
        most = self._state.limits.suspect_crashes
        return any(row.state in OPEN_ROWS and row.crashes >= most for _, row in dataset.rows_of(one))

    def _split(self, dataset: MemoryDataset, page: int, one: MemorySlice) -> None:
        first = dataset.pages[page].first
        for at, row in dataset.rows_of(one):
            if row.state not in ENDED_ROWS:
                dataset.slices[page, SUSPECTS_FROM + at - first] = MemorySlice(first=at, end=at + 1)
        one.end = one.first

    def _write(self, dataset: MemoryDataset, one: MemorySlice, part: SliceRows) -> None:
        facts = part.facts
        sheet = self._state.sheets.setdefault((facts.org_id, facts.play, facts.namespace), {})
        for finished in part.rows:
            row = dataset.rows.get(finished.position)
            inside = one.first <= finished.position < one.end
            if row is None or not inside or row.state not in OPEN_ROWS:
                continue
            row.state = finished.state
            row.error = None if finished.error is None else json_value.loads(finished.error)
            if finished.wait is not None:
                self._let_wait(row, finished.wait)
                arm_row(self._state, dataset, row)
            elif finished.waited:
                row.end_waits()
            if finished.state is RowState.FAILED and facts.on_row_error == FAIL_FAST:
                dataset.fail()
            if finished.state in (RowState.CANCELLED, RowState.WAITING):
                continue
            known = sheet.get(finished.row_key)
            row.superseded = known is not None and known["write_version"] > facts.write_version
            if not row.superseded:
                sheet[finished.row_key] = {
                    "data": json_value.loads(finished.data),
                    "cell_meta": json_value.loads(finished.cell_meta),
                    "write_version": facts.write_version,
                    "run_id": facts.run_id,
                    "state": finished.state.value,
                }

    def _let_wait(self, row: MemoryRow, wait: RowWait) -> None:
        row.wait, row.has_waited = wait, True
        row.due_s = None if wait.due_ms is None else self._state.clock() + wait.due_ms / 1000

    def _finish(self, dataset: MemoryDataset, one: MemorySlice) -> None:
        if self._state.is_over(dataset):
            for _, row in dataset.rows_of(one):
                if row.state not in ENDED_ROWS:
                    row.state, row.wait, row.due_s = RowState.CANCELLED, None, None
                    row.end_waits()
        if not dataset.has_open_row(one):
            one.state, one.session_id = SliceState.DONE, None


def _input_row(at: int, row: MemoryRow, size_bytes: int = 0) -> InputRow:
    return InputRow(
        position=at, row_key=row.row_key, input=row.input, crashes=row.crashes, size_bytes=size_bytes
    )


def _woken_rows(dataset: MemoryDataset, one: MemorySlice) -> tuple[LaterRow, ...]:
    return tuple(
        LaterRow(position=at, row_key=row.row_key, size_bytes=len(json_value.dumps(row.input)))
        for at, row in dataset.rows_of(one)
        if row.state in OPEN_ROWS and row.has_waited
    )


class MemoryReceipts:
    def __init__(self, state: MemoryState, budgets: MemoryBudgets | None = None) -> None:
        self._state = state
        self._budgets = budgets

    async def read(self, keys: Sequence[str]) -> dict[str, Receipt]:
        return {key: self._state.receipts[key] for key in keys if key in self._state.receipts}

    async def commit(
        self,
        session_id: str,
        receipts: Sequence[Receipt],
        usage: Sequence[Usage],
        charges: Sequence[Charge] = (),
    ) -> dict[str, Receipt]:
        for new in receipts:
            if replaces(new, self._state.receipts.get(new.key)):
                self._state.receipts[new.key] = replace(new, produced_ms=int(self._state.clock() * 1000))
        self._state.usage.extend(usage)
        if self._budgets is not None:
            self._budgets.settle(charges)
        return {one.key: self._state.receipts[one.key] for one in receipts}

    async def unmark(self, session_id: str, receipts: Sequence[Receipt]) -> None:
        for mark in receipts:
            known = self._state.receipts.get(mark.key)
            if known is not None and known.state is ReceiptState.DISPATCHED and known.fence == mark.fence:
                del self._state.receipts[mark.key]
