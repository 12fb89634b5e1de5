"""A settled dataset as an author holds it: its counts, and its rows read from the sheet when they are asked for."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from runtime.errors import DatasetReadError, PlayDefinitionError
from runtime.model import json_value
from runtime.model.kept_value import KeptValue
from runtime.model.stored_row import StoredRow, Stretch
from runtime.policy.limits import Limits

DATASET_KIND = "dataset"
Row = dict[str, Any]
_NAMES = frozenset({"dataset", "namespace", "columns", "rows", "completed", "failed"})


class ReadsRows(Protocol):
    """What reads for the code that runs here: a body (journaled), or a row or step (plainly)."""

    limits: Limits

    async def read_rows(self, stretch: Stretch, *, name: str, keep: bool) -> Sequence[StoredRow]:
        """`name` of the dataset for messages; `keep`: few rows, a journal may hold them as they are."""
        ...


class Described(Protocol):
    """What of a dataset's spec its handle shows."""

    @property
    def key(self) -> str: ...

    @property
    def namespace(self) -> str: ...

    @property
    def column_names(self) -> tuple[str, ...]: ...


current_reader: ContextVar[ReadsRows | None] = ContextVar("playlane_reader", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetHandle(KeptValue):
    """A settled dataset: which sheet holds its rows, and how they ended.

    `rows` were admitted; `count` of them completed and are what `peek`, `at`, `materialize` and `async for` give, in
    input order. Rows that a newer run has written since are left out.
    """

    dataset: str
    namespace: str
    columns: tuple[str, ...]
    rows: int
    completed: int
    failed: int
    counts: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, spec: Described, outcome: Mapping[str, Any]) -> "DatasetHandle":
        """From the outcome that settled the dataset."""
        return cls(
            dataset=spec.key,
            namespace=spec.namespace,
            columns=spec.column_names,
            rows=int(outcome.get("rows", 0)),
            completed=int(outcome.get("completed", 0)),
            failed=int(outcome.get("failed", 0)),
            counts={name: count for name, count in outcome.items() if name not in _NAMES},
        )

    @property
    def count(self) -> int:
        """Completed rows, but those that met a newer run's values in the sheet."""
        return self.completed - int(self.counts.get("superseded", 0))

    @property
    def dataset_id(self) -> int | None:
        return self.counts.get("dataset_id")

    async def peek(self, n: int = 25) -> list[Row]:
        """The first `n` rows."""
        return await self._first(_whole(n, "peek"), "peek", keep=True)

    async def at(self, index: int) -> Row:
        """The row at `index`, counted from 0 (negative: from the end); raises IndexError beyond the last."""
        reader = self._reader("at")
        is_last = index < 0
        skip = -1 - index if is_last else index
        rows = await self._read(reader, skip=skip, limit=1, keep=True, from_end=is_last)
        if rows:
            return _row(rows[0])
        raise IndexError(f'dataset "{self.dataset}" has {self.count:,} rows, none at {index}')

    async def materialize(self, limit: int | None = None) -> list[Row]:
        """All rows, or the first `limit`, as a list; refused where that is more than a body should hold."""
        most = self._reader("materialize").limits.materialize_rows
        wanted = self.count if limit is None else _whole(limit, "materialize")
        if wanted > most:
            raise DatasetReadError(
                f'dataset "{self.dataset}": materialize would hold {wanted:,} rows, more than {most:,}: '
                "walk over it (`async for row in handle`), give it to another ctx.dataset, or name a smaller limit"
            )
        return await self._first(wanted, "materialize", keep=False)

    def __aiter__(self) -> AsyncIterator[Row]:
        return _Walk(self)

    async def _first(self, n: int, what: str, *, keep: bool) -> list[Row]:
        reader = self._reader(what)
        found: list[Row] = []
        size, after = 0, -1
        while len(found) < n:
            limit = min(n - len(found), reader.limits.handle_page_rows)
            rows = await self._read(reader, after=after, limit=limit, keep=keep)
            if not rows:
                break
            size, after = size + sum(row.size_bytes for row in rows), rows[-1].position
            if size > reader.limits.read_bytes:
                raise DatasetReadError(
                    f'dataset "{self.dataset}": {what} met more than {reader.limits.read_bytes:,} bytes in its first '
                    f"{len(found) + len(rows):,} rows: walk over it (`async for row in handle`), or ask for fewer"
                )
            found += map(_row, rows)
        return found

    async def _read(
        self,
        reader: ReadsRows,
        *,
        after: int = -1,
        skip: int = 0,
        limit: int,
        keep: bool,
        from_end: bool = False,
    ) -> Sequence[StoredRow]:
        if self.dataset_id is None:
            raise DatasetReadError(
                f'dataset "{self.dataset}": this handle names no stored dataset, it has no rows'
            )
        stretch = Stretch(dataset_id=self.dataset_id, after=after, skip=skip, limit=limit, from_end=from_end)
        return await reader.read_rows(stretch, name=self.dataset, keep=keep)

    def _reader(self, what: str) -> ReadsRows:
        reader = current_reader.get()
        if reader is None:
            raise PlayDefinitionError(
                f'dataset "{self.dataset}": {what} was asked outside a play: read it in a body, a column or a step'
            )
        return reader

    # ---- storing

    def to_json(self) -> dict[str, Any]:
        known = {
            "dataset": self.dataset,
            "namespace": self.namespace,
            "columns": list(self.columns),
            "rows": self.rows,
            "completed": self.completed,
            "failed": self.failed,
        }
        return {**self.counts, **known}

    @classmethod
    def of_json(cls, stored: Mapping[str, Any]) -> "DatasetHandle":
        """The handle that `to_json` described."""
        return cls(
            dataset=str(stored.get("dataset", "")),
            namespace=str(stored.get("namespace", "")),
            columns=tuple(stored.get("columns", ())),
            rows=int(stored.get("rows", 0)),
            completed=int(stored.get("completed", 0)),
            failed=int(stored.get("failed", 0)),
            counts={name: count for name, count in stored.items() if name not in _NAMES},
        )

    def mark(self) -> dict[str, Any]:
        return {"kind": DATASET_KIND}


class _Walk:
    """Page by page; a class, since a generator that is left early would have to be closed by somebody."""

    def __init__(self, handle: DatasetHandle) -> None:
        self._handle = handle
        self._page: list[StoredRow] = []
        self._at = 0
        self._after = -1
        self._is_over = False

    def __aiter__(self) -> "_Walk":
        return self

    async def __anext__(self) -> Row:
        if self._at >= len(self._page):
            await self._turn()
        row = self._page[self._at]
        self._at += 1
        return _row(row)

    async def _turn(self) -> None:
        if not self._is_over:
            handle, reader = self._handle, self._handle._reader("async for")
            limit = reader.limits.handle_page_rows
            self._page = list(await handle._read(reader, after=self._after, limit=limit, keep=False))
            self._at, self._is_over = 0, not self._page
        if self._is_over:
            raise StopAsyncIteration
        self._after = self._page[-1].position


def _row(stored: StoredRow) -> Row:
    from runtime.context.kept_cells import alive_row  # which makes handles, too

    data, meta = stored.data.encode(), stored.cell_meta.encode()
    return alive_row(json_value.loads(data), json_value.loads(meta))


def _whole(n: Any, what: str) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise PlayDefinitionError(f"{what} takes a whole number of rows, not {n!r:.80}")
    return n
