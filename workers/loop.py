"""One asyncio loop in one background thread, made lazily per process (so prefork works too)."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from runtime.context.own_tasks import watch_tasks
from runtime.policy.limits import DEFAULT_LIMITS

T = TypeVar("T")


class BackgroundLoop:
    """Submits coroutines to the process's loop from plain threads."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        watch_tasks(self.loop)
        # The loop's own default has a few threads only: sleepers of one run would hold up every other run's work.
        self.loop.set_default_executor(
            concurrent.futures.ThreadPoolExecutor(DEFAULT_LIMITS.play_threads, "playlane-thread")
        )
        self._thread = threading.Thread(target=self._run, name="playlane-loop", daemon=True)
        self._thread.start()

    @property
    def thread_id(self) -> int:
        """The loop's thread, for naming the line that blocks it."""
        return self._thread.ident or 0

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run `work` on the loop and wait for its result; a timeout cancels it and raises TimeoutError."""
        future = self.submit(work)
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        """Run `work` on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def stop(self) -> None:
        """End the loop and its thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=DEFAULT_LIMITS.worker_thread_end_s)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
