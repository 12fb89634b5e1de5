"""Messages out, by Celery: sent from threads, never from the loop; arguments stay short in events."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import structlog
from amqp.exceptions import AMQPError
from celery import Celery, chord
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from broker_config.queues import lane_queue
from runtime.model import post_message
from runtime.model.call import Call, Post
from runtime.model.page import PageOut

log = structlog.get_logger()

_LOST = (OperationalError, RedisError, AMQPError, OSError)


class CeleryPublisher:
    """Port Publisher. A message that can't be sent is logged: sweeps and polls send it again."""

    def __init__(self, app: Celery, *, threads: int = 4) -> None:
        self._app = app
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="playlane-publish")

    async def resume(self, run_ids: Sequence[str]) -> None:
        for run_id in run_ids:
            await self._send(self._send_resume, run_id)

    async def pages_out(self, pages: Sequence[PageOut]) -> None:
        for page in pages:
            if page.slices:
                await self._send(self._send_page, page)

    async def post(self, lane: str, calls: Sequence[Call]) -> None:
        await self._send(self._send_post, lane, calls)

    def close(self) -> None:
        """Finish what is being sent."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    async def _send(self, send: Callable[..., None], *arguments: Any) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, send, *arguments)
        except _LOST as error:
            log.warning("message not sent", action=f"publish.{send.__name__[6:]}", error=str(error))

    def _send_resume(self, run_id: str) -> None:
        self._app.send_task(
            "plays.resume", kwargs={"run_id": run_id}, argsrepr="()", kwargsrepr=f"run={run_id}"
        )

    def _send_page(self, page: PageOut) -> None:
        run_slice, settle_page = self._app.tasks["rows.run_slice"], self._app.tasks["datasets.settle_page"]
        header = [
            run_slice.si(page.run_id, page.dataset_id, page.page, number).set(
                argsrepr=f"({page.dataset_id}, {page.page}, {number})", kwargsrepr="{}"
            )
            for number in page.slices
        ]
        body = settle_page.si(page.run_id, page.dataset_id, page.page).set(
            argsrepr=f"({page.dataset_id}, {page.page})", kwargsrepr="{}"
        )
        chord(header, body).apply_async()

    def _send_post(self, lane: str, calls: Sequence[Call]) -> None:
        post = Post(post_id=uuid4().hex, lane=lane, calls=tuple(calls))
        self._app.send_task(
            "lanes.execute",
            task_id=post.post_id,
            kwargs={"post": post_message.to_message(post)},
            queue=lane_queue(lane),
            argsrepr="()",
            kwargsrepr=f"{len(calls)} calls",
            ignore_result=True,
        )
