"""The decisions of settling and sweeping in memory."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from runtime.model.dataset import FAIL_FAST, WINDING_DATASETS, DatasetState, EndedDataset
from runtime.model.page import PageState
from runtime.model.row import ENDED_ROWS, RowState
from runtime.model.row_wait import WaitKind, WokenPage
from runtime.model.run import RunState
from runtime.model.slice import SliceState
from runtime.policy.dataset_outcome import FAILURES_NAMED, FailedRow, failure_lines, outcome_of
from runtime.policy.slicing import slice_rows
from runtime.ports import LogLine
from runtime.testing.state import MemoryDataset, MemoryRow, MemorySlice, MemoryState, is_resumable


class MemorySettling:
    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def settle_page(self, dataset_id: int, page: int) -> bool:
        dataset = self._state.datasets.get(dataset_id)
        if dataset is None or page not in dataset.pages:
            return False
        if dataset.state is DatasetState.FAILING:
            for number in dataset.pages:
                self._state.wind(dataset, number)
        if dataset.state in WINDING_DATASETS:
            return self._state.wind(dataset, page)
        for one in dataset.open_slices(page):
            if not self._state.is_live(one.session_id) and not dataset.has_open_row(one):
                one.state, one.session_id = SliceState.DONE, None
        one = dataset.pages[page]
        if one.state is not PageState.OUT or dataset.open_slices(page):
            return False
        waits = dataset.waits(one)
        if not waits:
            one.state = PageState.SETTLED
        elif all(wait.kind.parks for wait in waits):
            one.state = PageState.PARKED
        return not waits

    async def wake_rows(self) -> list[WokenPage]:
        now = self._state.clock()
        return self._wake(lambda _run_id, row: row.due_s is not None and row.due_s <= now)

    async def wake_budget(self, run_id: str, most: int | None = None) -> list[WokenPage]:
        return self._wake(
            lambda of, row: of == run_id and row.wait is not None and row.wait.kind is WaitKind.BUDGET, most
        )

    async def claim_pages(self, dataset_id: int) -> list[int]:
        dataset = self._state.datasets.get(dataset_id)
        if dataset is None or dataset.state not in (DatasetState.SEEDING, DatasetState.RUNNING):
            return []
        end = min(len(dataset.pages), dataset.settled + dataset.parked + self._state.limits.pages_in_flight)
        dataset.next_page = max(dataset.next_page, end)
        cut = [
            number
            for number, page in dataset.pages.items()
            if number < dataset.next_page and page.state is PageState.SEEDED
        ]
        size = slice_rows(
            rows_settled=dataset.settled * self._state.limits.page_rows,
            elapsed_s=self._state.clock() - dataset.created_s,
            limits=self._state.limits,
        )
        for number in cut:
            self._cut(dataset, number, size)
        return cut

    async def due_slices(self, dataset_id: int, page: int, epoch: str, *, queue_empty: bool) -> list[int]:
        dataset = self._state.datasets[dataset_id]
        due = [
            number
            for (of, number), one in dataset.slices.items()
            if of == page and not self._state.is_winding(dataset) and self._is_due(one, epoch, queue_empty)
        ]
        for number in due:
            one = dataset.slices[page, number]
            one.sent_s, one.epoch = self._state.clock(), epoch
            one.order += 1
            one.sent_order = one.order
        return sorted(due)

    async def end_dataset(self, dataset_id: int) -> EndedDataset | None:
        dataset = self._state.datasets.get(dataset_id)
        if dataset is None or not dataset.can_end:
            return None
        value = self._outcome_value(dataset_id, dataset)
        all_failed = value["failed"] and value["failed"] == value["rows"]
        is_failed = dataset.state is DatasetState.FAILING or bool(all_failed)
        dataset.state = DatasetState.FAILED if is_failed else DatasetState.SETTLED
        run_id = dataset.new.run_id
        first = [
            FailedRow(row_key=row.row_key, error=row.error or {})
            for _, row in sorted(dataset.rows.items())
            if row.state is RowState.FAILED
        ][:FAILURES_NAMED]
        for n, text in enumerate(failure_lines(value, first)):
            scope = f"dataset:{dataset.new.namespace}"
            line = LogLine(scope=scope, n=n, level="warning", message=text, fields={})
            self._state.logs.setdefault((run_id, scope, n), line)
        outcome = outcome_of(
            value,
            first,
            is_failed=is_failed,
            is_fail_fast=dataset.new.on_row_error == FAIL_FAST,
            at_ms=int(self._state.clock() * 1000),
        )
        self._state.resolve(run_id, dataset.op_key, outcome)
        run_waits = self._state.runs[run_id].state is RunState.WAITING
        return EndedDataset(
            run_id=run_id,
            dataset_id=dataset_id,
            run_waits=run_waits,
            key=dataset.new.key,
            state=dataset.state,
            counts={name: value[name] for name in ("rows", "completed", "failed", "cancelled")},
            began_s=dataset.created_s,
        )

    async def stale_pages(self, epoch: str, *, queue_empty: bool) -> list[tuple[str, int, int]]:
        found: list[tuple[str, int, int]] = []
        for dataset_id, dataset in self._state.datasets.items():
            for number, page in dataset.pages.items():
                if page.state is not PageState.SETTLED and self._is_stale(
                    dataset, number, epoch, queue_empty
                ):
                    found.append((dataset.new.run_id, dataset_id, number))
        return found[: self._state.limits.sweep_batch]

    async def stale_datasets(self) -> list[int]:
        window = self._state.limits.pages_in_flight
        return [
            dataset_id
            for dataset_id, one in self._state.datasets.items()
            if (
                one.state in (DatasetState.SEEDING, DatasetState.RUNNING)
                and one.next_page < min(len(one.pages), one.settled + one.parked + window)
            )
            or one.can_end
        ]

    async def due_runs(self) -> list[str]:
        now, sweep_s = self._state.clock(), self._state.limits.sweep_s
        due = [
            run_id
            for run_id, run in self._state.runs.items()
            if (run.hinted_s is None or run.hinted_s < now - sweep_s) and is_resumable(self._state, run)
        ][: self._state.limits.sweep_batch]
        for run_id in due:
            self._state.runs[run_id].hinted_s = now
        return due

    async def resolve_timers(self) -> None:
        for run_id in list(self._state.boundaries):
            self._state.resolve_due(run_id)

    async def run_of(self, dataset_id: int) -> str | None:
        dataset = self._state.datasets.get(dataset_id)
        return None if dataset is None else dataset.new.run_id

    @asynccontextmanager
    async def sweep_turn(self, name: str) -> AsyncIterator[bool]:
        yield True

    def _cut(self, dataset: MemoryDataset, number: int, rows: int) -> None:
        page = dataset.pages[number]
        page.state = PageState.OUT
        for n, first in enumerate(range(page.first, page.end, rows)):
            one = MemorySlice(first=first, end=min(first + rows, page.end))
            if any(row.state not in ENDED_ROWS for _, row in dataset.rows_of(one)):
                dataset.slices[number, n] = one

    def _is_due(self, one: MemorySlice, epoch: str, queue_empty: bool) -> bool:
        if one.state is not SliceState.OPEN or self._state.is_live(one.session_id):
            return False
        limits = self._state.limits
        stale_s = limits.sweep_s if queue_empty else limits.session_ttl_s
        return (
            one.sent_s is None
            or one.epoch != epoch
            or one.order > one.sent_order
            or one.sent_s < self._state.clock() - stale_s
        )

    def _is_stale(self, dataset: MemoryDataset, number: int, epoch: str, queue_empty: bool) -> bool:
        slices = dataset.open_slices(number)
        if dataset.state in WINDING_DATASETS:
            return not any(self._state.is_live(one.session_id) for one in slices)
        if dataset.pages[number].state is PageState.SEEDED:
            return number < dataset.next_page
        page = dataset.pages[number]
        is_settled = not slices and page.state is PageState.OUT
        is_settled = is_settled and all(wait.kind.parks for wait in dataset.waits(page))
        return is_settled or any(self._is_due(one, epoch, queue_empty) for one in slices)

    def _wake(self, is_over: Callable[[str, MemoryRow], bool], most: int | None = None) -> list[WokenPage]:
        woken: list[WokenPage] = []
        left = self._state.limits.wake_rows if most is None else min(self._state.limits.wake_rows, most)
        for dataset_id, dataset in self._state.datasets.items():
            run_id = dataset.new.run_id
            due = [
                (at, row)
                for at, row in dataset.rows.items()
                if row.wait is not None and is_over(run_id, row) and not self._state.is_winding(dataset)
            ][:left]
            left -= len(due)
            for at, row in due:
                row.state, row.wait, row.due_s = RowState.PENDING, None, None
                self._open_again(dataset, row.page, at)
            woken += [
                WokenPage(run_id=run_id, dataset_id=dataset_id, page=page)
                for page in sorted({row.page for _, row in due})
            ]
        return woken

    def _open_again(self, dataset: MemoryDataset, page: int, at: int) -> None:
        dataset.pages[page].state = PageState.OUT
        for (of, _), one in dataset.slices.items():
            if of == page and one.first <= at < one.end and one.state is SliceState.DONE:
                one.state, one.session_id = SliceState.OPEN, None
                one.order = max(one.order, one.sent_order + 1)

    def _outcome_value(self, dataset_id: int, dataset: MemoryDataset) -> dict[str, Any]:
        return {
            "dataset": dataset.new.key,
            "namespace": dataset.new.namespace,
            "dataset_id": dataset_id,
            "rows": len(dataset.rows),
            "completed": dataset.count(RowState.COMPLETED),
            "failed": dataset.count(RowState.FAILED),
            "cancelled": dataset.count(RowState.CANCELLED),
            "duplicates": dataset.duplicates,
            "superseded": sum(
                row.superseded and row.state is RowState.COMPLETED for row in dataset.rows.values()
            ),
            "kept": dataset.kept,
            "left_out": dataset.left_out,
        }
