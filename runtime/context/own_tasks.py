"""Tasks that an author's code starts in a row or a step: known to it, and ended with it."""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any
from weakref import WeakKeyDictionary

from runtime.context.scope import Scope, current_scope

_scopes: "WeakKeyDictionary[asyncio.Task[Any], Scope]" = WeakKeyDictionary()


def watch_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """From now on every task of the loop that is started inside a scope is told to it."""
    loop.set_task_factory(_new_task)


def scope_of(task: "asyncio.Task[Any] | None") -> Scope | None:
    """The scope inside which a task was started."""
    return None if task is None else _scopes.get(task)


def _new_task(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
    **more: Any,
) -> "asyncio.Task[Any]":
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **more)  # type: ignore[arg-type]
    scope = current_scope.get()
    if scope is not None:
        _scopes[task] = scope
        scope.own_tasks.add(task)
    return task


class OwnTasks:
    """The tasks of one scope."""

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []

    def add(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.append(task)

    @property
    def is_empty(self) -> bool:
        return not self._tasks

    async def end(self, wait_s: float) -> list[str]:
        """Cancel what still runs and wait for it a moment; the names of what it was."""
        tasks, self._tasks = self._tasks, []
        left = [task for task in tasks if not task.done()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=wait_s)
        return sorted({getattr(task.get_coro(), "__qualname__", task.get_name()) for task in left})
