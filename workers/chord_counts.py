"""The result backend of processes that send chords and never read a result."""

from typing import Any

from celery.backends.redis import RedisBackend


class ChordCounts(RedisBackend):
    """Counts the parts of chords. Celery's own also waits for every part that it sent: it keeps the part's result
    object and a subscription of it in Redis until somebody reads the result, which nobody does."""

    def on_task_call(self, producer: Any, task_id: str) -> None:
        """No subscription."""

    def add_pending_result(self, result: Any, weak: bool = False, start_drainer: bool = True) -> Any:
        """Nothing is waited for."""
        return result
