"""What many ask of one script within one turn of the loop goes in one message."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
A = TypeVar("A")
R = TypeVar("R")


class Gathered(Generic[K, A, R]):
    """What is asked about one key goes together, `most` at a time; `run` answers a list, aligned.

    An asker that is cancelled leaves its ask behind, answered to nobody.
    """

    def __init__(self, run: Callable[[K, Sequence[A]], Awaitable[Sequence[R]]], most: int) -> None:
        self._run = run
        self._most = most
        self._pending: dict[K, list[tuple[A, asyncio.Future[R]]]] = {}
        self._tasks: set[asyncio.Task[Sequence[R]]] = set()

    def ask(self, key: K, what: A) -> "asyncio.Future[R]":
        """Done when the script has answered; raises what the script raised."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[R] = loop.create_future()
        answer.add_done_callback(_seen)
        pending = self._pending.setdefault(key, [])
        pending.append((what, answer))
        if len(pending) == 1:
            loop.call_soon(self._send, key)
        elif len(pending) >= self._most:
            self._send(key)
        return answer

    async def idle(self) -> None:
        """Returns when everything asked so far is answered."""
        while self._pending or self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await asyncio.sleep(0)

    def _send(self, key: K) -> None:
        pending = self._pending.pop(key, [])
        if pending:
            task = asyncio.get_running_loop().create_task(self._run_all(key, [what for what, _ in pending]))
            self._tasks.add(task)
            task.add_done_callback(lambda done: self._answer(done, [answer for _, answer in pending]))

    async def _run_all(self, key: K, asked: list[A]) -> Sequence[R]:
        return await self._run(key, asked)

    def _answer(self, done: "asyncio.Task[Sequence[R]]", waiting: "list[asyncio.Future[R]]") -> None:
        self._tasks.discard(done)
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        values = done.result() if error is None else ()
        for position, answer in enumerate(waiting):
            if answer.done():
                continue
            if error is None:
                answer.set_result(values[position])
            elif isinstance(error, asyncio.CancelledError):
                answer.cancel()
            else:
                answer.set_exception(error)


def _seen(answer: "asyncio.Future[R]") -> None:
    """An asker may be gone when the answer is an error."""
    if not answer.cancelled():
        answer.exception()
