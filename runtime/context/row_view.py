"""The row as a resolver sees it: input columns and earlier columns, read only."""

from collections.abc import Iterator, Mapping
from typing import Any


class RowView(Mapping[str, Any]):
    """A read-only mapping; a computed column hides an input column of the same name."""

    __slots__ = ("_computed", "_input")

    def __init__(self, input: Mapping[str, Any], computed: Mapping[str, Any]) -> None:
        self._input = input
        self._computed = computed

    def __getitem__(self, name: str) -> Any:
        if name in self._computed:
            return self._computed[name]
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
