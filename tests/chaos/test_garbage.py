"""What others put into our queues: none of it is a message, none of it ends a process."""

import redis

from broker_config.queues import lane_queue
from tests.chaos.processes import ROLES
from tests.chaos.stack_under_test import StackUnderTest

ITEMS = (
    b"\xff\xfe\x00",
    b"not JSON",
    b"42",
    b"null",
    b"[1, 2]",
    b'"text"',
    b'{"a": 1}',
    b'{"body": 5, "headers": null, "properties": {}}',
    b'{"body": "e30=", "headers": {}, "properties": {"body_encoding": "base64"}, "content-type": "application/json"}',
)
QUEUES = ("control", "plays", "rows", lane_queue("fakeprov"))


def test_garbage_in_a_queue_is_dropped_and_work_goes_on(stack: StackUnderTest) -> None:
    """Each such item used to end the process that met it; its supervisor started it for the next one."""
    before = {role: stack.child(role).pid for role in ROLES}
    with redis.Redis.from_url(stack.servers.redis_url) as client:
        for queue in QUEUES:
            client.lpush(queue, *ITEMS)
        run = stack.start(20)
        stack.check(run)
        stack.until(lambda: not any(client.llen(queue) for queue in QUEUES), "empty queues")
    assert {role: stack.child(role).pid for role in ROLES} == before
