"""A fetch as it is asked for, in a body, a row or a child play; and `ctx.customer_db`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from runtime.context.asks import Ask
from runtime.context.fetching import FetchResponse
from runtime.errors import PlayDefinitionError, ToolRejectedError
from runtime.model.fetch import FetchRequest
from runtime.model.operation import OpKind

CUSTOMER_DB_TOOL = "query_customer_db"
_MOST_ROWS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAsk(Ask):
    """One HTTP request whose answer is kept."""

    kind: ClassVar[OpKind] = OpKind.FETCH
    call: ClassVar[str] = "ctx.fetch"

    request: FetchRequest = field(repr=False)

    def described(self) -> dict[str, Any]:
        return {"id": self.id, **self.request.described()}

    def met(self, kept: Any) -> Any:
        return FetchResponse(kept)


class PrivateTools(Protocol):
    """`ctx.tools`, for a call whose result is its own run's alone."""

    async def execute_private(self, *, id: str, tool: str, input: Any, timeout_ms: float | None) -> Any: ...


class CustomerDb:
    """`ctx.customer_db`: the organisation's own database, by the tool that queries it."""

    def __init__(self, tools: PrivateTools) -> None:
        self._tools = tools

    async def query(
        self,
        sql: str,
        params: Sequence[Any] | Mapping[str, Any] = (),
        *,
        max_rows: int | None = None,
        timeout_ms: float | None = None,
        id: str = "customer_db",
    ) -> list[dict[str, Any]]:
        """The rows of one statement. Values go in by `params`, never by text; asked anew in every run."""
        if not isinstance(sql, str) or not sql.strip():
            raise PlayDefinitionError(
                f"ctx.customer_db.query: sql is the text of one statement, not {type(sql).__name__}"
            )
        if isinstance(params, (str, bytes)) or not isinstance(params, (Sequence, Mapping)):
            raise PlayDefinitionError(
                "ctx.customer_db.query: params is a list of values for `?`, or a mapping for `:name`, not "
                f"{type(params).__name__}"
            )
        if max_rows is not None and (
            isinstance(max_rows, bool) or not isinstance(max_rows, int) or not 1 <= max_rows <= _MOST_ROWS
        ):
            raise PlayDefinitionError(
                f"ctx.customer_db.query: max_rows is a whole number from 1 to {_MOST_ROWS:,}, not {max_rows!r:.40}"
            )
        asked: dict[str, Any] = {"sql": sql.strip()}
        if params:
            asked["params"] = dict(params) if isinstance(params, Mapping) else list(params)
        if max_rows is not None:
            asked["max_rows"] = max_rows
        result = await self._tools.execute_private(
            id=id, tool=CUSTOMER_DB_TOOL, input=asked, timeout_ms=timeout_ms
        )
        return _rows(result.data)


def _rows(data: Any) -> list[dict[str, Any]]:
    rows = data.get("rows", []) if isinstance(data, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ToolRejectedError(
            f"{CUSTOMER_DB_TOOL} answered something that is no list of rows: mend the tool; not tried again",
            tool=CUSTOMER_DB_TOOL,
            code="bad_customer_db_result",
        )
    return [dict(row) for row in rows]
