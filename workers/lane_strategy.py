"""Celery's hand-over for posts: ack at once, give the calls to the lane engine, and send the events that
Celery's own strategy would send, or Flower shows nothing."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import structlog
from celery.worker.strategy import proto1_to_proto2
from kombu.exceptions import ContentDisallowed, DecodeError

from runtime.errors import BadInputError, PlaylaneError
from runtime.model import post_message
from workers.wiring import WorkerProcess, process

log = structlog.get_logger()
Send = Callable[..., None]


class PostEvents:
    """The life of one post as Flower sees it. Told a moment late, so that telling never delays the calls."""

    def __init__(self, send: Send, headers: dict[str, Any], name: str) -> None:
        self._send = send
        self._id = headers.get("id")
        self._started, self._started_at = time.monotonic(), time.time()
        self._is_told = False
        self._received = {
            "uuid": self._id,
            "name": name,
            "args": headers.get("argsrepr"),
            "kwargs": headers.get("kwargsrepr"),
            "root_id": headers.get("root_id"),
            "parent_id": headers.get("parent_id"),
            "retries": 0,
            "eta": None,
            "expires": None,
        }

    def received(self) -> None:
        """Repeating it tells nothing more."""
        if self._is_told:
            return
        self._is_told = True
        self._send("task-received", timestamp=self._started_at, **self._received)
        self._send("task-started", timestamp=self._started_at, uuid=self._id)

    def succeeded(self, calls: int) -> None:
        self.received()
        self._send(
            "task-succeeded", uuid=self._id, result=f"{calls} calls", runtime=time.monotonic() - self._started
        )

    def failed(self, error: BaseException) -> None:
        self.received()
        self._send(
            "task-failed", uuid=self._id, exception=f"{type(error).__name__}: {error}"[:500], traceback=""
        )


def hand_to_lane(task: Any, app: Any, consumer: Any, **_: Any) -> Callable[..., None]:
    """The message handler of `lanes.execute`: called in the consumer thread for every post."""
    lane_process = process()
    gate = lane_process.lane_gate
    gate.serve(consumer)
    eventer = consumer.event_dispatcher
    send: Send = eventer.send if eventer is not None and eventer.enabled else _no_event

    def on_message(message: Any, body: Any, ack: Any, reject: Any, callbacks: Any, **_: Any) -> None:
        headers = dict(message.headers or {})
        events = PostEvents(lane_process.in_background(send), headers, task.name)
        try:
            post = post_message.from_message(_kwargs(message, body)["post"])
        except (BadInputError, LookupError, TypeError, ValueError, DecodeError, ContentDisallowed) as error:
            ack(consumer_log, consumer.connection_errors)
            log.error("post refused", action="lane.refuse", error=str(error))
            events.failed(error)
            return
        gate.enter(post.lane, len(post.calls))
        work = lane_process.bridge.submit(_execute(lane_process, post, events))
        work.add_done_callback(lambda _done: gate.leave(post.lane, len(post.calls)))
        # Behind the calls: a post that comes twice is harmless.
        ack(consumer_log, consumer.connection_errors)
        gate.look(post.lane)

    return on_message


async def _execute(lane_process: WorkerProcess, post: Any, events: PostEvents) -> None:
    telling = asyncio.get_running_loop().call_later(lane_process.limits.post_told_s, events.received)
    try:
        accepted = await lane_process.lane.accept(post)
        await accepted.wait()
    except PlaylaneError as error:
        log.warning("post not answered; its callers will ask again", action="lane.post", error=str(error))
        events.failed(error)
    except Exception as error:
        log.exception("post failed; its callers will ask again", action="lane.post")
        events.failed(error)
    else:
        events.succeeded(len(post.calls))
    finally:
        telling.cancel()


def _kwargs(message: Any, body: Any) -> dict[str, Any]:
    if body is None:
        return message.decode()[1]
    return proto1_to_proto2(message, body)[0][1]


def _no_event(_type: str, **_fields: Any) -> None:
    """Events are off."""


class _ConsumerLog:
    """What kombu wants of a logger when an ack fails: the message returns and is harmless."""

    def critical(self, text: str, *arguments: Any, **_: Any) -> None:
        log.warning("ack failed; the post may come twice", action="lane.ack", error=text % arguments)

    error = critical


consumer_log = _ConsumerLog()
