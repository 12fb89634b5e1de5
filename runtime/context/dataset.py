"""`ctx.dataset(...).with_column(...).run(...)`: what an author says of a table, as values."""

import re
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol, Self

from runtime.context import columns as declared
from runtime.context.columns import NAME_BYTES, text_name
from runtime.context.csv_rows import CsvHandle
from runtime.context.dataset_handle import DatasetHandle
from runtime.context.query_rows import QueryRows
from runtime.context.tool_result import ToolList
from runtime.errors import PlayDefinitionError
from runtime.model.dataset import FAIL_FAST, DatasetMode
from runtime.play import Column, Predicate, StaleAfter
from runtime.policy.rows_input import KeySpec

ON_ROW_ERROR = ("isolate", FAIL_FAST)

RowSource = Iterable[Any] | DatasetHandle | QueryRows

_UNSAFE = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSpec:
    """A dataset as its body asked for it; `rows` and resolvers live in this process only."""

    key: str
    namespace: str
    columns: tuple[Column, ...]
    rows: RowSource = field(repr=False)
    row_key: KeySpec
    on_row_error: str
    mode: DatasetMode = DatasetMode.DEFAULT

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def described(self) -> dict[str, Any]:
        """What a replay must ask for again."""
        described = {
            "key": self.key,
            "namespace": self.namespace,
            "columns": list(self.column_names),
            "row_key": self.row_key.described(),
            "on_row_error": self.on_row_error,
            "source": _described_source(self.rows),
        }
        return described if self.mode is DatasetMode.DEFAULT else {**described, "mode": self.mode.value}


class RunsDatasets(Protocol):
    async def run_dataset(self, spec: DatasetSpec) -> DatasetHandle: ...


class DatasetBuilder:
    """Columns run in the order in which they were added; each sees the ones before it."""

    not_json = "a dataset that was never run: write await ctx.dataset(...).with_column(...).run(key=...)"

    def __init__(self, runner: RunsDatasets, *, play: str, key: str, rows: Any) -> None:
        self._runner = runner
        self._play = play
        self._key = text_name(key, f'play "{play}": a dataset')
        self._namespace = namespace_of(self._key, play)
        self._rows = _checked_rows(rows, self._where())
        self._columns: dict[str, Column] = {}

    def with_column(
        self,
        name: str,
        resolver: Any,
        *,
        run_if: Predicate | None = None,
        recompute: bool = False,
        recompute_on_error: bool = False,
        stale_after_seconds: StaleAfter | None = None,
    ) -> Self:
        """Add a column: `resolver(row, ctx)` gives its value, plainly or awaited; a constant is its value.

        `run_if(row)` says for which rows it runs. `stale_after_seconds` lets the value that the sheet has do while it
        is younger; `recompute` runs the column all the same, `recompute_on_error` where it failed.
        """
        return self._add(
            declared.column(
                self._where(),
                name,
                resolver,
                run_if=run_if,
                recompute=recompute,
                recompute_on_error=recompute_on_error,
                stale_after_seconds=stale_after_seconds,
            )
        )

    def with_columns(self, program: Any) -> Self:
        """Add the steps of `steps()`, or a dict of names to resolvers, as columns."""
        for column in declared.columns(self._where(), program):
            self._add(column)
        return self

    def _add(self, column: Column) -> Self:
        if column.name in self._columns:
            raise PlayDefinitionError(
                f'{self._where()}: column "{column.name}" is added twice; give one another name'
            )
        self._columns[column.name] = column
        return self

    def step(self, *_: Any, **__: Any) -> NoReturn:
        """The old name of `with_column`."""
        raise PlayDefinitionError(
            f"{self._where()}: a dataset's .step() is now .with_column(): write "
            '.with_column("field", resolver)'
        )

    async def run(
        self,
        *,
        key: "str | list[str] | tuple[str, ...] | Callable[..., Any] | None" = None,
        mode: str = DatasetMode.DEFAULT,
        on_row_error: str = "isolate",
    ) -> DatasetHandle:
        """Run all columns over all rows; returns when the dataset is settled.

        `mode="net_new"` takes only rows whose key no run has brought to an end before.
        """
        if on_row_error not in ON_ROW_ERROR:
            raise PlayDefinitionError(
                f'{self._where()}: on_row_error is "isolate" (a failed row stays in its row) or "{FAIL_FAST}" (it ends '
                f"the dataset), not {on_row_error!r:.80}"
            )
        if mode not in tuple(DatasetMode):
            raise PlayDefinitionError(
                f'{self._where()}: mode is "default" (every row) or "net_new" (only rows not seen before), '
                f"not {mode!r:.80}"
            )
        if not self._columns:
            raise PlayDefinitionError(
                f"{self._where()} has no column: add one with with_column(name, resolver)"
            )
        return await self._runner.run_dataset(
            DatasetSpec(
                key=self._key,
                namespace=self._namespace,
                columns=tuple(self._columns.values()),
                rows=self._rows,
                row_key=_key_spec(key, self._where()),
                on_row_error=on_row_error,
                mode=DatasetMode(mode),
            )
        )

    def __await__(self) -> NoReturn:
        raise PlayDefinitionError(
            f"{self._where()} was awaited, but never run: write `await ctx.dataset(...).with_column(...).run(key=...)`"
        )

    def _where(self) -> str:
        return f'play "{self._play}", dataset "{self._key}"'


def namespace_of(key: str, play: str) -> str:
    """The table namespace that a dataset key stands for: lower case, words joined by `_`."""
    namespace = _UNSAFE.sub("_", key.lower()).strip("_")
    if not namespace or len(namespace) > NAME_BYTES:
        raise PlayDefinitionError(
            f'play "{play}": dataset key {key!r:.80} must hold 1 to {NAME_BYTES} letters or digits (a-z, 0-9)'
        )
    return namespace


def _checked_rows(rows: Any, where: str) -> RowSource:
    if isinstance(rows, (list, tuple, ToolList)):
        return tuple(rows)  # what the body does to its list later changes no row
    if isinstance(rows, (DatasetHandle, QueryRows)):
        return rows
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        also = " (an async iterable can't be replayed)" if isinstance(rows, AsyncIterable) else ""
        raise PlayDefinitionError(
            f"{where}: rows are what ctx.csv or ctx.tools.query returned, another dataset's handle or an iterable of "
            f"dicts, not {type(rows).__name__}{also}"
        )
    return rows


def _key_spec(key: Any, where: str) -> KeySpec:
    if key is None:
        return KeySpec()
    if callable(key):
        return KeySpec(function=key)
    columns = (key,) if isinstance(key, str) else tuple(key) if isinstance(key, (list, tuple)) else ()
    if not columns or not all(isinstance(name, str) and name for name in columns):
        raise PlayDefinitionError(
            f"{where}: key is a column name, a list of them or a function of the row, not {key!r:.80}"
        )
    return KeySpec(columns=columns)


def _described_source(rows: RowSource) -> list[Any]:
    if isinstance(rows, CsvHandle):
        read_as = rows.read_as()
        return ["csv", rows.digest, read_as] if read_as else ["csv", rows.digest]
    if isinstance(rows, DatasetHandle):
        return ["dataset", rows.namespace, rows.dataset_id]
    if isinstance(rows, QueryRows):
        return ["query", rows.query.tool, rows.query.call, rows.count]
    return ["rows", len(rows)] if isinstance(rows, tuple) else ["stream"]
