"""`ctx.dataset(...).with_column(...).run(...)`: what an author says of a table, as values."""

import re
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from runtime.context.csv_rows import CsvHandle
from runtime.context.tool_result import ToolList
from runtime.errors import PlayDefinitionError
from runtime.model.kept_value import KeptValue
from runtime.play import Column, Resolver
from runtime.policy.rows_input import RESERVED_PREFIXES, KeySpec

ON_ROW_ERROR = ("isolate",)
DATASET_KIND = "dataset"
_NAMES = frozenset({"dataset", "namespace", "columns"})
NAME_BYTES = 63  # what Postgres keeps of an identifier

_UNSAFE = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSpec:
    """A dataset as its body asked for it; `rows` and resolvers live in this process only."""

    key: str
    namespace: str
    columns: tuple[Column, ...]
    rows: Iterable[Any] = field(repr=False)
    row_key: KeySpec
    on_row_error: str

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def described(self) -> dict[str, Any]:
        """What a replay must ask for again."""
        return {
            "key": self.key,
            "namespace": self.namespace,
            "columns": list(self.column_names),
            "row_key": self.row_key.described(),
            "on_row_error": self.on_row_error,
            "source": _described_source(self.rows),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetHandle(KeptValue):
    """A settled dataset: which sheet holds its rows, and how they ended."""

    dataset: str
    namespace: str
    columns: tuple[str, ...]
    rows: int
    completed: int
    failed: int
    counts: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, spec: DatasetSpec, outcome: Mapping[str, Any]) -> "DatasetHandle":
        """From the outcome that settled the dataset."""
        return cls(
            dataset=spec.key,
            namespace=spec.namespace,
            columns=spec.column_names,
            rows=int(outcome.get("rows", 0)),
            completed=int(outcome.get("completed", 0)),
            failed=int(outcome.get("failed", 0)),
            counts=dict(outcome),
        )

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


class RunsDatasets(Protocol):
    async def run_dataset(self, spec: DatasetSpec) -> DatasetHandle: ...


class DatasetBuilder:
    """Columns run in the order in which they were added; each sees the ones before it."""

    def __init__(self, runner: RunsDatasets, *, play: str, key: str, rows: Any) -> None:
        self._runner = runner
        self._play = play
        self._key = _text_name(key, f'play "{play}": a dataset')
        self._namespace = namespace_of(self._key, play)
        self._rows = _checked_rows(rows, self._where())
        self._columns: list[Column] = []

    def with_column(self, name: str, resolver: Resolver) -> Self:
        """Add a column; `resolver(row, ctx)` returns its value, plainly or awaited."""
        where = f"{self._where()}: a column"
        name = _text_name(name, where)
        if name.startswith(RESERVED_PREFIXES):
            raise PlayDefinitionError(
                f"{where} can't be named \"{name}\": names with that prefix are playlane's"
            )
        if any(column.name == name for column in self._columns):
            raise PlayDefinitionError(
                f'{self._where()}: column "{name}" is added twice; give one another name'
            )
        if not callable(resolver):
            raise PlayDefinitionError(
                f'{self._where()}: column "{name}" needs a resolver (row, ctx) -> value, not '
                f"{type(resolver).__name__}: write `lambda row, ctx: ...`"
            )
        self._columns.append(Column(name, resolver))
        return self

    async def run(
        self,
        *,
        key: "str | list[str] | tuple[str, ...] | Callable[[Mapping[str, Any]], Any] | None" = None,
        on_row_error: str = "isolate",
    ) -> DatasetHandle:
        """Run all columns over all rows; returns when the dataset is settled."""
        if on_row_error not in ON_ROW_ERROR:
            raise PlayDefinitionError(
                f'{self._where()}: on_row_error can be "isolate" (a failed row stays in its row), '
                f"not {on_row_error!r:.80}"
            )
        if not self._columns:
            raise PlayDefinitionError(
                f"{self._where()} has no column: add one with with_column(name, resolver)"
            )
        return await self._runner.run_dataset(
            DatasetSpec(
                key=self._key,
                namespace=self._namespace,
                columns=tuple(self._columns),
                rows=self._rows,
                row_key=_key_spec(key, self._where()),
                on_row_error=on_row_error,
            )
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


def _text_name(name: Any, where: str) -> str:
    if not isinstance(name, str) or not name.strip():
        raise PlayDefinitionError(f"{where} is named by non-empty text, not {name!r:.80}")
    trimmed = name.strip()
    if not trimmed.isprintable() or len(trimmed.encode("utf-8", "replace")) > NAME_BYTES:
        raise PlayDefinitionError(
            f"{where} name {name!r:.80} must be printable and at most {NAME_BYTES} bytes"
        )
    return trimmed


def _checked_rows(rows: Any, where: str) -> Iterable[Any]:
    if isinstance(rows, (list, tuple, ToolList)):
        return tuple(rows)  # what the body does to its list later changes no row
    if isinstance(rows, (str, bytes, Mapping, DatasetHandle)) or not isinstance(rows, Iterable):
        also = " (an async iterable can't be replayed)" if isinstance(rows, AsyncIterable) else ""
        raise PlayDefinitionError(
            f"{where}: rows are what ctx.csv returned or an iterable of dicts, "
            f"not {type(rows).__name__}{also}"
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


def _described_source(rows: Iterable[Any]) -> list[Any]:
    if isinstance(rows, CsvHandle):
        return ["csv", rows.digest]
    return ["rows", len(rows)] if isinstance(rows, tuple) else ["stream"]
