"""A message that is no task at all is dropped and told. Celery's own consumer ends its process over some of them, and
the message, never acknowledged, comes back and ends the next one."""

from typing import Any

import structlog
from celery.worker.consumer import Consumer

log = structlog.get_logger()
_SHOWN = 300


class GuardedConsumer(Consumer):
    """Celery's consumer, which survives what it can't read."""

    def create_task_handler(self, *arguments: Any, **options: Any) -> Any:
        """The handler of every message; what is wrong with the connection stays Celery's to handle."""
        handle = super().create_task_handler(*arguments, **options)
        # kombu counts KeyError among a broken connection's errors: a message without a header is none.
        theirs = (*(kind for kind in self.connection_errors if kind is not KeyError), OSError, MemoryError)

        def guarded(message: Any, /) -> None:
            try:
                handle(message)
            except theirs:
                raise
            except Exception as error:
                log.exception(
                    "message dropped: it is no task message",
                    action="message.drop",
                    error=f"{type(error).__name__}: {error}"[:_SHOWN],
                    headers=repr(message.headers)[:_SHOWN],
                    exc_info=False,
                )
                if not message.acknowledged:
                    message.ack()

        return guarded
