"""The row as a resolver sees it: input columns and earlier columns, read only."""

from collections.abc import Iterator, Mapping
from typing import Any

from runtime.context.kept_cells import alive
from runtime.model.kept_value import Marks


class RowView(Mapping[str, Any]):
    """A read-only mapping; a computed column hides an input column of the same name.

    A tool result or dataset that a column kept comes back alive: `kept` has its marks by column.
    """

    __slots__ = ("_alive", "_computed", "_input", "_kept")

    def __init__(
        self, input: Mapping[str, Any], computed: Mapping[str, Any], kept: Mapping[str, Marks] | None = None
    ) -> None:
        self._input = input
        self._computed = computed
        self._kept = {} if kept is None else kept
        self._alive: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name in self._computed:
            return self._kept_value(name) if name in self._kept else self._computed[name]
        try:
            return self._input[name]
        except KeyError:
            known = ", ".join(sorted({*self._input, *self._computed}))
            raise KeyError(f"no column {name!r}; the row has {known}") from None

    def __iter__(self) -> Iterator[str]:
        yield from self._input
        yield from (name for name in self._computed if name not in self._input)

    def __len__(self) -> int:
        return len(self._input) + sum(name not in self._input for name in self._computed)

    def __repr__(self) -> str:
        return f"RowView({', '.join(self)})"

    def _kept_value(self, name: str) -> Any:
        if name not in self._alive:
            self._alive[name] = alive(self._computed[name], self._kept[name])
        return self._alive[name]
