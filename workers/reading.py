"""Sees that the consumer reads the broker: a worker can be alive, hold its connection, and take nothing."""

from typing import Any

from celery import bootsteps

from runtime.policy.limits import DEFAULT_LIMITS
from workers.vitals import vital_signs


class Reading(bootsteps.StartStopStep):
    """Part of Celery's consumer; started again with each new broker connection."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def stop(self, parent: Any) -> None:
        """The connection is lost or ended: not ready until the next beat, however soon that comes."""
        vital_signs.disconnected()

    def register_with_event_loop(self, consumer: Any, hub: Any) -> None:
        """A beat from inside the consumer's own loop: it comes only while that loop turns."""
        hub.call_repeatedly(DEFAULT_LIMITS.reading_beat_s, self._beat, consumer)

    def _beat(self, consumer: Any) -> None:
        if is_reading(consumer):
            vital_signs.reading()


def is_reading(consumer: Any) -> bool:
    """Whether a request for messages is on its way, or held back on purpose (its slots are full)."""
    connection = consumer.connection
    if connection is None or not connection.connected or consumer.task_consumer is None:
        return False
    channel = consumer.task_consumer.channel
    if not hasattr(channel, "_in_poll"):  # not Redis: the connection is what can be seen
        return True
    return bool(channel._in_poll) or not channel.qos.can_consume()
