"""Event waits of tools, in the execution API."""

from typing import Any, Protocol

from runtime.model.waiting_tool import EventBoundary


class EventTools(Protocol):
    """Raises ToolCallError; ToolOutcomeUnknownError if nobody knows whether the wait is armed."""

    async def prepare(self, tool: str, org_id: str, input: Any, context: dict[str, Any]) -> EventBoundary:
        """What the wait would be; has no effect."""
        ...

    async def arm(
        self,
        tool: str,
        org_id: str,
        input: Any,
        context: dict[str, Any],
        stated: dict[str, Any],
        *,
        repeats: bool,
    ) -> EventBoundary:
        """Ask whoever is to be asked; tried again after a doubtful failure only if it `repeats` harmlessly."""
        ...

    async def time_out(
        self, tool: str, org_id: str, input: Any, context: dict[str, Any], stated: dict[str, Any]
    ) -> None:
        """Nobody answered in time."""
        ...
