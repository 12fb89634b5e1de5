"""A query's result as an author holds it: its first rows, and the others page by page as they are walked over."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from runtime.context.tool_result import ToolResult
from runtime.errors import DatasetReadError, PlayDefinitionError
from runtime.model.query_page import QueryPage
from runtime.policy.limits import Limits

Row = Any


class AsksPages(Protocol):
    """Calls the tool again for one page of its result."""

    async def __call__(self, page: QueryPage) -> ToolResult: ...


class QueryRows:
    """Rows of a result that its tool keeps: `{"rows": […], "dataset": {"total_rows": n, "returned_limit": m}}`.

    A result that says no more than its rows is complete; nothing is asked for it.
    """

    def __init__(self, result: ToolResult, ask: AsksPages, *, name: str, limits: Limits) -> None:
        self.result = result
        self._ask = ask
        self._name = name
        self._limits = limits
        data = result.data
        rows = data.get("rows") if isinstance(data, Mapping) else data
        if not isinstance(rows, list):
            raise DatasetReadError(
                f"{name} gave no rows: its result has no list `rows`; read it by tools.execute"
            )
        said = data.get("dataset") if isinstance(data, Mapping) else None
        self._first: list[Row] = rows
        self._total = _whole((said or {}).get("total_rows") if isinstance(said, Mapping) else None, len(rows))
        limit = said.get("returned_limit") if isinstance(said, Mapping) else None
        self._most = min(self._total, _whole(limit, self._total) or self._total)

    @property
    def count(self) -> int:
        """How many rows can be read."""
        return self._most

    async def peek(self, n: int = 25) -> list[Row]:
        """The first `n` rows."""
        return await self._head(n, "peek")

    async def at(self, index: int) -> Row:
        """The row at `index`, counted from 0 (negative: from the end); raises IndexError beyond the last."""
        place = self.count + index if index < 0 else index
        if 0 <= place < self.count:
            rows = await self._page(place, 1)
            if rows:
                return rows[0]
        raise IndexError(f"{self._name} has {self.count:,} rows, none at {index}")

    async def materialize(self, limit: int | None = None) -> list[Row]:
        """All rows, or the first `limit`, as a list; refused where that is more than a body should hold."""
        return await self._head(self.count if limit is None else limit, "materialize")

    def __aiter__(self) -> AsyncIterator[Row]:
        return _Walk(self)

    async def _head(self, n: int, what: str) -> list[Row]:
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise PlayDefinitionError(f"{what} takes a whole number of rows, not {n!r:.80}")
        wanted = min(n, self.count)
        if wanted > self._limits.materialize_rows:
            raise DatasetReadError(
                f"{self._name}: {what} would hold {wanted:,} rows, more than {self._limits.materialize_rows:,}: "
                "walk over it (`async for row in rows`), or ask for fewer"
            )
        found: list[Row] = []
        while len(found) < wanted:
            rows = await self._page(len(found), wanted - len(found))
            if not rows:
                break
            found += rows
        return found

    async def _page(self, offset: int, wanted: int) -> Sequence[Row]:
        """Rows from `offset` on; what came with the result is not asked for again."""
        if offset < len(self._first):
            return self._first[offset : min(offset + wanted, self.count)]
        size = min(wanted, self._limits.query_page_rows, self.count - offset)
        page = QueryPage(limit=self._most, offset=offset, page_size=size, total_rows=self._total)
        data = (await self._ask(page)).data
        rows = data.get("rows") if isinstance(data, Mapping) else data
        if not isinstance(rows, list):
            raise DatasetReadError(
                f"{self._name} gave no rows for those from {offset:,} on; it is not asked again"
            )
        return rows[:size]


class _Walk:
    """Page by page; a class, since a generator that is left early would have to be closed by somebody."""

    def __init__(self, rows: QueryRows) -> None:
        self._rows = rows
        self._page: Sequence[Row] = ()
        self._at = 0
        self._offset = 0

    def __aiter__(self) -> "_Walk":
        return self

    async def __anext__(self) -> Row:
        if self._at >= len(self._page):
            if self._offset >= self._rows.count:
                raise StopAsyncIteration
            self._page = await self._rows._page(self._offset, self._rows.count)
            self._at = 0
            if not self._page:
                raise StopAsyncIteration
        row = self._page[self._at]
        self._at, self._offset = self._at + 1, self._offset + 1
        return row


def _whole(value: Any, otherwise: int) -> int:
    is_whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_whole else otherwise
