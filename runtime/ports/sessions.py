"""Lives of worker processes."""

from collections.abc import Sequence
from typing import Protocol


class SessionStore(Protocol):
    """Lives of worker processes in Postgres. A session is dead when `end_expired` ended it, not before."""

    async def open(self, session_id: str, *, role: str, hostname: str, pid: int, ttl_s: float) -> None: ...

    async def renew(self, session_id: str, ttl_s: float) -> bool:
        """False: the session was ended; whatever it held may belong to others."""
        ...

    async def close(self, session_id: str) -> None:
        """End it now (clean shutdown): its claims are free at once."""
        ...

    async def end_expired(self) -> list[str]:
        """End sessions whose time is up, judged only after one TTL of database uptime."""
        ...

    async def live(self, session_ids: Sequence[str]) -> set[str]: ...
