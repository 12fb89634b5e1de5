"""Messages to the control queue, by kombu alone."""

import os
import socket
import threading
import uuid
from math import ceil
from typing import Any

from amqp.exceptions import AMQPError
from kombu.connection import Connection
from kombu.entity import Queue
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from runtime.errors import ServiceUnreachableError
from runtime.model.task_message import task_message
from runtime.policy.limits import Limits
from runtime.server_address import broker_address

CONTROL_QUEUE = "control"


class ControlSender:
    """One broker connection, opened at first use and again after it failed."""

    def __init__(self, broker_url: str, limits: Limits) -> None:
        self._address = broker_address(broker_url)
        self._url = broker_url
        self._is_redis = not broker_url.startswith("amqp")
        self._limits = limits
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    def send(self, task: str, kwargs: dict[str, Any], *, about: str) -> None:
        """Publish `task` once; monitors see only `about`. Raises ServiceUnreachableError."""
        origin = f"{os.getpid()}@{socket.gethostname()}"
        message = task_message(
            task, kwargs, task_id=str(uuid.uuid4()), origin=origin, kwargsrepr=f"run={about}"
        )
        with self._lock:
            try:
                producer = self._open().Producer(serializer="json", auto_declare=False)
                producer.publish(
                    message.body,
                    exchange="",
                    routing_key=CONTROL_QUEUE,
                    declare=[] if self._is_redis else [Queue(CONTROL_QUEUE, routing_key=CONTROL_QUEUE)],
                    headers=message.headers,
                    retry=True,
                    retry_policy={
                        "max_retries": self._limits.client_publish_retries,
                        "interval_start": 0.1,
                        "interval_max": 0.1,
                    },
                    **message.properties,
                )
            except (KombuError, RedisError, AMQPError, OSError) as error:
                self._drop()
                reason = str(error).partition("\n")[0]
                raise ServiceUnreachableError(
                    f"{'Redis' if self._is_redis else 'the broker'} at {self._address} did not take the message "
                    f"({reason}): start it, or name the right one in "
                    f"{'PLAYLANE_REDIS_URL' if self._is_redis else 'PLAYLANE_BROKER_URL'}"
                ) from error

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _open(self) -> Connection:
        if self._connection is None:
            timeout_s = self._limits.client_redis_s
            self._connection = Connection(
                self._url,
                connect_timeout=ceil(timeout_s),
                transport_options={"socket_connect_timeout": timeout_s, "socket_timeout": timeout_s}
                if self._is_redis
                else {"confirm_publish": True, "connect_timeout": timeout_s},
            )
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.release()
            self._connection = None
