"""Which rows of a query's result one request asks for."""

from dataclasses import dataclass
from typing import Any


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
