"""The execution API."""

from typing import Protocol

from runtime.model.physical_request import PhysicalReply, PhysicalRequest
from runtime.model.tool import ToolMetadata


class Requests(Protocol):
    """One physical send through the execution API; raises ExecuteFailedError with the failure's class."""

    async def send(self, request: PhysicalRequest) -> PhysicalReply: ...

    async def attests_fence(self) -> bool:
        """Whether a fenced request may be repeated under its key; raises ServiceUnreachableError."""
        ...


class ToolCatalog(Protocol):
    async def metadata(self, tool: str, org_id: str) -> ToolMetadata: ...

    async def auth_scope(self, tool: str, org_id: str, *, refresh: bool = False) -> str | None:
        """Digest of the credentials that the tool is called with; None where the API knows no scope for it."""
        ...


class TokenSource(Protocol):
    """Execution API tokens per org; never from a run or a message."""

    async def token(self, org_id: str) -> str: ...
