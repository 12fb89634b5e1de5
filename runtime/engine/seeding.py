"""Streams a dataset's input into pages: idempotent by position, flat in memory, resumable."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from runtime.context.csv_rows import CsvHandle
from runtime.context.dataset import DatasetSpec
from runtime.context.dataset_handle import DatasetHandle
from runtime.context.query_rows import QueryRows
from runtime.engine.row_sources import QueryInput, RowSources
from runtime.errors import DatasetInputError, InputChangedError, PlaylaneError
from runtime.model.dataset import DatasetState, NewDataset, OpenDataset, SeedPage, SeedRow
from runtime.model.error_text import named
from runtime.model.events import DatasetChanged, MapStarted
from runtime.model.run import ClaimedRun
from runtime.policy.limits import Limits
from runtime.policy.rows_input import TakenRow, chained, check_row, take_row
from runtime.ports import DatasetStore, EventSink, Fault, no_events

Advance = Callable[[int], Awaitable[None]]


class Seeder:
    """Puts a dataset's rows on its run's work list; pages go out while later ones are still read."""

    def __init__(
        self,
        *,
        datasets: DatasetStore,
        advance: Advance,
        limits: Limits,
        fault: Fault,
        sources: RowSources | None = None,
        events: EventSink = no_events,
    ) -> None:
        self._events = events
        self._datasets = datasets
        self._sources = sources
        self._advance = advance
        self._limits = limits
        self._fault = fault

    async def seed(self, run: ClaimedRun, op_key: str, spec: DatasetSpec, source_hash: str) -> None:
        """Open the dataset and seed what isn't seeded yet; raises before a bad row's page is stored."""
        new = NewDataset(
            run_id=run.run_id,
            key=spec.key,
            namespace=spec.namespace,
            columns=spec.column_names,
            source_hash=source_hash,
            on_row_error=spec.on_row_error,
            mode=spec.mode,
        )
        opened = await self._datasets.open(new, run.attempt, op_key)
        if opened.next_position == 0 and opened.pages_total is None:
            self._events.emit(run.run_id, DatasetChanged(dataset=spec.key, state=DatasetState.SEEDING.value))
            self._events.emit(run.run_id, MapStarted(dataset=spec.key, columns=spec.column_names))
        if opened.pages_total is None:
            if self._sources is not None:
                spec = replace(spec, rows=await self._sources.ready(run.run_id, spec.rows))
            await self._seed_pages(run, spec, opened)
            await self._datasets.finish_seeding(opened.dataset_id, run.attempt)
            self._events.emit(run.run_id, DatasetChanged(dataset=spec.key, state=DatasetState.RUNNING.value))
        await self._advance(opened.dataset_id)

    async def _seed_pages(self, run: ClaimedRun, spec: DatasetSpec, opened: OpenDataset) -> None:
        cutter = PageCutter(spec, opened, self._limits)
        if opened.next_position == 0:
            await asyncio.to_thread(cutter.check_all)
        page = opened.pages_seeded
        clock = asyncio.get_running_loop().time
        started_s = clock()
        while (cut := await self._next_page(cutter, spec)) is not None:
            seeded = await self._datasets.seed_page(
                SeedPage(
                    dataset_id=opened.dataset_id,
                    run_id=run.run_id,
                    attempt=run.attempt,
                    page=page,
                    first_position=cut.first,
                    end_position=cut.end,
                    rows=cut.rows,
                    input_digest=cut.digest,
                    input_columns=cut.columns,
                )
            )
            await self._fault("body.after_seed_page")
            page += 1
            if seeded.unclaimed <= self._limits.seed_pages_ahead:
                await self._advance(opened.dataset_id)
            else:  # whoever settles a page sends the next; what nobody needs yet leaves the machine to others
                await asyncio.sleep((clock() - started_s) * self._limits.seed_rest_share)
            started_s = clock()

    async def _next_page(self, cutter: "PageCutter", spec: DatasetSpec) -> "CutPage | None":
        if isinstance(spec.rows, QueryInput):  # no thread waits for a tool
            while cutter.is_behind:
                await spec.rows.ahead(self._limits.page_rows)
                await asyncio.to_thread(cutter.skip, self._limits.page_rows)
            await spec.rows.ahead(self._limits.page_rows)
        return await asyncio.to_thread(cutter.next_page)


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPage:
    first: int
    end: int
    rows: tuple[SeedRow, ...]
    digest: str
    columns: tuple[str, ...]


class PageCutter:
    """Cuts an input into pages, after checking that what was seeded before is still its beginning."""

    def __init__(self, spec: DatasetSpec, opened: OpenDataset, limits: Limits) -> None:
        self._spec = spec
        self._opened = opened
        self._limits = limits
        self._outputs = frozenset(spec.column_names)
        self._rows: Iterator[Any] | None = None
        self._position = 0
        self._digest = b""
        self._columns: dict[str, None] = {}
        self._last: tuple[str, ...] = ()

    def check_all(self) -> None:
        """Refuse a bad row before the first page goes out, where the input can be read twice."""
        if isinstance(self._spec.rows, tuple) or (
            isinstance(self._spec.rows, CsvHandle) and self._spec.row_key.explicit
        ):
            for number, row in enumerate(self._spec.rows, 1):
                check_row(
                    row, number=number, dataset=self._spec.key, key=self._spec.row_key, outputs=self._outputs
                )

    def next_page(self) -> CutPage | None:
        """The next page of rows, None at the end; blocking, for a thread."""
        if self._rows is None or self.is_behind:
            self.skip()
        first, size = self._position, 0
        rows: list[SeedRow] = []
        seen: set[str] = set()
        while self._position - first < self._limits.page_rows and size < self._limits.page_bytes:
            taken = self._take()
            if taken is None:
                break
            if taken.row_key not in seen:
                seen.add(taken.row_key)
                rows.append(SeedRow(position=self._position - 1, row_key=taken.row_key, input=taken.input))
                size += len(taken.input)
        if self._position == first:
            return None
        return CutPage(
            first=first,
            end=self._position,
            rows=tuple(rows),
            digest=self._digest.hex(),
            columns=tuple(self._columns),
        )

    @property
    def is_behind(self) -> bool:
        """Whether rows that were seeded before are still to be taken from the input again."""
        return self._position < self._opened.next_position

    def skip(self, at_most: int | None = None) -> None:
        """Take them again, all or `at_most`; blocking. Raises InputChangedError if they are other ones now."""
        if self._rows is None:
            assert not isinstance(self._spec.rows, (DatasetHandle, QueryRows))  # made readable before
            self._rows = iter(self._spec.rows)
        end = self._opened.next_position
        if at_most is not None:
            end = min(end, self._position + at_most)
        while self._position < end:
            if self._take() is None:
                raise self._changed(
                    f"it has {self._position:,} rows now, {self._opened.next_position:,} were seeded"
                )
        if not self.is_behind and self._digest.hex() != self._opened.input_digest:
            raise self._changed(f"its first {self._position:,} rows are not the ones that were seeded")

    def _take(self) -> TakenRow | None:
        assert self._rows is not None
        row = self._next_row()
        if row is _END:
            return None
        taken = take_row(
            row,
            number=self._position + 1,
            dataset=self._spec.key,
            key=self._spec.row_key,
            outputs=self._outputs,
            max_bytes=self._limits.row_bytes,
        )
        self._position += 1
        self._digest = chained(self._digest, taken.input)
        self._note_columns(taken.columns)
        return taken

    def _note_columns(self, names: tuple[str, ...]) -> None:
        """Which columns the input has, as far as a sheet's view shows them."""
        if names == self._last:
            return
        self._last = names
        for name in names:
            if len(self._columns) < self._limits.sheet_columns:
                self._columns.setdefault(name)

    def _next_row(self) -> Any:
        assert self._rows is not None
        try:
            return next(self._rows, _END)
        except PlaylaneError:
            raise
        except Exception as error:  # the author's own iterable
            raise DatasetInputError(
                f'dataset "{self._spec.key}": reading row {self._position + 1} of its input failed: '
                f"{named(error)}"
            ) from error

    def _changed(self, what: str) -> InputChangedError:
        return InputChangedError(
            f'dataset "{self._spec.key}": its input changed since this run began: {what}. Put the input back '
            "or start a new run; this run is failed and not retried"
        )


_END = object()
