"""Where a ctx operation is asked from: the body (None), or a row of a dataset."""

from contextvars import ContextVar
from typing import Any, Protocol

from runtime.model.call_options import NO_OPTIONS, CallOptions


class Scope(Protocol):
    """What `ctx` can do inside a row; the row engine supplies one per row."""

    async def tool(self, *, id: str, tool: str, input: Any, options: CallOptions = NO_OPTIONS) -> Any:
        """The tool's result for this row, from its receipt if there is one."""
        ...

    def log(self, text: str, fields: dict[str, Any]) -> None:
        """Keep a log line of this row, once however often the row runs."""
        ...


current_scope: ContextVar[Scope | None] = ContextVar("playlane_scope", default=None)
