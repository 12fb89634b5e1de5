"""One suite for Inbox and the dispatch epoch: in memory, on fakeredis, on a real server."""

from collections.abc import AsyncIterator

import pytest
from fakeredis import FakeAsyncRedis

from runtime.model.call import Answer, AnswerState
from runtime.policy.limits import Limits
from runtime.ports import Inbox
from runtime.redis_store.connect import connect
from runtime.redis_store.dispatch_epoch import RedisDispatchEpoch, lengths_in
from runtime.redis_store.inbox import RedisInbox
from runtime.testing_redis import MemoryInbox, MemoryRedis

LIMITS = Limits(reply_inline_bytes=1_000, reply_message_bytes=3_000)


@pytest.fixture(params=["memory", "fakeredis", "server"])
async def inbox(request: pytest.FixtureRequest) -> AsyncIterator[Inbox]:
    if request.param == "memory":
        yield MemoryInbox(MemoryRedis(LIMITS))
        return
    url = request.getfixturevalue("redis_url") if request.param == "server" else ""
    redis = connect(url, LIMITS) if url else FakeAsyncRedis()
    yield RedisInbox(redis, LIMITS)
    await redis.aclose()


def answer(key: str, output: bytes = b'{"a":1}') -> Answer:
    return Answer(key=key, state=AnswerState.COMPLETED, output=output)


async def test_answers_arrive_in_order_and_byte_for_byte(inbox: Inbox) -> None:
    outputs = [b'{"n":1e16,"big":123456789012345678901234567890}', b'"\\u00e9 \xc3\xa9"', b"null", b"[1, 2]"]
    sent = [answer(str(n), output) for n, output in enumerate(outputs)]
    failed = Answer(
        key="f", state=AnswerState.FAILED, error={"code": "x", "details": {"a": [1]}}, cached=True
    )
    await inbox.push({"s1": [*sent, failed], "s2": [answer("other")]})
    await inbox.push({"s1": [answer("last")]})
    assert await inbox.pop("s1", 0.05) == [*sent, failed, answer("last")]
    assert await inbox.pop("s2", 0.05) == [answer("other")]
    assert await inbox.pop("s1", 0.05) == []


async def test_a_large_output_is_left_in_the_receipt(inbox: Inbox) -> None:
    await inbox.push({"s1": [answer("k", b'"' + b"x" * 2_000 + b'"')]})
    assert await inbox.pop("s1", 0.05) == [Answer(key="k", state=AnswerState.STORED)]


async def test_many_answers_are_cut_into_messages(inbox: Inbox) -> None:
    sent = [answer(f"k{n}", b'"' + b"y" * 500 + b'"') for n in range(50)]
    await inbox.push({"s1": sent})
    got: list[Answer] = []
    while popped := await inbox.pop("s1", 0.05):
        got += popped
    assert got == sent


async def test_the_dispatch_epoch_leaves_with_the_data() -> None:
    redis = FakeAsyncRedis()
    epoch = RedisDispatchEpoch(redis, lengths_in(redis), LIMITS)
    first = await epoch.epoch()
    assert first == await epoch.epoch() and await redis.ttl("dispatch:epoch") > 0
    await redis.flushdb()
    assert await epoch.epoch() != first
    assert await epoch.queue_empty("rows")
    await redis.rpush("rows", "message")
    assert not await epoch.queue_empty("rows")
    await redis.aclose()
