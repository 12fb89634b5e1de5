"""Rows in order, each begun once the one before it ended or suspended; rows that never suspend share one task."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class RowDrivers(Generic[T]):
    """A driver is a task that runs row after row until one of them suspends; the next driver then goes on.

    So a row that suspends has a task of its own, as `asyncio.timeout` and cancellation need it, and a thousand rows
    that don't cost one. A driver ends after `turn_s` too, so that the loop turns between long rows. Where rows suspend
    each driver begins two, up to `ahead` in line: what a slice asks for comes together, not one row a loop turn.
    """

    def __init__(
        self, rows: Iterable[T], run: Callable[[T], Awaitable[None]], *, turn_s: float, ahead: int = 1
    ) -> None:
        self._rows = iter(rows)
        self._run = run
        self._turn_s = turn_s
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ahead = ahead
        self._turn = 0
        self._in_line = 0  # drivers that have not begun
        self._in_rows = 0  # drivers in the middle of a row
        self._all_begun = False
        self.done: asyncio.Future[None] = self._loop.create_future()
        self._spawn()

    async def cancel(self, wait_s: float) -> None:
        """Cancel rows that still run and wait for them a moment; an author may swallow one cancellation."""
        self._all_begun = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=wait_s)
        if self.done.done() and not self.done.cancelled():
            self.done.exception()  # seen: a fatal error of one row ended the others
        self.done.cancel()

    def _spawn(self) -> None:
        self._in_line += 1
        task = self._loop.create_task(self._drive())
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def _drive(self) -> None:
        self._in_line -= 1
        if self._all_begun:
            return
        self._turn += 1
        turn, ends = self._turn, self._loop.time() + self._turn_s
        for _ in range(2 if self._in_rows else 1):  # each begins as soon as a row of ours suspends
            if self._in_line < self._ahead:
                self._spawn()
        self._in_rows += 1
        try:
            for row in self._rows:
                await self._run(row)
                if self._turn != turn or self._loop.time() > ends:
                    return
            self._all_begun = True
        finally:
            self._in_rows -= 1

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if self.done.done():
            return
        if error is not None:
            self.done.set_exception(error)
        elif task.cancelled() and not self._all_begun:
            self.done.cancel()
        elif not self._tasks:
            self.done.set_result(None)
