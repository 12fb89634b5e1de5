"""A lane over its high-water mark with a real consumer and a connection that breaks; on a server."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from celery import Celery
from celery.contrib.testing import worker as testing_worker
from celery.signals import worker_init

from tests.contract import gated_lanes
from tests.contract.gated_lanes import CALLS, LIMITS, Hold, app_of
from tests.waiting import wait_until
from workers.app import _refuse_foreign_worker

POSTS = 30
start_worker: Any = testing_worker.start_worker

pytestmark = pytest.mark.servers


@pytest.fixture
def hold() -> Iterator[Hold]:
    # This worker is a test's own: the app's refusal of workers that it didn't start isn't meant for it.
    refused = worker_init.disconnect(_refuse_foreign_worker)
    gated_lanes.hold = Hold()
    yield gated_lanes.hold
    gated_lanes.hold = Hold()
    if refused:
        worker_init.connect(_refuse_foreign_worker)


def send(app: Celery, lane: str, posts: int, prefix: str) -> None:
    for n in range(posts):
        app.send_task("lanes.held", kwargs={"post": [lane, f"{prefix}{n}"]}, queue=f"lane.{lane}")


def test_a_full_lane_alone_is_paused_also_over_a_reconnect_and_nothing_is_lost_or_doubled(
    redis_url: str, hold: Hold
) -> None:
    app = app_of(redis_url)
    with (
        redis.Redis.from_url(redis_url) as server,
        start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=10, without_heartbeat=True),
    ):
        send(app, "a", POSTS, "a")
        wait_until(lambda: hold.gate.paused == {"a"}, timeout_s=20)
        full = LIMITS.lane_high_water // CALLS
        assert full <= len(hold.in_hand) <= full + 1
        send(app, "b", 2, "b")
        wait_until(lambda: sum(hold.got[f"b{n}"] for n in range(2)) == 2, timeout_s=20)
        hold.let_go("b")

        before = hold.consumers
        server.client_kill_filter(_type="normal", skipme=True)
        wait_until(lambda: hold.consumers > before, timeout_s=30)
        send(app, "b", 2, "c")
        wait_until(lambda: sum(hold.got[f"c{n}"] for n in range(2)) == 2, timeout_s=30)
        hold.let_go("b")
        assert hold.gate.paused == {"a"}, "the new connection doesn't read it either"
        assert sum(count for post, count in hold.got.items() if post[0] == "a") <= full + 1

        def drained() -> bool:
            hold.let_go("a")
            return len([post for post in hold.got if post[0] == "a"]) == POSTS

        wait_until(drained, timeout_s=30)
        wait_until(lambda: not hold.gate.paused, timeout_s=20)
    assert set(hold.got.values()) == {1}, "nothing twice"
    assert hold.gate.held("a") == hold.gate.held("b") == 0
