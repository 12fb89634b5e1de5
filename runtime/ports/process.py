"""The worker process itself: its loop, its clock, named points for tests."""

from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class LoopBridge(Protocol):
    """The process's asyncio loop seen from a plain thread."""

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T: ...

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]": ...


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """Time of the process's loop, replaceable in tests."""

    def now_ms(self) -> float: ...

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer: ...

    async def sleep(self, delay_ms: float) -> None: ...


class Fault(Protocol):
    """A named point between two steps where a test can kill, raise or wait; does nothing in production."""

    def __call__(self, point: str) -> Awaitable[None]: ...
