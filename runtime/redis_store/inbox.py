"""Inboxes: answers wait in one Redis list per session. Losing one costs a poll, never a result."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from redis.asyncio import Redis

from runtime.errors import BadInputError
from runtime.model import answer_message
from runtime.model.call import Answer
from runtime.policy.limits import Limits
from runtime.redis_store import keys
from runtime.redis_store.gathered import Gathered
from runtime.redis_store.scripts import reaching_redis

log = structlog.get_logger()


class RedisInbox:
    """The Inbox. One list element carries many answers."""

    def __init__(self, redis: Redis, limits: Limits) -> None:
        self._redis = redis
        self._limits = limits
        self._pushing: Gathered[None, Mapping[str, Sequence[Answer]], None] = Gathered(
            self._push_all, limits.lease_asks
        )

    async def push(self, answers: Mapping[str, Sequence[Answer]]) -> None:
        """Append answers by session in one round trip; outputs above `reply_inline_bytes` travel as STORED."""
        await self._pushing.ask(None, answers)

    async def _push_all(self, _key: None, pushed: Sequence[Mapping[str, Sequence[Answer]]]) -> list[None]:
        together: defaultdict[str, list[Answer]] = defaultdict(list)
        for answers in pushed:
            for session_id, given in answers.items():
                together[session_id] += given
        pipeline = self._redis.pipeline(transaction=False)
        for session_id, given in together.items():
            key = keys.inbox(session_id)
            texts = answer_message.to_texts(
                given,
                inline_bytes=self._limits.reply_inline_bytes,
                message_bytes=self._limits.reply_message_bytes,
            )
            pipeline.rpush(key, *texts)
            pipeline.ltrim(key, -self._limits.inbox_messages, -1)
            pipeline.expire(key, int(self._limits.inbox_ttl_s))
        with reaching_redis("pushing answers"):
            await pipeline.execute()
        return [None] * len(pushed)

    async def pop(self, session_id: str, timeout_s: float) -> list[Answer]:
        """Answers in order of arrival; waits up to `timeout_s` for the first."""
        key = keys.inbox(session_id)
        with reaching_redis("reading an inbox"):
            texts: Any = await self._redis.lpop(key, self._limits.inbox_pop)
            if not texts:
                first = await self._redis.blpop([key], timeout=timeout_s)
                texts = [first[1]] if first else []
        return [answer for text in texts for answer in _answers(text)]


def _answers(text: bytes) -> list[Answer]:
    """A message of another release is dropped: its calls' receipts are found by polling."""
    try:
        return answer_message.from_text(text)
    except BadInputError as error:
        log.error("answers dropped", action="inbox.pop", error=str(error))
        return []
