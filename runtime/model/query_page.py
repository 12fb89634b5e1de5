"""A query of many rows, and which of them one request asks for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What asks for a query's pages again, in any place and run of its org.

    `total_rows` are there, `limit` of them may be read. `call`: the receipt key of the query itself.
    """

    id: str
    tool: str
    input: Any = field(repr=False)
    total_rows: int
    limit: int
    call: str = ""
    timeout_ms: float | None = None

    @property
    def name(self) -> str:
        """How messages name it."""
        return f'tools.query(id="{self.id}", tool="{self.tool}")'

    def described(self) -> dict[str, str]:
        """What is shown of it beside its rows."""
        return {"query": self.id, "tool": self.tool}

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        known = {
            "id": self.id,
            "tool": self.tool,
            "input": self.input,
            "total_rows": self.total_rows,
            "limit": self.limit,
            "call": self.call,
        }
        return known if self.timeout_ms is None else {**known, "timeout_ms": self.timeout_ms}

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "Query":
        """The query that `to_json` described."""
        return cls(
            id=str(stored.get("id", "")),
            tool=str(stored.get("tool", "")),
            input=stored.get("input"),
            total_rows=int(stored.get("total_rows", 0)),
            limit=int(stored.get("limit", 0)),
            call=str(stored.get("call", "")),
            timeout_ms=stored.get("timeout_ms"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPage:
    """Rows [offset, offset + page_size) of a result of `total_rows`, of which `limit` may be read."""

    limit: int
    offset: int
    page_size: int
    total_rows: int

    def to_json(self) -> dict[str, Any]:
        """As the execution API names it."""
        return {
            "limit": self.limit,
            "offset": self.offset,
            "page_size": self.page_size,
            "total_rows": self.total_rows,
        }

    @classmethod
    def of(cls, stored: dict[str, Any] | None) -> "QueryPage | None":
        return None if stored is None else cls(**stored)
