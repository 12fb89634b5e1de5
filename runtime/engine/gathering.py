"""Asks of one turn of the loop go together: one query for what many ask at once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

A = TypeVar("A")
R = TypeVar("R")


class Gathered(Generic[A, R]):
    """`ask` waits for the answer of the one call that serves everything asked in the same turn, in chunks."""

    def __init__(self, work: Callable[[Sequence[A]], Awaitable[Sequence[R]]], *, chunk: int) -> None:
        self._work = work
        self._chunk = chunk
        self._asked: list[tuple[A, asyncio.Future[R]]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, one: A) -> R:
        """The answer to `one`; raises what the shared call raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        if not self._asked:
            loop.call_soon(self._send)
        self._asked.append((one, future))
        return await future

    def _send(self) -> None:
        asked, self._asked = self._asked, []
        for start in range(0, len(asked), self._chunk):
            task = asyncio.get_running_loop().create_task(self._answer(asked[start : start + self._chunk]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, asked: list[tuple[A, "asyncio.Future[R]"]]) -> None:
        try:
            answers = await self._work([one for one, _ in asked])
        except BaseException as error:
            for _, future in asked:
                if not future.done():
                    future.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for (_, future), answer in zip(asked, answers, strict=True):
            if not future.done():
                future.set_result(answer)
