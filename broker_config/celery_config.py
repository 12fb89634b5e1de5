"""Every Celery setting that isn't Celery's default, each with its reason."""

from typing import Any

from broker_config.queues import CONTROL, ROUTES
from broker_config.settings import Settings

VISIBILITY_TIMEOUT_S = 30
REDIS = {
    # Only control acks late; a killed control worker's message comes back after this.
    "visibility_timeout": VISIBILITY_TIMEOUT_S,
    # A half-open connection is noticed instead of waited on.
    "health_check_interval": 10,
    "socket_keepalive": True,
    "socket_connect_timeout": 5,
}
# A message counts as sent once RabbitMQ has said that it has it.
AMQP = {"confirm_publish": True, "connect_timeout": 5}


def celery_settings(settings: Settings) -> dict[str, Any]:
    """The configuration of the Celery app, from settings alone."""
    return {
        "broker_url": settings.broker_url,
        "result_backend": settings.result_url,
        "broker_transport_options": REDIS if settings.broker_is_redis else AMQP,
        # RabbitMQ: a connection that died is noticed, and its messages come back to the queue.
        "broker_heartbeat": 0 if settings.broker_is_redis else 10,
        "result_backend_transport_options": REDIS,
        # A worker that starts before Redis waits for it.
        "broker_connection_retry_on_startup": True,
        "task_routes": ROUTES,
        "task_default_queue": CONTROL,
        # A route to a queue that nobody declared is a queue without a consumer, not an error: doctor names it.
        "task_create_missing_queues": True,
        # A message that can't be read is dropped; Celery's own consumer would end its process, again and again.
        "worker_consumer": "workers.message_guard:GuardedConsumer",
        # JSON only: a message is data, never code.
        "task_serializer": "json",
        "result_serializer": "json",
        "accept_content": ["json"],
        # Nothing waits for results; chords count their parts all the same.
        "task_ignore_result": True,
        "result_expires": 3600,
        # A page of slow rows takes longer than results live: its chord must outlive them.
        "result_chord_expires": 86400,
        # Early ack but for control: the table, not the broker, decides what is sent again.
        "task_acks_late": False,
        # A full prefetch stops every queue of the consumer; a killed process must not take messages with it.
        "worker_prefetch_multiplier": 1,
        # Redis only. RabbitMQ itself takes a killed process's messages back, at once.
        "worker_disable_prefetch": settings.broker_is_redis,
        # Flower tells the truth only with events.
        "worker_send_task_events": True,
        # Off: it would publish one more message for every message sent; received and started tell the same.
        "task_send_sent_event": False,
        # Logs are ours (structlog); prints of plays go to their runs' logs.
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        # Claims decide who runs what; a lost broker connection must not kill held slices.
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_enable_prefetch_count_reduction": False,
        # A sender fails within seconds when Redis is away; sweeps send again.
        "task_publish_retry_policy": {
            "max_retries": 3,
            "interval_start": 0.1,
            "interval_step": 0.2,
            "interval_max": 1,
        },
        "redis_socket_timeout": 10,
        "redis_socket_connect_timeout": 5,
        "redis_retry_on_timeout": True,
        "redis_backend_health_check_interval": 10,
    }
