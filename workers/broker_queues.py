"""How many messages wait in a queue of a broker that isn't Redis."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from math import ceil

from amqp.exceptions import AMQPError
from kombu.connection import Connection
from kombu.exceptions import KombuError

from runtime.errors import ServiceUnreachableError
from runtime.policy.limits import Limits


class BrokerQueues:
    """One connection in one thread of its own, opened at first use and again after it failed."""

    def __init__(self, broker_url: str, limits: Limits) -> None:
        self._url = broker_url
        self._limits = limits
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="playlane-broker")

    async def length_of(self, queue: str) -> int:
        """0 for a queue that nobody has declared yet. Raises ServiceUnreachableError."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._length_of, queue)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._drop)
        self._thread.shutdown(wait=False)

    def _length_of(self, queue: str) -> int:
        try:
            connection = self._open()
            channel = connection.channel()
            try:
                return int(channel.queue_declare(queue=queue, passive=True).message_count)
            except connection.channel_errors:
                return 0
            finally:
                channel.close()
        except (KombuError, AMQPError, OSError) as error:
            self._drop()
            raise ServiceUnreachableError(f"the broker did not say how long a queue is: {error}") from error

    def _open(self) -> Connection:
        with self._lock:
            if self._connection is None:
                self._connection = Connection(
                    self._url, connect_timeout=ceil(self._limits.client_redis_s), heartbeat=0
                )
            return self._connection

    def _drop(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.release()
                self._connection = None
