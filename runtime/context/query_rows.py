"""A query's result as an author holds it: its first rows, and the others page by page as they are walked over."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from runtime.context.dataset_handle import current_reader
from runtime.context.tool_result import ToolResult
from runtime.errors import DatasetReadError, PlayDefinitionError
from runtime.model import json_value
from runtime.model.kept_value import KeptValue
from runtime.model.query_page import Query, QueryPage
from runtime.policy.limits import DEFAULT_LIMITS, Limits

QUERY_KIND = "query_rows"
Row = Any


class AsksPages(Protocol):
    """Calls the tool again for one page of its result."""

    async def __call__(self, query: Query, page: QueryPage) -> ToolResult: ...


class QueryRows(KeptValue):
    """Rows of a result that its tool keeps: `{"rows": […], "dataset": {"total_rows": n, "returned_limit": m}}`.

    A result that says no more than its rows is complete; nothing is asked for it. In a cell or a result it is a
    reference: its first rows, and what asks for the others.
    """

    __slots__ = ("_ask", "_first", "_limits", "query")

    def __init__(
        self, query: Query, first: list[Row], *, ask: AsksPages | None = None, limits: Limits | None = None
    ) -> None:
        self.query = query
        self._first = first
        self._ask: AsksPages = ask or ask_here
        self._limits = limits

    @property
    def count(self) -> int:
        """How many rows can be read."""
        return self.query.limit

    async def peek(self, n: int = 25) -> list[Row]:
        """The first `n` rows."""
        return await self._head(n, "peek")

    async def at(self, index: int) -> Row:
        """The row at `index`, counted from 0 (negative: from the end); raises IndexError beyond the last."""
        place = self.count + index if index < 0 else index
        if 0 <= place < self.count:
            rows = await self.page(place, 1)
            if rows:
                return rows[0]
        raise IndexError(f"{self.query.name} has {self.count:,} rows, none at {index}")

    async def materialize(self, limit: int | None = None) -> list[Row]:
        """All rows, or the first `limit`, as a list; refused where that is more than a body should hold."""
        return await self._head(self.count if limit is None else limit, "materialize")

    def __aiter__(self) -> AsyncIterator[Row]:
        return _Walk(self)

    def __repr__(self) -> str:
        return f"QueryRows({self.query.name}, {self.count:,} rows)"

    def asked_by(self, ask: AsksPages, limits: Limits) -> "QueryRows":
        """The same rows, for who stands where no author does."""
        return QueryRows(self.query, self._first, ask=ask, limits=limits)

    async def page(self, offset: int, wanted: int) -> Sequence[Row]:
        """Up to `wanted` rows from `offset` on, empty at the end; what came with the result is not asked for again."""
        if offset < len(self._first):
            return self._first[offset : min(offset + wanted, self.count)]
        size = min(wanted, self._bounds.query_page_rows, self.count - offset)
        page = QueryPage(limit=self.count, offset=offset, page_size=size, total_rows=self.query.total_rows)
        rows = _rows_of((await self._ask(self.query, page)).data)
        if rows is None:
            raise DatasetReadError(
                f"{self.query.name} gave no rows for those from {offset:,} on; it is not asked again"
            )
        return rows[:size]

    async def _head(self, n: int, what: str) -> list[Row]:
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise PlayDefinitionError(f"{what} takes a whole number of rows, not {n!r:.80}")
        wanted, most = min(n, self.count), self._bounds.materialize_rows
        if wanted > most:
            raise DatasetReadError(
                f"{self.query.name}: {what} would hold {wanted:,} rows, more than {most:,}: walk over it "
                "(`async for row in rows`), give it to ctx.dataset, or ask for fewer"
            )
        found: list[Row] = []
        while len(found) < wanted:
            rows = await self.page(len(found), wanted - len(found))
            if not rows:
                break
            found += rows
        return found

    @property
    def _bounds(self) -> Limits:
        reader = current_reader.get()
        return self._limits or (DEFAULT_LIMITS if reader is None else reader.limits)

    # ---- storing

    def to_json(self) -> dict[str, Any]:
        is_paged = self.query.total_rows > len(self._first)
        rows = self.preview() if is_paged else self._first[: self.count]
        return {**self.query.described(), "count": self.count, "rows": [*rows]}

    def preview(self) -> list[Row]:
        """Its first rows, as many as are shown or kept of a result that has more."""
        shown: list[Row] = []
        size = 0
        for row in self._first[: min(self.count, self._bounds.preview_rows)]:
            size += len(json_value.dumps(row))
            if size > self._bounds.preview_bytes:
                break
            shown.append(row)
        return shown

    def mark(self) -> dict[str, Any]:
        return {"kind": QUERY_KIND, **self.query.to_json()}


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
            self._page = await self._rows.page(self._offset, self._rows.count)
            self._at = 0
            if not self._page:
                raise StopAsyncIteration
        row = self._page[self._at]
        self._at, self._offset = self._at + 1, self._offset + 1
        return row


async def ask_here(query: Query, page: QueryPage) -> ToolResult:
    """The page, asked by the body, row or child play that runs here."""
    from runtime.context.body_reader import BodyReader
    from runtime.context.scope import current_scope  # which know kept values, too
    from runtime.context.tool_asking import ask_tool, page_id, page_options

    reader = current_reader.get()
    if current_scope.get() is None and not isinstance(reader, BodyReader):
        raise PlayDefinitionError(
            f"{query.name}: its rows were asked for outside a play: read them in a body or a column"
        )
    body = reader.body if isinstance(reader, BodyReader) else None
    return await ask_tool(body, page_id(query, page), query.tool, query.input, page_options(query, page))


def query_rows(
    result: ToolResult, *, id: str, tool: str, input: Any, timeout_ms: float | None, limits: Limits
) -> QueryRows:
    """The rows of a query's answer; raises DatasetReadError where it has none."""
    data = result.data
    rows = _rows_of(data)
    said = data.get("dataset") if isinstance(data, Mapping) else None
    known = said if isinstance(said, Mapping) else {}
    total = _whole(known.get("total_rows"), len(rows or ()))
    query = Query(
        id=id,
        tool=tool,
        input=input,
        total_rows=total,
        limit=min(total, _whole(known.get("returned_limit"), total) or total),
        call=result.call,
        timeout_ms=timeout_ms,
    )
    if rows is None:
        raise DatasetReadError(
            f"{query.name} gave no rows: its result has no list `rows`; read it by tools.execute"
        )
    return QueryRows(query, rows, limits=limits)


def alive_query(mark: Mapping[str, Any], value: Any) -> QueryRows:
    """A stored query's result alive again, from its plain value and its mark."""
    rows = _rows_of(value) if isinstance(value, Mapping) else None
    return QueryRows(Query.of(mark), rows or [])


def _rows_of(data: Any) -> list[Row] | None:
    """The list of rows that an answer is, or has under `rows`; None if it has none."""
    rows = data.get("rows") if isinstance(data, Mapping) else data
    return rows if isinstance(rows, list) else None


def _whole(value: Any, otherwise: int) -> int:
    is_whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_whole else otherwise
