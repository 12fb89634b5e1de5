"""The small deterministic event loop that a play body runs on: no IO, stepped until idle."""

import asyncio
import sys
import threading
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, NoReturn, Protocol

from runtime.errors import BodyIoError, PlaySpinsError


class TimerOwner(Protocol):
    """Turns the loop's timers into durable waits."""

    def timer_set(self, handle: asyncio.TimerHandle, delay_s: float) -> None: ...

    def timer_cancelled(self, handle: asyncio.TimerHandle) -> None: ...


class BodyLoop(asyncio.AbstractEventLoop):
    """Ready queue, clock and tasks; time moves only with recorded outcomes."""

    def __init__(self, *, timers: TimerOwner, max_turns: int, errors_kept: int, now_s: float = 0.0) -> None:
        self.now_s = now_s
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.errors: deque[str] = deque(maxlen=errors_kept)
        self._ready: deque[asyncio.Handle] = deque()
        self._timers = timers
        self._max_turns = max_turns
        self._thread: int | None = None

    def run_until_idle(self) -> None:
        """Run what is ready, and what that makes ready; raise PlaySpinsError beyond the turn limit."""
        previous, hooks = events._get_running_loop(), sys.get_asyncgen_hooks()
        events._set_running_loop(self)
        sys.set_asyncgen_hooks(None, None)
        self._thread = threading.get_ident()
        try:
            self._run_ready()
        finally:
            self._thread = None
            events._set_running_loop(previous)
            sys.set_asyncgen_hooks(*hooks)

    def fire(self, handle: asyncio.TimerHandle) -> None:
        """A timer's wait has resolved: its callback is ready."""
        self.now_s = max(self.now_s, handle.when())
        self._ready.append(handle)

    def _run_ready(self) -> None:
        for _ in range(self._max_turns):
            if not self._ready:
                return
            handle = self._ready.popleft()
            if not handle.cancelled():
                self._run_one(handle)
        if self._ready:
            self._ready.clear()
            raise PlaySpinsError(
                f"the play body ran {self._max_turns:,} turns without waiting for anything: "
                "a loop in it never ends; the run is failed and not retried"
            )

    def _run_one(self, handle: asyncio.Handle) -> None:
        try:
            handle._run()
        except (
            SystemExit,
            KeyboardInterrupt,
        ) as error:  # its task has kept it: the body fails, not the process
            self.errors.append(f"{type(error).__name__} in a play body")

    # What Task, Future, gather, wait, timeout, TaskGroup, Lock and Queue need of a loop.

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if threading.get_ident() != self._thread:
            _refuse("call_soon_threadsafe from another thread")
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if when <= self.now_s:
            self._ready.append(handle)
        else:
            self._timers.timer_set(handle, when - self.now_s)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._timers.timer_cancelled(handle)

    def time(self) -> float:
        return self.now_s

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, **options)
        self.tasks[task] = None
        task.add_done_callback(lambda done: self.tasks.pop(done, None))
        return task

    def get_task_factory(self) -> None:
        return None

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._thread is not None

    def is_closed(self) -> bool:
        return False

    def get_exception_handler(self) -> None:
        return None

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.errors.append(
            f"{context.get('message')}: {type(error).__name__}" if error else str(context.get("message"))
        )

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    async def shutdown_asyncgens(self) -> None:
        return None


def _refuse(name: str) -> NoReturn:
    raise BodyIoError(
        f"a play body does no IO of its own ({name}): its result would be in no journal; "
        "do it in ctx.step, in a column resolver or through a tool"
    )


def _refusing(name: str) -> Callable[..., NoReturn]:
    def refuse(_loop: BodyLoop, *_args: Any, **_options: Any) -> NoReturn:
        _refuse(name)

    refuse.__name__ = name
    return refuse


for _name in dir(asyncio.AbstractEventLoop):
    if not _name.startswith("_") and _name not in vars(BodyLoop):
        setattr(BodyLoop, _name, _refusing(_name))
