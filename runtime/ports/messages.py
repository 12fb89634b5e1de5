"""Messages between processes: hints, never the truth."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from runtime.model.call import Answer, Call
from runtime.model.page import PageOut


class Inbox(Protocol):
    async def push(self, answers: Mapping[str, Sequence[Answer]]) -> None:
        """Answers by session, in bulk; large outputs travel as STORED."""
        ...

    async def pop(self, session_id: str, timeout_s: float) -> list[Answer]: ...


class DispatchEpoch(Protocol):
    """A random Redis value that FLUSHALL removes: tells published messages from lost ones."""

    async def epoch(self) -> str: ...

    async def queue_empty(self, queue: str) -> bool: ...


class Publisher(Protocol):
    """Messages out. Lost messages are repaired by sweeps and polls, so failures are logged, not raised."""

    async def resume(self, run_ids: Sequence[str]) -> None: ...

    async def pages_out(self, pages: Sequence[PageOut]) -> None: ...

    async def post(self, lane: str, calls: Sequence[Call]) -> None: ...
