"""What a process waits for: keys, and who wants an answer to each."""

import asyncio
from dataclasses import dataclass, field

from runtime.model.call import Answer, Call


@dataclass(slots=True, eq=False)
class Waiting:
    """Somebody here who wants an answer to an entry's key."""

    call: Call
    asked_ms: float
    receipt_wait_ms: float | None
    answered: "asyncio.Future[Answer]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def is_open(self) -> bool:
        return not self.answered.done()


@dataclass(slots=True, eq=False)
class Entry:
    """One key that this process waits for."""

    key: str
    lane: str
    waiters: list[Waiting] = field(default_factory=list)
    posts: int = 0
    posted_ms: float = 0.0
    posted_run: str | None = None  # for which the poster has it
    polls: int = 0
    poll_at_ms: float = 0.0
    leased_ms: float = 0.0  # when somebody was last seen to work on it

    @property
    def waiting(self) -> list[Waiting]:
        return [waiter for waiter in self.waiters if waiter.is_open]

    def fail(self, error: Exception) -> None:
        """Tell everybody who waits."""
        for waiter in self.waiting:
            waiter.answered.set_exception(error)

    @property
    def lookup_keys(self) -> tuple[str, ...]:
        return self.waiters[0].call.lookup_keys if self.waiters else ()
