"""How many messages wait in a queue and how many workers read it, by whatever broker is used."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from amqp.exceptions import AMQPError
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from runtime.errors import ServiceUnreachableError
from runtime.policy.limits import DEFAULT_LIMITS
from workers.app import app

_LOST = (OperationalError, AMQPError, RedisError, OSError)


def queue_depths(names: Sequence[str]) -> dict[str, int]:
    """Messages waiting; 0 for a queue that nobody has declared yet. Raises ServiceUnreachableError."""
    try:
        with app.connection_for_read() as connection:
            connection.ensure_connection(
                max_retries=DEFAULT_LIMITS.broker_look_retries, timeout=DEFAULT_LIMITS.broker_look_s
            )
            return {name: _depth(connection, name) for name in names}
    except _LOST as error:
        raise ServiceUnreachableError(f"the broker does not answer: {error}") from error


def queue_readers(timeout_s: float) -> dict[str, int] | None:
    """Workers by the queue that they say they read; None if none answered in time."""
    inspector: Any = app.control.inspect(timeout=timeout_s)
    try:
        answers = inspector.active_queues()
    except _LOST as error:
        raise ServiceUnreachableError(f"the broker does not answer: {error}") from error
    if not answers:
        return None
    return dict(Counter(queue["name"] for queues in answers.values() for queue in queues))


def _depth(connection: Any, name: str) -> int:
    channel = connection.channel()
    try:
        return int(channel.queue_declare(queue=name, passive=True).message_count)
    except connection.channel_errors:
        return 0
    finally:
        channel.close()
